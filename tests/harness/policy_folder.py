"""A policies folder with its archive, and the documents that tests write into it."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from engine.repository.repository import Repository
from tests.harness.policy_archive import MemoryArchive
from tests.harness.policy_bodies import on_tool

ADMIN = "ada@acme.example"
BODY = on_tool("Hold wires", "block", "wire")


def document(policy_id: str, name: str = "Hold", value: str = "wire", extra: str = "") -> str:
    return (
        f"# a comment\napiVersion: governance/v1\nkind: Policy\npolicyId: {policy_id}\n"
        f"name: {name}  # said so\n"
        f"action: block\nmatchConditions:\n  - {{field: toolName, operator: equals, value: {value}}}\n{extra}"
    )


def preset(preset_id: str, category: str = "mail") -> str:
    return (
        f"apiVersion: governance/v1\nkind: Preset\npresetId: {preset_id}\ncategory: {category}\nname: P\n"
        "description: d\naction: warn\nmatchConditions: [toolName == 'x']\n"
        "examples: [{match: true, toolName: x}]\n"
    )


def pack(pack_id: str, *presets: str) -> str:
    listed = ", ".join(presets)
    return f"apiVersion: governance/v1\nkind: Pack\npackId: {pack_id}\nname: P\npresets: [{listed}]\n"


class Folder:
    """A policies folder, its archive, and the repositories over them."""

    def __init__(self, root: Path, archive: MemoryArchive | None = None) -> None:
        self.root = root
        self.archive = archive or MemoryArchive()
        self.times = itertools.count(1)
        (root / "policies").mkdir(parents=True)

    def clock(self) -> str:
        return f"2026-01-01T00:00:00.{next(self.times):06d}Z"

    def open(self, **options: Any) -> Repository:
        """A process that starts on the folder; every look at the disk reads it (the clock stands still)."""
        options.setdefault("authors", lambda root, paths: {})
        return Repository(self.root, self.archive, clock=self.clock, nanoseconds=lambda: 0, **options)

    def started(self, **options: Any) -> Repository:
        repository = self.open(**options)
        applied = repository.start()
        assert applied.problems == ()
        return repository

    def write(self, path: str, text: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def read(self, path: str) -> str:
        return (self.root / path).read_text(encoding="utf-8")

    def disk_has(self, path: str) -> bool:
        return (self.root / path).exists()


def told(repository: Repository, policy_id: str, organisation_id: str = "default") -> list[tuple[Any, ...]]:
    """Versions newest first: number, source, created by, archived by, deleted."""
    return [
        (each.version, each.source, each.created_by, each.archived_by, each.deleted)
        for each in repository.versions(organisation_id, policy_id)
    ]


def nodes(tmp_path: Path, folder: Folder) -> tuple[Folder, Repository, Repository]:
    """A second node: its own folder (a clone), the same archive."""
    folder.write("policies/a.yaml", document("a"))
    one = folder.started()
    other = Folder(tmp_path / "node2", folder.archive)
    other.times = folder.times
    shutil.copytree(folder.root, other.root, dirs_exist_ok=True)
    return other, one, other.started()


def messages(repository: Repository) -> list[str]:
    return [str(problem) for problem in repository.problems]


def run_git(folder: Path, *arguments: str, author: str = "Gil <gil@acme.example>") -> str:
    """What git prints."""
    name, _, email = author.rstrip(">").partition(" <")
    identity = {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": email}
    identity |= {"GIT_COMMITTER_NAME": name, "GIT_COMMITTER_EMAIL": email}
    return subprocess.run(
        ["git", *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | identity,
        timeout=30,
    ).stdout


def commit_first(folder: Path, author: str = "Gil <gil@acme.example>") -> None:
    """Begin to keep a folder in git, with all that is there."""
    run_git(folder, "init", "-q")
    run_git(folder, "add", ".")
    run_git(folder, "commit", "-qm", "first", author=author)
