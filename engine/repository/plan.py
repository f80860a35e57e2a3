"""What a difference between disk and archive means, and so what is to be done about it.

Three things are compared for each path: what the disk says, what the archive says is in force, and the merge
base of the two (the baseline). Equal disk and archive: nothing to do. Only the disk left the base: somebody
edited the file, which becomes a version. Only the archive left it: the file is stale and gets the archive's
bytes. Both left it: a conflict, reported, and nothing is overwritten.

It changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

from engine.errors import DocumentError, PolicyFileInvalid, Problem
from engine.repository import consistency
from engine.repository.archive import Archive, FileChange, FileRecord, Records
from engine.repository.baseline import Baseline
from engine.repository.loader import DocumentLoader, Loaded, Put
from engine.repository.revisions import Attribution
from engine.repository.snapshot import Snapshot
from engine.worktree import git_state, markers, paths
from engine.worktree.disk import EVERY, shown
from engine.worktree.journal import Journal, Undo
from engine.worktree.observer import FileState, Observed, Progress
from engine.worktree.paths import Kind, Place, place_of
from engine.worktree.worktree import Worktree

T = TypeVar("T")

Guard = Callable[[Mapping[str, tuple[bytes | None, bytes | None]]], None]
"""Is given what a write would do - path to content before and after, None: no file - and may raise."""

Rehearsed = dict[Hashable, Any]
"""What takes long and was made before the transaction, in which all wait; by all that it depends on."""


@dataclass(slots=True)
class Plan:
    """One transaction of either writer: what is to be done, and then what was done.

    `head` is what is in force, with what was recorded so far on top of it; `undo` is what an API write did to
    files. `observed` is None for an API write, which says nothing about the rest of the folder.
    """

    records: Records
    head: Snapshot
    author: str = ""
    observed: Observed | None = None
    edits: dict[str, Put | None] = field(default_factory=dict)
    stale: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    differing: set[str] = field(default_factory=set)
    """Paths whose file is not what is in force; also those of `edits`, `stale` and `problems`."""
    level: dict[str, str | None] = field(default_factory=dict)
    """Paths whose file is what is in force once this is done, and its digest."""
    changes: list[FileChange] = field(default_factory=list)
    undo: list[Undo] = field(default_factory=list)
    overwritten: list[str] = field(default_factory=list)
    """Paths whose file got what is in force although somebody may have put it there: nothing is known of the
    folder's past, or no other folder follows this history."""
    guard: Guard | None = None
    """Asked before the first file of an API write is touched."""
    overtaken: bool = False
    """Others have committed as well meanwhile."""
    rehearsed: Rehearsed = field(default_factory=dict)
    rehearsal: bool = False
    """It is no transaction: nothing is changed, see `Sync.write`."""

    def is_doubtful(self, archive: Archive) -> bool:
        """Whether a conflict on a view may be one with API writes that came since that was opened."""
        conflict = any(problem.code == "conflict" for problem in self.problems)
        return conflict and archive.view(lambda records: records.head()[0]) != self.head.revision

    def once(self, what: Hashable, make: Callable[[], T]) -> T:
        """What is made, or was in the rehearsal; `what` says all that it depends on."""
        if what not in self.rehearsed:
            self.rehearsed[what] = make()
        found: T = self.rehearsed[what]
        return found


class EditedFile(Exception):
    """Somebody edited the file: their edit becomes a version before ours is made on top of it."""

    def __init__(self, path: str, removed: bool) -> None:
        super().__init__(path)
        self.path = path
        self.removed = removed


