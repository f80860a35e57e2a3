"""Commits of API writes to git: one after the other, repeated until git has taken them.

All of one write are noted in the folder before the first is tried, so that what a restart finds noted, or a
write under way whose process has died, is committed then. What was written several times meanwhile is
committed once, as it is then and for the last who wrote it; what a write that died had written, only as long
as it is just that. While somebody else works with git there, a commit is tried again every second; one that
git refuses, at the next change and every few minutes. INVARIANT: no API write waits for more than one commit
that fails: while somebody tries what git did not take before, others leave theirs to be tried after that.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Final

from engine.documents.document import digest_of
from engine.errors import DocumentError, Problem, StorageError
from engine.worktree import git, markers, paths
from engine.worktree.disk import Disk, shown
from engine.worktree.markers import FOLDER

log = logging.getLogger("governance.git")

AGAIN_SECONDS: Final = 1.0
"""Between two tries while git is busy."""
TURN_SECONDS: Final = 0.05
"""Between two looks of who waits to commit, whether git takes commits at all."""
REFUSED_SECONDS: Final = 300.0
"""Between two tries of what git refuses, where nothing is written."""

_MADE: Final = re.compile(r"commit-(\d{20})-")
"""When a note was made, by its name: the newest of a file is of who wrote it last."""


class CommitQueue:
    """The commits of one process. Safe to use from several threads."""

    def __init__(self, root: Path, told: Callable[[int], None] = lambda waiting: None) -> None:
        """`told` hears how many commits wait."""
        self._disk = Disk(root)
        self._told = told
        self._turn = threading.Lock()
        """Of whoever calls git."""
        self._lock = threading.Lock()
        """Of what is kept here; held for moments only."""
        self._numbers = count()
        self._waiting: dict[str, dict[str, str]] = {}
        self._noted: set[tuple[str, str, str]] = set()
        """By `note`, and `add` was not told of it yet."""
        self._failed: dict[str, git.GitFailed] = {}
        """Of those, what git said when they were tried last."""
        self._logged = ""
        self._due = 0.0
        self._repeating: threading.Thread | None = None
        self._stop = threading.Event()

    @property
    def problems(self) -> list[Problem]:
        """What is in force and could not be committed so far."""
        waiting, failed = list(self._waiting.values()), list(self._failed.values())
        if not waiting or not failed:
            return []
        message = f"{_changes(len(waiting))} not committed to git yet: {failed[0]}"
        return [Problem(message, "", "not_committed", shown(waiting[0]["path"]))]

    def start(self) -> None:
        """Commit what was left behind."""
        for name in sorted(self._disk.notes(FOLDER)):
            if name.startswith("commit-") and name.endswith(".json"):
                try:
                    note = json.loads(self._disk.read(f"{FOLDER}/{name}") or b"")
                    self._waiting[name] = {key: str(note[key]) for key in ("path", "author", "message")}
                    if isinstance(only := note.get("only"), str):
                        self._waiting[name]["only"] = only
                except (OSError, ValueError, KeyError, TypeError):
                    self._disk.forget(f"{FOLDER}/{name}")
        with self._turn:
            self._commit_waiting()

    def recover(self) -> None:
        """Note the writes whose process died in their midst. To be called before anybody looks at the folder,
        which completes and forgets them."""
        for intent in markers.read_intents(self._disk):
            with contextlib.suppress(OSError, DocumentError):
                if self._digest(intent.path) == (only := intent.after or ""):
                    place, what = paths.place_of(intent.path), "changed" if only else "deleted"
                    kind = paths.KIND_WORDS.get(place.kind, place.kind)
                    self._note(intent.path, intent.author, f"{kind} {place.document_id}: {what}", only=only)

    def close(self) -> None:
        """What is still waiting stays noted."""
        self._stop.set()
        if (repeating := self._repeating) is not None:
            repeating.join(timeout=10)

    def note(self, root: Path, path: str, author: str, message: str) -> None:
        """What `add` is told later, so that it is not forgotten where nobody comes to that."""
        self._note(path, author, message)
        with self._lock:
            self._noted.add((path, author, message))

    def add(self, root: Path, path: str, author: str, message: str) -> None:
        """Commit one file, or its removal, after those that came before; later where git does not."""
        with self._lock:
            noted = (path, author, message) in self._noted
            self._noted.discard((path, author, message))
        if not noted:
            self._note(path, author, message)
        with self._lock:
            self._due = 0.0
        while not self._turn.acquire(timeout=TURN_SECONDS):
            if self._failed:
                with self._lock:
                    self._plan_next(everything=False)
                return
        try:
            self._commit_waiting()
        finally:
            self._turn.release()

    def _note(self, path: str, author: str, message: str, **more: str) -> None:
        commit = {"path": path, "author": author, "message": message, **more}
        before = (int(made[1]) for each in self._waiting_now() if (made := _MADE.match(each)))
        stamp = max((time.time_ns(), *(each + 1 for each in before)))  # the clock may have been set back
        name = f"commit-{stamp:020}-{os.getpid()}-{next(self._numbers):06}.json"
        with contextlib.suppress(StorageError):  # it is only forgotten at a restart
            self._disk.note(f"{FOLDER}/{name}", json.dumps(commit).encode())
        with self._lock:
            self._waiting[name] = commit

    def _commit_waiting(self, everything: bool = False) -> None:
        """Commit what has not failed yet, up to the first that does, or `everything` as far as it goes. What
        is left is tried again in a thread."""
        for name, commit in sorted(self._waiting_now().items()):
            if everything and self._stop.is_set():
                break
            if name in self._failed and not everything:
                continue
            try:
                if self._is_newest(name, commit["path"]) and self._is_meant(commit):
                    git.commit_file(self._disk.root, commit["path"], commit["author"], commit["message"])
            except (git.GitFailed, OSError, ValueError) as error:
                failed = error if isinstance(error, git.GitFailed) else git.GitFailed(str(error))
                with self._lock:
                    self._failed[name] = failed
                if failed.busy or not everything:
                    break
            else:
                with self._lock:
                    self._failed.pop(name, None)
                    del self._waiting[name]
                self._disk.forget(f"{FOLDER}/{name}")
        with self._lock:
            self._plan_next(everything)

    def _waiting_now(self) -> dict[str, dict[str, str]]:
        with self._lock:
            return dict(self._waiting)

    def _is_newest(self, name: str, path: str) -> bool:
        """What the file is now is of the last who wrote it."""
        return name == max(other for other, each in self._waiting_now().items() if each["path"] == path)

    def _is_meant(self, commit: dict[str, str]) -> bool:
        """Not where another one, such as a node, has changed since what a write that died had written. Raises
        OSError."""
        return "only" not in commit or self._digest(commit["path"]) == commit["only"]

    def _digest(self, path: str) -> str:
        """Of the file as it is now; empty: there is none. Raises OSError."""
        content = self._disk.read(path)
        return "" if content is None else digest_of(content)

    def _plan_next(self, everything: bool) -> None:
        self._told(len(self._waiting))
        if not self._waiting:
            self._logged = ""
            return
        refused = not any(failed.busy for failed in self._failed.values())
        if everything and refused and self._failed.keys() >= self._waiting.keys():
            self._due = time.monotonic() + REFUSED_SECONDS
        if self._failed:
            self._log(next(iter(self._failed.items())), refused)
        if self._repeating is None:
            repeating = threading.Thread(target=self._work, name="policies-commit", daemon=True)
            with contextlib.suppress(RuntimeError):  # there is none to be had: the next change asks again
                repeating.start()
                self._repeating = repeating

    def _log(self, one: tuple[str, git.GitFailed], refused: bool) -> None:
        """Once as long as git says the same."""
        name, failed = one
        if str(failed) == self._logged:
            return
        self._logged = str(failed)
        if refused:
            path = shown(self._waiting[name]["path"])
            log.warning(
                "git did not commit `%s`: %s; it is in force, and the commit is tried again", path, failed
            )
        else:
            waiting = "1 commit waits" if len(self._waiting) == 1 else f"{len(self._waiting)} commits wait"
            log.warning("git is busy, so %s: %s", waiting, failed)

    def _work(self) -> None:
        while not self._stop.wait(AGAIN_SECONDS):
            if time.monotonic() >= self._due:
                with self._turn:
                    self._commit_waiting(everything=True)
            with self._lock:
                if not self._waiting:
                    self._repeating = None
                    return


def _changes(count: int) -> str:
    return "1 change through the API is" if count == 1 else f"{count} changes through the API are"
