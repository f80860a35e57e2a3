"""Commits of API writes to git: one after the other, repeated while somebody else works with git there.

Each is noted in the folder before it is tried, so that what a restart finds noted is committed then. What was
written several times while git was busy is committed once, as it is then and for the last who wrote it.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from itertools import count
from pathlib import Path
from typing import Final

from engine.worktree import git
from engine.worktree.disk import Disk
from engine.worktree.markers import FOLDER

log = logging.getLogger("governance.git")

AGAIN_SECONDS: Final = 1.0
"""Between two tries while git is busy."""


class CommitQueue:
    """The commits of one process. Safe to use from several threads."""

    def __init__(self, root: Path) -> None:
        self._disk = Disk(root)
        self._lock = threading.Lock()
        self._numbers = count()
        self._waiting: dict[str, dict[str, str]] = {}
        self._repeating: threading.Thread | None = None
        self._stop = threading.Event()

    def start(self) -> None:
        """Commit what was left behind."""
        for name in sorted(self._disk.notes(FOLDER)):
            if name.startswith("commit-") and name.endswith(".json"):
                try:
                    note = json.loads(self._disk.read(f"{FOLDER}/{name}") or b"")
                    self._waiting[name] = {key: str(note[key]) for key in ("path", "author", "message")}
                except (OSError, ValueError, KeyError, TypeError):
                    self._disk.forget(f"{FOLDER}/{name}")
        self._commit_waiting()

    def close(self) -> None:
        """What is still waiting stays noted."""
        self._stop.set()
        if self._repeating is not None:
            self._repeating.join(timeout=10)

    def add(self, root: Path, path: str, author: str, message: str) -> None:
        """Commit one file, or its removal, after those that came before; later where git is busy."""
        commit = {"path": path, "author": author, "message": message}
        name = f"commit-{time.time_ns():020}-{os.getpid()}-{next(self._numbers):06}.json"
        self._disk.note(f"{FOLDER}/{name}", json.dumps(commit).encode())
        with self._lock:
            self._waiting[name] = commit
        self._commit_waiting()

    def _commit_waiting(self) -> None:
        with self._lock:
            ordered = sorted(self._waiting.items())
            newest = {commit["path"]: name for name, commit in ordered}
            for name, commit in ordered:
                try:
                    if newest[commit["path"]] == name:  # what the file is now is of the last who wrote it
                        git.commit_file(self._disk.root, commit["path"], commit["author"], commit["message"])
                except git.GitFailed as failed:
                    if failed.busy:
                        self._repeat(failed)
                        return
                    log.warning(
                        "git did not commit `%s`: %s; it is in force, and goes along with its next change",
                        commit["path"],
                        failed,
                    )
                del self._waiting[name]
                self._disk.forget(f"{FOLDER}/{name}")

    def _repeat(self, failed: git.GitFailed) -> None:
        """Try again in a thread, until all is committed."""
        if self._repeating is None or not self._repeating.is_alive():
            waiting = "1 commit waits" if len(self._waiting) == 1 else f"{len(self._waiting)} commits wait"
            log.warning("git is busy, so %s: %s", waiting, failed)
            self._repeating = threading.Thread(target=self._work, name="policies-commit", daemon=True)
            self._repeating.start()

    def _work(self) -> None:
        while self._waiting and not self._stop.wait(AGAIN_SECONDS):
            self._commit_waiting()