class Planner:
    """Compares one folder with one archive."""

    def __init__(
        self, worktree: Worktree, journal: Journal, baseline: Baseline, documents: DocumentLoader
    ) -> None:
        self._worktree = worktree
        self._journal = journal
        self._baseline = baseline
        self._documents = documents

    def compare(self, plan: Plan, progress: Progress | None = None) -> None:
        """Plan what to do about what was observed."""
        observed = plan.observed
        assert observed is not None
        plan.problems += observed.problems
        tools_known = True
        for number, (path, state) in enumerate(observed.disk.items(), 1):
            if progress is not None and number % EVERY == 0:
                progress("checking", number, len(observed.disk))
            current = plan.head.files.get(path)
            if state.digest == (current.digest if current else None):
                plan.level[path] = state.digest
                continue
            plan.differing.add(path)
            if path in self._journal:
                continue
            try:
                if self.classify(plan.records, path, state, current) == "stale":
                    # What cannot be looked at may only seem to be missing.
                    if state.digest is not None or not observed.problems:
                        plan.stale.append(path)
                else:
                    plan.edits[path] = self._put_once(plan, path, state)
            except DocumentError as error:
                plan.problems += error.problems
                tools_known = tools_known and not paths.declares_tools(path)
        if not self._baseline.known:
            self._count_moves(plan)
        if plan.edits and (barred := self._barred(plan, plan.edits)):
            plan.problems += barred
            return
        # That all of a kind is gone is told itself, not by the examples that fail without it.
        emptied = [] if plan.problems else self._refuse_emptied(plan)
        plan.problems += emptied or refuse_write(plan, plan.edits, tools_known)

    def _count_moves(self, plan: Plan) -> None:
        """In a folder of which nothing is known, a file that it lacks is no wish to be rid of a document; but
        where that lies in another file, it has moved there. What the API made of it meanwhile is in nobody's
        way where the file says the same, or names that version - unless that came after they have parted."""
        come = {put.loaded.place: put for put in plan.edits.values() if put is not None}
        for path in tuple(plan.stale):
            old = plan.head.files.get(path)
            if plan.observed is None or old is None or plan.observed.disk[path].digest is not None:
                continue
            put = come.get(Place(old.kind, old.organisation_id, old.document_id))
            if put is None or self._baseline.parted_since(plan.records, plan.records.history(path)):
                continue
            if old.source == "file" or old.digest == put.digest or old.version == put.loaded.declared_version:
                plan.stale.remove(path)
                plan.edits[path] = None

    def _refuse_emptied(self, plan: Plan) -> list[Problem]:
        edits, emptied = _loaded(plan.edits), self._worktree.observer.emptied
        return consistency.refuse_emptied(plan.head, edits) or consistency.refuse_emptied_folders(
            plan.head, edits, emptied
        )

    def edit_of(self, plan: Plan, path: str) -> Put | None:
        """What a person wrote into one file since it was last compared; None when nothing, or it is gone.

        Raises PolicyFileInvalid when it does not load.
        """
        state = self._worktree.observer.now(path)
        current = plan.head.files.get(path)
        if state.digest is None or state.digest == (current.digest if current else None):
            return None
        try:
            if self.classify(plan.records, path, state, current) == "stale":
                return None
            if barred := self._barred(plan, [path]):
                raise PolicyFileInvalid(f"`{shown(path)}` has changed, and {barred[0]}", barred)
            put = self._put_once(plan, path, state)
            problems = refuse_write(plan, {path: put})
        except DocumentError as error:
            put, problems = None, list(error.problems)
        if problems:
            message = f"`{shown(path)}` is not valid on disk; mend the file first: {problems[0]}"
            raise PolicyFileInvalid(message, problems)
        return put

    def _barred(self, plan: Plan, edits: Collection[str]) -> list[Problem]:
        """Why no edit is taken over now, whatever the files say. A policy that git has only not put there yet
        would be out of force."""
        foreign = self._worktree.occupancy.barred(edits) if plan.head.revision else []
        return foreign + git_state.waits(self._worktree.root, edits)

    def is_removal(self, plan: Plan, path: str) -> bool:
        """True when somebody took away the file of a policy in force."""
        if path not in plan.head.files or self._worktree.observer.now(path).digest is not None:
            return False
        return self.classify(plan.records, path, FileState(None), plan.head.files[path]) == "edit"

    def attribution(self, path: str, put: Put | None, authors: Mapping[str, str]) -> Attribution:
        """Who made an edit: an admin through the API that died, or a person in the file."""
        intent = markers.read_intent(self._worktree.disk, path)
        if intent is not None and intent.after == (None if put is None else put.digest):
            return "api", intent.author
        return "file", authors.get(path) or "file"

    def classify(
        self, records: Records, path: str, state: FileState, current: FileRecord | None
    ) -> Literal["stale", "edit"]:
        """What a difference between disk and archive is. Raises DocumentError for a conflict, and for a file
        that has no place: its name may be none that an archive can be asked for."""
        place_of(path)
        now = current.digest if current else None
        if markers.is_failed(self._worktree.disk, path, state.digest):
            return "stale"
        history, known = records.history(path), self._baseline.knows(path)
        past = {None, *(digest for _, digest in history)}
        old, intent = state.digest in past, markers.read_intent(self._worktree.disk, path)
        died = intent is not None and state.digest == intent.after
        if intent is not None and died and intent.before in past:
            # An API write that died before its commit: it is completed, unless others came first.
            return "edit" if now == intent.before else "stale"
        # Where no other folder follows this history, what files said they may say anew.
        alone = bool(history) and not records.shared and records.source(path) == "file"
        if known:
            base, since = self._baseline.digest(path), self._baseline.revision(path)
            # What the archive has said since may be what another process brought this file up to.
            if state.digest == base or any(at > since and digest == state.digest for at, digest in history):
                return "edit" if alone and state.digest is not None else "stale"
            if now == base:
                return "edit"
        elif since := 0 if alone else self._baseline.parted_since(records, history):
            if not old:
                return self._newer(records, path, state, current, since)
        elif died and self._baseline.parted_at is not None:
            return "edit"
        elif self._baseline.followed(path, state.digest) or self._says_anew(state, current, old, alone):
            return "edit"  # also what it said before, if that was put back in a commit that is lost
        if state.digest is not None and old and current is not None and self._documents.is_outdated(current):
            # To bring it up to date would put there what does not load, in the place of what does.
            raise DocumentError([Problem(_SAID_BEFORE, "", "conflict", shown(path))])
        if old or died:
            return "stale"
        put = self._put_of(path, state)
        assert put is not None
        place = put.loaded.place
        if place.kind in ("preset", "pack"):
            return "edit"
        newest = current.version if current else _last_version(records, place)
        declared = put.loaded.declared_version
        parted = not known and self._baseline.parted_at is not None
        # What the API wrote in a commit that the archive has lost; a clone of the folder has no marker.
        lost = not known and declared is not None and declared > newest
        if declared == newest or (lost and (parted or not records.shared)):
            return "edit"
        what = f"is at version {newest} through the API" if current else "was deleted through the API"
        message = (
            f"this file was changed here, but the {_NAMES[place.kind]} {what} since; take over what you need "
            f"and write `version: {newest}` into the file, or undo your changes"
        )
        if parted or lost:
            message += f"; the database is older than this folder, as after a backup was put back{_UNTIL}"
        raise DocumentError([Problem(message, "", "conflict", shown(path))])

    def _says_anew(self, state: FileState, current: FileRecord | None, old: bool, alone: bool) -> bool:
        """Nothing is known of the past of this folder: what files said, files may say anew, also what they
        said before, as when a deployment is put back - unless the folder of another node is the newer."""
        if state.digest is None:
            # A folder that is only read can alone take a file away, and nobody can write it anew.
            return alone and self._worktree.disk.is_read_only()
        return alone if old else current is None or current.source == "file"

    def _newer(
        self, records: Records, path: str, state: FileState, current: FileRecord | None, since: int
    ) -> Literal["edit"]:
        """Of what two nodes still had of commits that the archive has lost, the later version counts. Raises
        DocumentError for all else, also for what somebody has edited since: a file of what was lost names no
        earlier version than it got."""
        if current is not None and current.source == "file" and since == 1:
            put, other = self._put_of(path, state), records.blob(current.digest)
            declared = put and put.loaded.declared_version
            theirs = self._documents.put(path, other, current.digest).loaded.declared_version
            if declared and theirs and declared > theirs >= current.version:
                return "edit"
        what = f"version {current.version} was written" if current else "it was deleted"
        raise DocumentError([Problem(_PARTED.format(what=what), "", "conflict", shown(path))])

    def _put_once(self, plan: Plan, path: str, state: FileState) -> Put | None:
        return plan.once(("put", path, state.digest), lambda: self._put_of(path, state))

    def _put_of(self, path: str, state: FileState) -> Put | None:
        """The edit that a file is; None when it is gone. Raises DocumentError."""
        if state.digest is None:
            return None
        return self._documents.put(path, self._worktree.observer.content(path, state), state.digest)


