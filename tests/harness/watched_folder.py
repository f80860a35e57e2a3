"""Live rules over a folder of policies, watched or not, and what they told."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

from engine.errors import Problem
from engine.live import LivePolicies
from engine.model import ToolCall
from engine.repository.archive import FileChange
from tests.harness.policy_folder import Folder


class Watched:
    """Live rules over a folder, and what they told."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.changes: list[Sequence[FileChange]] = []
        self.failures: list[Sequence[Problem]] = []
        repository = folder.open()
        self.live = LivePolicies(repository, on_changed=self.changes.append, on_failed=self.failures.append)
        self.live.start()

    def until(self, condition: Callable[[], bool], seconds: float = 10) -> float:
        begun = time.monotonic()
        while not condition():
            assert time.monotonic() - begun < seconds, "it never came true"
            time.sleep(0.002)
        return time.monotonic() - begun

    def blocks(self, tool: str) -> bool:
        return bool(self.live.ruleset("default").evaluate(ToolCall.of(toolName=tool)).matches)


@contextlib.contextmanager
def watching(folder: Folder) -> Iterator[Watched]:
    watched = Watched(folder)
    watched.live.watch()
    try:
        yield watched
    finally:
        watched.live.close()
