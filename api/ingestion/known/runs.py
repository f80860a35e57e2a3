"""Runs, and calls whose outcome is to come, as the last transactions of this process left them, so that a
batch need not read them again."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from api.database.audit_chain import Tip
from api.database.transaction import Transaction
from api.ingestion.rows import CallRow, RunRow
from api.store.call_facts import NO_LABELS, facts_of_run
from engine.flow.memory import NO_VALUES, RunMemory, SeenValues
from engine.flow.steps import steps_of

_NO_RUNS: Final[dict[str, KnownRun]] = {}

MOST_REMEMBERED = 10_000
"""Runs of one organisation."""
MOST_CHARACTERS = 8 * 2**20
"""Of what those runs tell of themselves; as objects it takes several times as many bytes."""

OF_A_VALUE: Final = 32

_Told = tuple[str | None, str | None, str | None, str]
_TOLD_NOTHING: Final[_Told] = None, None, None, NO_LABELS

MOST_CALLS = 10_000


class KnownRun(RunRow):
    """A run as known inside a batch; `dirty` ones are written back at the end."""

    is_untold: bool = False
    """It tells more of itself than was read with it. INVARIANT: that is read before it is looked at, changed
    or remembered."""
    new: bool = False
    dirty: bool = False
    known_facts: tuple[_Told, dict[str, Any] | None] | None = None
    """The facts, once they were asked for, with what they were made of."""
    values: SeenValues | None = None
    """What it has seen, once somebody asked."""

    def row(self) -> RunRow:
        return RunRow(*(getattr(self, name) for name in RunRow.__struct_fields__))

    def length(self) -> int:
        """Characters of what it tells of itself; a value that it has seen counts as so many."""
        told = sum(len(text) for text in (self.task, self.model, self.reason, self.agent_context) if text)
        return told if self.values is None else told + OF_A_VALUE * len(self.values)

    @property
    def state(self) -> int:
        """All of it that may change; see `guards.RUN_STATE`."""
        unknown = self.task is self.model is self.reason is self.agent_context is None
        return (self.ended_at is not None) + 2 * (not unknown) + 4 * self.flow

    @property
    def identity(self) -> str:
        """What never changes of it; see `guards._RUNS`."""
        return f"{self.organisation_id} {self.key_id} {self.agent_id} {self.started_at} {self.run_id}"

    def facts(self) -> dict[str, Any] | None:
        """The `run` root of a tool call document; on any thread.

        INVARIANT: facts that one thread works out while another one changes the run are never taken for those
        of the run as it is then.
        """
        told = self.task, self.model, self.agent_context, self.labels
        if told == _TOLD_NOTHING:
            return None
        known = self.known_facts
        if known is None or known[0] != told:
            known = self.known_facts = told, facts_of_run(*told)
        return known[1]

    def memory(self) -> RunMemory:
        """What it went through, for one evaluation; on any thread. INVARIANT: `flow` is read before what it
        counts the changes of, and changes behind it, so that no version is taken for a later one."""
        flow = self.flow
        values = NO_VALUES if self.new and self.task is None and flow == 0 else self.values
        return RunMemory(flow, steps_of(self.steps), values)

    def changed(self) -> None:
        """Its labels, steps or values have become others."""
        self.flow += 1
        self.dirty = True


class KnownRuns:
    """See the module.

    INVARIANT (SQLite): runs change only by batches of events, and each leaves audit records. So while the
    chain of an organisation ends where our last commit left it, its runs here are those of the database. From
    the moment a transaction may change one until it is committed, none is certain. On PostgreSQL none is ever
    certain, and guards check what was `remembered`.
    """

    def __init__(self) -> None:
        self._runs: dict[str, dict[str, KnownRun]] = {}
        self._lengths: dict[str, int] = {}
        """Of the runs of an organisation; one that has changed counts again."""
        self._tips: dict[str, Tip] = {}

    def forget(self) -> None:
        self._runs, self._lengths, self._tips = {}, {}, {}

    def find(self, organisation_id: str, run_id: str) -> KnownRun | None:
        """The run as it was seen last."""
        return self._runs.get(organisation_id, _NO_RUNS).get(run_id)

    def remembered(self, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], KnownRun]:
        """The wanted runs as they were seen last (PostgreSQL); whoever takes them checks that they are still
        so, and changes none."""
        found = {}
        for organisation_id, run_id in wanted:
            run = self.find(organisation_id, run_id)
            if run is not None:
                found[organisation_id, run_id] = run
        return found

    def take(
        self, transaction: Transaction, wanted: Iterable[tuple[str, str]]
    ) -> dict[tuple[str, str], KnownRun]:
        """Those of the wanted runs that are known for certain; the transaction may change them."""
        taken: dict[tuple[str, str], KnownRun] = {}
        certain: dict[str, dict[str, KnownRun]] = {}
        for place in wanted:
            organisation_id, run_id = place
            runs = certain.get(organisation_id)
            if runs is None:
                tip = self._tips.pop(organisation_id, None)
                if tip is None or transaction.tip(organisation_id) != tip:
                    self._runs[organisation_id] = {}
                    self._lengths[organisation_id] = 0
                runs = certain[organisation_id] = self._runs[organisation_id]
            if run_id in runs:
                taken[place] = runs[run_id]
        return taken

    def keep(self, learnt: Sequence[KnownRun], changed: Sequence[KnownRun], tips: Mapping[str, Tip]) -> None:
        """After the commit: the runs read or made, those written, and where the chains end now."""
        for run in changed:
            run.new = run.dirty = False
            run.facts()
        for run in (*learnt, *changed):
            if run.is_untold:
                continue
            runs, length = self._runs.setdefault(run.organisation_id, {}), run.length()
            all_of_them = self._lengths.get(run.organisation_id, 0) + length
            before = runs.get(run.run_id)
            if before is not None and run.values is None and before.state == run.state:
                run.values = before.values
            if len(runs) >= MOST_REMEMBERED or all_of_them > MOST_CHARACTERS:
                runs.clear()
                all_of_them = length
            runs[run.run_id] = run
            self._lengths[run.organisation_id] = all_of_them
        self._tips.update(tips)


class KnownCalls:
    """Calls that are allowed and have no outcome yet (PostgreSQL). What is taken from here may have changed,
    and guards check it."""

    def __init__(self) -> None:
        self._calls: dict[tuple[int, int], CallRow] = {}
        """By run and hash of the call's id; the one that was seen last is at the end."""
        self._keeping = threading.Lock()

    def forget(self) -> None:
        with self._keeping:
            self._calls.clear()

    def find(self, run: KnownRun, call_hash: int) -> CallRow | None:
        return self._calls.get((run.run_no, call_hash))

    def keep(self, calls: Iterable[CallRow]) -> None:
        """After the commit, on any thread: calls that were decided or looked up."""
        with self._keeping:
            for call in calls:
                place = call.run_no, call.call_hash
                self._calls.pop(place, None)
                if call.status == "allowed" and call.completed_at is None:
                    self._calls[place] = replace(call, reason="", matched="", shadow="", facts="")
            while len(self._calls) > MOST_CALLS:
                del self._calls[next(iter(self._calls))]
