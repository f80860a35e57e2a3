"""The policies in force in this process: one reference, swapped when files or other writers change them.

Decides when to look at the disk - when a change has settled, and every 30 seconds in any case - and keeps the
compiled rule sets level with the repository's snapshot. It must not know how a difference is resolved (the
repository does) nor what a match means.

INVARIANT: readers see one whole snapshot with its rule sets, never a mixture.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from engine.conditions.settings import how_to_set, told
from engine.errors import ArchiveUnavailable, DocumentError, EngineError, Problem, StorageError
from engine.gc_pause import gc_paused
from engine.matching.ruleset import Ruleset
from engine.model import Policy
from engine.repository.archive import FileChange
from engine.repository.repository import Repository
from engine.repository.snapshot import Snapshot
from engine.repository.sync import WriteResult
from engine.worktree.markers import Replaced
from engine.worktree.observer import Progress
from engine.worktree.paths import DEFAULT, ours
from engine.worktree.watcher import Watcher

log = logging.getLogger("governance.policies")

T = TypeVar("T")

RESCAN_SECONDS: Final = 30.0
FOLLOW_SECONDS: Final = 5.0
READ_AGAIN: Final = 2000
"""Files of which a rescan reads the content, whatever their times say; the next one reads others."""
GIVES_WAY: Final = 10
"""Rescans that may be missed because changes came in their way."""

PLACES: Final = ("file", "line", "column")
"""Of a problem, each left out where it is not known."""

MOST_TOLD: Final = 100
"""Problems that `health` names."""

Changed = Callable[[Sequence[FileChange]], None]
Failed = Callable[[Sequence[Problem]], None]


@dataclass(frozen=True, slots=True)
class _Live:
    """What one reference holds."""

    snapshot: Snapshot = field(default_factory=Snapshot)
    rulesets: Mapping[str, Ruleset] = field(default_factory=dict)
    empty: Ruleset = field(default_factory=lambda: Ruleset.build(()))
    """Of an organisation that has nothing of its own."""


def _inactive(live: _Live) -> list[dict[str, Any]]:
    return [
        {
            "policyId": policy_id,
            "organisationId": organisation_id,
            "missingSettings": list(rule.lacking),
            "message": f"`{policy_id}` is inactive until {told(rule.lacking)}: "
            + how_to_set(rule.lacking[0], organisation_id),
        }
        for organisation_id, ruleset in sorted(live.rulesets.items())
        for policy_id, rule in ruleset.rules.items()
        if rule.lacking and live.snapshot.of(organisation_id)[policy_id].policy.enabled
    ]


class LivePolicies:
    """The newest snapshot with its compiled rule sets, and the ways to change it. Safe from any thread.

    `on_changed` hears of batches of files that came into force, `on_failed` once of each set of problems.
    `warnings` tells of what else `health` should name, though what the files say is in force.
    """

    def __init__(
        self,
        repository: Repository,
        *,
        on_changed: Changed = lambda changes: None,
        on_failed: Failed = lambda problems: None,
        warnings: Callable[[], Sequence[Problem]] = lambda: (),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.repository = repository
        self.reload_failures = 0
        self._on_changed = on_changed
        self._on_failed = on_failed
        self._warnings = warnings
        self._monotonic = monotonic
        self._live = _Live()
        self._inactive: tuple[_Live, list[dict[str, Any]]] | None = None
        self._swapping = threading.Lock()
        self._compacting: set[str] = set()
        self._reporting = threading.Lock()
        self._reported: tuple[Problem, ...] = ()
        self._warned: set[str] = set()
        self._rescans = 0
        self._rereads = False  # whether somebody wants all files read, whatever their times say
        self._failure: Problem | None = None
        self._watcher = Watcher(repository.root, monotonic)
        self._thread: threading.Thread | None = None

    # ---- reading ---------------------------------------------------------------------------------------

    @property
    def revision(self) -> int:
        """The revision of the snapshot in force."""
        return self._live.snapshot.revision

    @property
    def snapshot(self) -> Snapshot:
        """Policies with their files, presets and packs, as in force."""
        return self._live.snapshot

    def ruleset(self, organisation_id: str) -> Ruleset:
        """The compiled policies of an organisation; an empty set when it has none."""
        live = self._live
        return live.rulesets.get(organisation_id, live.empty)

    def health(self) -> dict[str, Any]:
        """`{revision, count, stale, inactive, errors, warnings}`: stale when the files say what is not in
        force. What was mended is so once the rule sets decide by it, which is therefore looked at last."""
        problems, newest = self.repository.problems, self.repository.snapshot
        live, warnings = self._live, (*self._warnings(), *self.repository.warnings)
        problems = problems or (self._reported if newest is not live.snapshot else ())
        problems = (*([self._failure] if self._failure else self._watcher.silent()), *problems)
        return {
            "revision": live.snapshot.revision,
            "count": live.snapshot.count,
            "stale": bool(problems),
            "inactive": self.inactive()[:MOST_TOLD],
            "errors": [described(problem) for problem in problems[:MOST_TOLD]],
            "warnings": [described(problem) for problem in warnings[:MOST_TOLD]],
        }

    def inactive(self) -> list[dict[str, Any]]:
        """The enabled policies that lack a setting of their organisation, and what to do about each."""
        live = self._live
        if self._inactive is None or self._inactive[0] is not live:
            self._inactive = live, _inactive(live)
        return self._inactive[1]

    def replaced(self) -> list[Replaced]:
        """Files that gave way to what is in force, though nobody knew whether they were meant."""
        return self.repository.sync.current.replaced()

    # ---- writing ---------------------------------------------------------------------------------------

    def write(self, operation: Callable[[Repository], WriteResult[T]]) -> T:
        """Run a write of the repository; returns what is stored now, once the change is committed and in
        force in this process. Raises what the operation does."""
        try:
            return operation(self.repository).stored
        finally:
            self._swap()

    # ---- keeping up ------------------------------------------------------------------------------------

    def start(self, progress: Progress | None = None) -> None:
        """Load what is in force. Raises RefusedToStart."""
        with gc_paused():
            applied = self.repository.start(progress)
            if progress is not None:
                progress("compiling", 0, applied.snapshot.count)
            self._swap()
        self._report(applied.problems)
        self._tell_warnings()
        if applied.changes:
            self._on_changed(applied.changes)

    def catch_up(self, revision: int) -> None:
        """Bring the snapshot to what the archive says, and to at least this revision; raises when it cannot,
        so that nothing is decided. Where it gave way to one of no higher number, files may know more."""
        before = self.snapshot
        try:
            self.repository.follow()
            self._swap()
        except EngineError as error:
            raise StorageError(f"revision {revision} of the policies cannot be loaded: {error}") from error
        if self.snapshot is not before and self.revision <= before.revision:
            self._watcher.tell({""})
        if self.revision < revision:
            raise StorageError(f"revision {revision} of the policies is not there yet")

    def reload(self, hints: Iterable[str] | None = None) -> None:
        """Look at the disk (at all of it without hints) and put into force what is good."""
        for _ in range(10):
            applied = self.repository.apply_files(hints)
            self._swap()
            self._report(applied.problems)
            if applied.changes:
                self._on_changed(applied.changes)
            if not applied.again:
                return
            time.sleep(0.01)

    def look_again(self) -> None:
        """Have all files read anew soon, by the thread that watches them."""
        log.info("the policy files are read anew, as asked")
        self._rereads = True
        self._watcher.tell({""})

    def _swap(self) -> None:
        """Make the rule sets say what the repository's snapshot says."""
        with self._swapping:
            live, snapshot = self._live, self.repository.snapshot
            if snapshot is live.snapshot:
                return
            rulesets: dict[str, Ruleset] = {}
            try:
                owners = {each.organisation_id for each in snapshot.tool_sets.values()}
                for organisation_id in owners | snapshot.policies.keys():
                    rulesets[organisation_id] = self._compiled(live, organisation_id, snapshot)
                empty = live.empty
                if snapshot.tools_of(DEFAULT) != live.snapshot.tools_of(DEFAULT):
                    empty = Ruleset.build((), tools=snapshot.tools_of(DEFAULT))
            except DocumentError:
                log.exception(
                    "revision %s does not compile; the one before stays in force", snapshot.revision
                )
                raise
            self._live = _Live(snapshot, rulesets, empty)
            crowded = [each for each, ruleset in rulesets.items() if ruleset.needs_compaction]
        for organisation_id in crowded:
            self._compact(organisation_id)

    def _compiled(self, live: _Live, organisation_id: str, snapshot: Snapshot) -> Ruleset:
        ruleset, revision = live.rulesets.get(organisation_id), snapshot.revision
        policies, before = snapshot.of(organisation_id), live.snapshot.of(organisation_id)
        tools, settings = snapshot.tools_of(organisation_id), snapshot.settings_of(organisation_id)

        def built() -> Ruleset:
            return Ruleset.build((each.policy for each in policies.values()), revision, tools, settings)

        if ruleset is None or tools != ruleset.tools.sets:
            return built()
        changes: dict[str, Policy | None] = {}
        if before is not policies:
            changes = {key: each.policy for key, each in policies.items() if before.get(key) is not each}
            changes |= dict.fromkeys(before.keys() - policies.keys())
        if settings != ruleset.settings:
            # Whoever reads a setting is compiled anew, in this one step.
            readers = (key for key, rule in ruleset.rules.items() if rule.reads and key not in changes)
            changes |= {key: policies[key].policy for key in readers}
        if len(changes) > len(policies) // 2 + 100:
            return built()
        return ruleset.changed(changes, revision, settings)

    def _compact(self, organisation_id: str) -> None:
        """Rebuild the big index aside, in a thread, and swap it in."""

        def work() -> None:
            try:
                compacted = self.ruleset(organisation_id).compacted()
                with self._swapping:
                    live = self._live
                    current = live.rulesets.get(organisation_id)
                    if current is not None and current.tools is compacted.tools:
                        newer = {**live.rulesets, organisation_id: compacted.following(current)}
                        self._live = _Live(live.snapshot, newer, live.empty)
            except Exception:
                log.exception("the index could not be rebuilt; the old one stays in use")
            finally:
                self._compacting.discard(organisation_id)

        with self._swapping:
            if organisation_id in self._compacting or self._watcher.stopped():
                return
            self._compacting.add(organisation_id)
        threading.Thread(target=work, name="policies-compact", daemon=True).start()

    def _report(self, problems: tuple[Problem, ...]) -> None:
        """Log, count and tell of each set of problems once."""
        with self._reporting:
            if problems == self._reported:
                return
            self._reported = problems
        if not problems:
            log.info("the policy files are good again; revision %s is in force", self.revision)
            return
        self.reload_failures += 1
        log.error(
            "the policy files are not good; revision %s stays in force:\n%s",
            self.revision,
            "\n".join(map(str, problems[:20])),
        )
        self._on_failed(problems)

    def _tell_warnings(self) -> None:
        """Log each once."""
        found = {str(problem) for problem in self.repository.warnings}
        for text in sorted(found - self._warned)[:20]:
            log.warning("%s", text)
        self._warned = found

    # ---- watching --------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Start to watch the folder, in threads that `close` ends."""
        self._watcher.start()
        self._thread = threading.Thread(target=self._work, name="policies-work", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._watcher.stop()
        if self._thread is not None:
            self._thread.join(timeout=10)
            self._watcher.join()
            self._thread = None

    def _work(self) -> None:
        """Wait for changes to settle, for the next rescan, or for other writers."""
        hints: set[str] | None = set()
        rescan = self._monotonic()  # something may have changed before the watching began
        while not self._watcher.stopped():
            try:
                paths = self._watcher.settled(min(FOLLOW_SECONDS, max(0.0, rescan - self._monotonic())))
                if self._watcher.stopped():
                    return
                hints = None if hints is None or any(map(self._unclear, paths)) else hints | paths
                late = self._monotonic() - rescan
                if late < 0 or hints != set():
                    self.repository.follow()
                    self._swap()
                    self.reload(hints)
                    hints = set()
                if (late >= 0 or self._rereads) and self._rescan(late):
                    rescan = self._monotonic() + RESCAN_SECONDS
                self._goes_on()
            except Exception as error:
                self._failed(error)
                self._watcher.wait(1)

    def _failed(self, error: Exception) -> None:
        """Nobody knows now whether what the files say is in force. Told of once while it is the same."""
        why = error if isinstance(error, StorageError) else type(error).__name__
        what = f"looking at the policy files failed ({why}); it is tried again, and the log says more"
        is_told = self._failure is not None and self._failure.message == what
        self._failure = Problem(what, "", "not_looked_at")
        if is_told:
            return
        if isinstance(error, ArchiveUnavailable):
            log.warning("looking at the policy files waits: %s", error.operator_message or error)
        else:
            log.error("looking at the policy files failed; it is tried again", exc_info=error)

    def _goes_on(self) -> None:
        if self._failure is not None:
            log.warning("looking at the policy files goes on")
            self._failure = None

    def _rescan(self, late: float) -> bool:
        """Look at all of the disk for what nothing told of; False when it is to be begun again. A change that
        somebody waits for comes first, unless it is so many seconds `late` because many did."""

        def give_way() -> None:
            if self._watcher.waiting() and late < GIVES_WAY * RESCAN_SECONDS:
                raise _Changed

        rereads, self._rereads = self._rereads, False
        parts = 1 if rereads else len(self.snapshot.files) // READ_AGAIN + 1
        try:
            found = self.repository.differing((self._rescans % parts, parts), give_way)
        except _Changed:
            self._rereads = rereads
            return False
        self._rescans += 1
        if found:
            self._watcher.tell(found)  # so that it settles like any other change
        else:
            self._swap()
            self._report(self.repository.problems)
        self._tell_warnings()
        return True

    def _unclear(self, path: str) -> bool:
        """True for what may be a folder, so that only a look at all of the disk can tell what changed."""
        return not ours(path) and not os.path.isfile(self.repository.root / path)  # noqa: PTH113 - never raises


def described(problem: Problem) -> dict[str, Any]:
    """A problem as `health` tells it."""
    return {key: each for key in PLACES if (each := getattr(problem, key))} | {"message": problem.message}


class _Changed(Exception):
    """A file has changed during a rescan."""