_SAID_BEFORE: Final = (
    "this file says what it said before, and what it says since in the last good set does not load in this "
    "version; to have it count as it stands, change it, if only by a comment, and start again"
)
_UNTIL: Final = (
    ": until no file is in conflict, none of the newer files is in force, and what they block is allowed"
)
_PARTED: Final = (
    "the database does not know what this file followed, as after a backup was put back, and {what} there "
    "since; keep elsewhere what you need of the file, delete it here, so that what is in force takes its "
    f"place, and write it into that{_UNTIL}"
)
_NAMES: Final[Mapping[Kind, str]] = {
    "policy": "policy",
    "toolSet": "tool set",
    "detector": "detector",
    "settings": "document",
}


def _last_version(records: Records, place: Place) -> int:
    if place.kind == "policy":
        return records.last_version(place.organisation_id, place.document_id)
    return records.last_version_of(place.kind, place.organisation_id, place.document_id)


def refuse_write(plan: Plan, edits: Mapping[str, Put | None], tools_known: bool = True) -> list[Problem]:
    """What is wrong between files once these edits are in; `tools_known`: all sets of tools are good."""
    head, loaded = plan.head, _loaded(edits)
    problems = consistency.refuse_set(head, loaded) + consistency.refuse_unset(head, loaded)
    problems += consistency.refuse_uncompiled(head, loaded)

    def content(path: str) -> bytes:
        put = edits.get(path)
        return plan.records.blob(head.files[path].digest) if put is None else put.content

    def digest(path: str) -> str:
        return (edits.get(path) or head.files[path]).digest

    if tools_known:
        problems += consistency.refuse_examples(head, loaded, content, digest, plan.rehearsed)
    return problems


def _loaded(edits: Mapping[str, Put | None]) -> dict[str, Loaded | None]:
    return {path: None if put is None else put.loaded for path, put in edits.items()}
