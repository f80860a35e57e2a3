"""A disk and an archive that fail, or a process that dies, at any single step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from engine.repository.repository import Repository
from engine.worktree.disk import Disk
from tests.harness.policy_folder import Folder


class Death(BaseException):
    """The process is gone: no handler of ours runs."""


class DatabaseGone(Exception):
    """What an archive raises when a transaction could not be committed."""


def disk_full() -> BaseException:
    return OSError(28, "No space left on device")


class Plug:
    """Lets `left` steps pass, then pulls the plug."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.error: Callable[[], BaseException] = Death
        self.steps: list[str] = []

    def step(self, name: str) -> None:
        self.steps.append(name)
        if self.left is not None:
            if self.left == 0:
                self.left = None
                raise self.error()
            self.left -= 1


class FailingDisk(Disk):
    """Every step may fail, before it had any effect and after it had."""

    def __init__(self, root: Path, plug: Plug) -> None:
        super().__init__(root)
        self.plug = plug

    def make_folder(self, folder: Path) -> None:
        self.plug.step("make folder")
        super().make_folder(folder)

    def write_temporary(self, path: Path, content: bytes) -> None:
        self.plug.step("before writing")
        path.write_bytes(content[: len(content) // 2])
        self.plug.step("half written")
        super().write_temporary(path, content)

    def sync_file(self, handle: int) -> None:
        self.plug.step("sync file")

    def rename(self, source: Path, target: Path) -> None:
        self.plug.step("before rename")
        super().rename(source, target)
        self.plug.step("after rename")

    def unlink(self, target: Path) -> None:
        self.plug.step("before unlink")
        super().unlink(target)
        self.plug.step("after unlink")

    def sync_folder(self, folder: Path) -> None:
        self.plug.step("sync folder")


def failing(folder: Folder, plug: Plug) -> Repository:
    folder.archive.before_commit = lambda: plug.step("before commit")
    folder.archive.after_commit = lambda: plug.step("after commit")
    return folder.open(disk=FailingDisk(folder.root, plug))
