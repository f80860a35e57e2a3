"""What the log is told of changes that came into force, by files or through the API, and git of the latter.

Decides what is worth a warning: a policy that no longer acts because its file went, or tools and detectors
that are not declared any more. It changes nothing; who commits to git, and when, is not decided here.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from engine.repository.archive import FileChange
from engine.worktree.disk import listed, listed_paths
from engine.worktree.paths import KIND_WORDS, Kind

log = logging.getLogger("governance.policies")

MOST_NAMES: Final = 10
"""More are counted, such as those of the first start."""
MOST_ENDED: Final = 50
Commit = Callable[[Path, str, str, str], object]
"""Called as `commit(root, path, author, message)` after an API write."""
_PLURAL: Final[dict[Kind, str]] = {
    "policy": "policies",
    "preset": "presets",
    "pack": "packs",
    "toolSet": "tool sets",
    "detector": "detectors",
    "settings": "settings",
}


def tell(changes: Sequence[FileChange], revision: int) -> None:
    """One line for each writer, and a warning for the policies that ended with their files."""
    by_files = [change for change in changes if change.source == "file"]
    by_api = [change for change in changes if change.source == "api"]
    for part, writer in ((by_files, "from the policy files"), (by_api, "through the API")):
        if told := _told(part):
            by = f", by {part[0].author}" if part is by_api else ""
            log.info("revision %s is in force, %s%s: %s", revision, writer, by, told)
    if ended := sorted(_name(change) for change in by_files if _ended(change)):
        log.warning(
            "revision %s: the files of policies that were enforced are gone, and with them the policies: %s",
            revision,
            listed(ended, MOST_ENDED),
        )
    if undeclared := sorted(_name(change) for change in by_files if _undeclared(change)):
        log.warning(
            "revision %s: the files of tool sets or detectors are gone, and with them what policies know of "
            "those tools, and alerts: %s; their last versions stay in the archive",
            revision,
            listed(undeclared, MOST_ENDED),
        )


def tell_overwritten(paths: Sequence[str], revision: int) -> None:
    """A warning for files that were brought up to what is in force, although somebody may have meant them."""
    if paths:
        log.warning(
            "this policies folder is of another time than the database, as after a deployment or a copy was "
            "put back, so what revision %s says took the place of files that are older, missing or deleted "
            "by it: %s; if you mean what you had put there, put it there again now",
            revision,
            listed_paths(paths, MOST_NAMES),
        )


def _told(changes: Sequence[FileChange]) -> str:
    kinds: dict[str, list[FileChange]] = {"created": [], "changed": [], "moved": [], "deleted": []}
    for change in changes:
        if change.after is None:
            if not change.moved:  # else its new path says so
                kinds["deleted"].append(change)
        elif change.before is None:
            kinds["created"].append(change)
        elif change.before.digest == change.after.digest:
            kinds["moved"].append(change)
        else:
            kinds["changed"].append(change)
    return "; ".join(f"{what} {_listed(those)}" for what, those in kinds.items() if those)


def _listed(changes: Sequence[FileChange]) -> str:
    if len(changes) <= MOST_NAMES:
        return ", ".join(sorted(map(_name, changes)))
    counts = Counter(change.subject.kind for change in changes)
    return ", ".join(
        f"{counts[kind]} {KIND_WORDS.get(kind, kind) if counts[kind] == 1 else plural}"
        for kind, plural in _PLURAL.items()
        if counts[kind]
    )


def _name(change: FileChange) -> str:
    record = change.subject
    place = "" if record.organisation_id == "default" else f"{record.organisation_id}/"
    kind = "" if record.kind == "policy" else f"{KIND_WORDS.get(record.kind, record.kind)} "
    preset = change.state.get("presetId") if isinstance(change.state, dict) else None
    made_from = f" of preset `{preset}`" if change.source == "api" and preset else ""
    return f"{kind}`{place}{record.document_id}`{made_from}"


def _undeclared(change: FileChange) -> bool:
    return change.after is None and not change.moved and change.subject.kind in ("toolSet", "detector")


def _ended(change: FileChange) -> bool:
    """True for a policy that went, and did more than to be watched, or to allow without a label."""
    state = change.state
    return (
        change.after is None
        and not change.moved
        and isinstance(state, dict)
        and state.get("enabled") is not False
        and state.get("mode") != "shadow"
        and (state.get("action") != "allow" or bool(state.get("labels")))
    )


class ToGit:
    """What the API wrote to a folder: `note` is told of all of one transaction before `commit` is of any."""

    def __init__(self, root: Path, commit: Commit | None, note: Commit | None) -> None:
        self._root = root
        self._commit = commit
        self._note = note

    def note(self, changes: Sequence[FileChange]) -> None:
        """So that a process that ends before it has committed all of them leaves none behind."""
        self._tell(self._note, changes)

    def commit(self, changes: Sequence[FileChange]) -> None:
        self._tell(self._commit, changes)

    def _tell(self, commit: Commit | None, changes: Sequence[FileChange]) -> None:
        if commit is None:
            return
        last = {change.path: change for change in changes if change.source == "api"}
        for change in last.values():
            what = f"version {change.after.version}" if change.after else "deleted"
            kind = KIND_WORDS.get(change.subject.kind, change.subject.kind)
            try:
                commit(self._root, change.path, change.author, f"{kind} {change.subject.document_id}: {what}")
            except Exception:
                log.exception("the commit of `%s` failed; the policy is in force all the same", change.path)
