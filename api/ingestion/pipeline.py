"""The life of an event, from its body to its answer; every step is a line of this file.

1. `intake.py`: the checks of the contract, and of who may send it; what refuses it here leaves no trace.
   The event is then handed to the writer (`database/writer.py`), which takes it along in its next commit.
2. `prepare` evaluates, before the write lock: the policies are asked what matches (`evaluation.py`).
3. `apply` commits, inside the lock: brings policies, keys, halts and grants to what the database says, and
   per event (`_answer`) finds what is known of it (`known/`), decides (`decide.py`), records (`record.py`,
   `lifecycle.py`) and answers. `Batch` reads what all of them need, and writes all their rows, together.

INVARIANT: an answer is built only from what the same transaction records. A repeated event or tool call gets
the recorded decision, never a second one; only a halt outweighs an old yes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import thread_time
from typing import Final

import msgspec

from api import metrics
from api.caller import Caller
from api.clock import Leaps
from api.database.connection import Database
from api.database.id_index import IdIndex
from api.database.lanes.policy_mark import POLICY_MARK, is_behind
from api.database.lanes.session import Statement
from api.database.table import counter
from api.database.transaction import NotRepeatable, Transaction
from api.ingestion import event as refusals
from api.ingestion.batch import Batch
from api.ingestion.decide import DecidedCall, decide
from api.ingestion.evaluation import Evaluator, PutOff
from api.ingestion.event import Answer, EventRefused, Incoming, Receipt
from api.ingestion.flow import begun, keep_up
from api.ingestion.grants.book import GrantBook
from api.ingestion.grants.cover import candidates
from api.ingestion.known.answers import RecordedAnswers
from api.ingestion.known.lookups import KnownEvent, asked, is_usual, tell
from api.ingestion.known.runs import KnownCalls, KnownRun, KnownRuns
from api.ingestion.lifecycle import may_end, report
from api.ingestion.quotas import PendingQuota, ProcessorTime
from api.ingestion.record import record_call
from api.ingestion.rows import RunValueRow
from api.ingestion.turns import LARGE
from api.store.halts import HaltBook
from engine.matching.ruleset import Ruleset
from engine.model import ToolCall

_encode = msgspec.json.Encoder().encode

_NOTHING: Final[Sequence[RunValueRow]] = ()
_REHEARSED: Final = ToolCall.of(toolName="governance.rehearsal")

PART: Final = 12
"""Events that PostgreSQL is given at once."""


class Ingestion:
    """Implements `writer.Ingest`. `rules` gives the newest ruleset of an organisation; `catch_up` brings the
    rules to at least the given revision before anything is decided; `keeps` is told of bytes that are kept of
    a key beside its events; `frontend` is the address in approval links; `pending` bounds what one key keeps
    waiting for people; `only_bound_keys` refuses events of keys that are bound to no agent; `leaps` knows of
    those of the clock, by which the windows of rate limits are widened."""

    def __init__(
        self,
        store: Database,
        id_index: IdIndex,
        *,
        rules: Callable[[str], Ruleset],
        rules_revision: Callable[[], int],
        rules_mark: Callable[[], int],
        catch_up: Callable[[int], None],
        keys_version: Callable[[], int],
        load_keys: Callable[[], None],
        key_is_active: Callable[[Caller], bool],
        processor_time: ProcessorTime,
        keeps: Callable[[str, int], None],
        frontend: str,
        pending: PendingQuota,
        only_bound_keys: bool = False,
        leaps: Leaps | None = None,
    ) -> None:
        self._store = store
        self._id_index = id_index
        self._rules = rules
        self._rules_revision = rules_revision
        self._rules_mark = rules_mark
        self._catch_up = catch_up
        self._keys_version = keys_version
        self._load_keys = load_keys
        self._key_is_active = key_is_active
        self._only_bound_keys = only_bound_keys
        self._leaps = leaps
        self._keeps = keeps
        self._pending = pending
        self._halts = HaltBook()
        self._answers = RecordedAnswers(self._halts, frontend)
        self._grants = GrantBook()
        self._known_runs = KnownRuns()
        self._known_calls = KnownCalls()
        self.evaluator = Evaluator(rules, self._known_runs, processor_time)
        self.prepare = self.evaluator.prepare

    # For the writer -------------------------------------------------------------------------------

    def look_ups(self, events: Sequence[Incoming]) -> list[Statement]:
        granted = {grant.bucket for event in events for grant in candidates(self._grants, event)}
        return asked(events, granted)

    def is_usual(self, event: Incoming) -> bool:
        return is_usual(event, self._known_runs, self._known_calls)

    def ends_run(self, event: Incoming) -> bool:
        return event.ends_run

    def forget(self) -> None:
        self._known_runs.forget()
        self._known_calls.forget()

    def limited(self, events: Sequence[Incoming]) -> list[bool]:
        self.prepare(events)
        full = self._pending.is_full
        return [
            event.is_limited()
            or (event.is_asked() and (full(event.caller.key_id) or bool(candidates(self._grants, event))))
            for event in events
        ]

    def catch_up(self) -> None:
        mark = self._store.read_here(counter, POLICY_MARK)
        revision = self._store.read_here(counter, "policies")
        if self._is_behind(revision, mark):
            self._catch_up(revision)
        if self._store.read_here(counter, "keys") != self._keys_version():
            self._load_keys()

    def versions(self) -> dict[str, int]:
        return {
            POLICY_MARK: self._rules_mark(),
            "policies": self._rules_revision(),
            "keys": self._keys_version(),
            "halts": self._halts.version,
            "grants": self._grants.version,
        }

    # Commit: inside the lock ----------------------------------------------------------------------

    def apply(
        self, transaction: Transaction, events: Sequence[Incoming], *, repeatable: bool
    ) -> list[Answer | Exception]:
        self._refresh(transaction, repeatable)
        known = self._known_runs, self._known_calls
        batch = Batch.open(self._store, transaction, events, *known, self._id_index, self._leaps)
        # INVARIANT: nothing of this changes inside a transaction.
        active = {event.caller.credential: event.caller for event in events}
        active = {each: caller for each, caller in active.items() if self._key_is_active(caller)}
        rulesets = {each: self._rules(each) for each in batch.organisations}
        answers: dict[int, Answer | Exception] = {}
        in_turn = self.evaluator.in_turn(events)
        together = self._store.is_sqlite or transaction.assumed is not None
        part = len(events) if together else PART
        for start in range(0, len(events), part):
            if start:
                # While these are decided, PostgreSQL writes those before.
                batch.flush_events()
                self._store.push()
            for event in in_turn[start : start + part]:
                answers[id(event)] = (
                    self._in_line(batch, event, rulesets[event.caller.organisation_id])
                    if event.caller.credential in active
                    else EventRefused("unauthenticated", "the API key is not valid any more")
                )
        batch.write()
        transaction.after_commit(lambda: self._committed(transaction, batch))
        return [answers[id(event)] for event in events]

    def rehearse(self, transaction: Transaction) -> None:
        """A job that does what every event needs and leaves nothing: the newest rules decide on a call, and a
        row is put in and taken out again, which the commit writes to disk all the same."""
        if not transaction.bumped:  # by a job of the same transaction, which may yet fail
            self._refresh(transaction, False)
        self._rules("default").evaluate(_REHEARSED)
        transaction.put({"#rehearsal": 1})
        self._store.change("DELETE FROM counters WHERE name = ?", ("#rehearsal",))

    def _committed(self, transaction: Transaction, batch: Batch) -> None:
        tips = {}
        if self._store.is_sqlite:
            if not transaction.runs_changed:
                tips = {each: transaction.tip(each) for each in batch.organisations}
        else:
            self._known_calls.keep(batch.calls.values())
        self._known_runs.keep(batch.learnt, batch.changed, tips)
        metrics.recorded(batch.event_types, batch.statuses, batch.decided)

    def _refresh(self, transaction: Transaction, repeatable: bool) -> None:
        """Bring rules, keys, halts and grants to what the database says now. Reading policies and keys may
        take long, so it is left to the transaction that is not repeatable."""
        revision = transaction.counter("policies")
        new_rules = self._is_behind(revision, transaction.counter(POLICY_MARK))
        new_keys = transaction.counter("keys") != self._keys_version()
        if repeatable and (new_rules or new_keys):
            raise NotRepeatable
        if new_rules:
            self._catch_up(revision)
        if new_keys:
            self._load_keys()
        self._halts.refresh(transaction.counter("halts"))
        self._grants.refresh(transaction.counter("grants"), transaction.at)

    def _is_behind(self, revision: int, mark: int) -> bool:
        """Whether the database has newer policies, or others of the same number."""
        return is_behind((self._rules_revision(), self._rules_mark()), (revision, mark))

    def _in_line(self, batch: Batch, event: Incoming, ruleset: Ruleset) -> Answer | EventRefused | PutOff:
        """One event of a valid key, unless another one that it stands behind is put off."""
        line = event.line
        if line is None:
            return self._answer(batch, event, ruleset)
        answer = PutOff(event) if line.holds(event) else self._answer(batch, event, ruleset)
        line.passed(event, put_off=isinstance(answer, PutOff))
        return answer

    def _answer(self, batch: Batch, event: Incoming, ruleset: Ruleset) -> Answer | EventRefused | PutOff:
        """One event of a valid key: refused, known, put off, or decided and recorded. INVARIANT: what is
        refused or put off changes nothing but what its run has read with the one that started it, and some of
        the approvals that are to end with the run."""
        caller = event.caller
        if self._only_bound_keys and caller.agent_id is None:
            return refusals.unbound_key()
        run = batch.runs.get((caller.organisation_id, event.body.runId))
        if run is not None and run.key_id != caller.key_id:
            return refusals.another_keys(run)
        if (known := batch.known.get(event.event_hash)) is not None:
            return self._compared(batch, event, known, run)
        if run is not None and run.agent_id != event.body.agentId:
            return refusals.another_agents(run)
        call = batch.call(run, event) if run is not None and event.call is not None else None
        if run is None or call is None:
            return self._new(batch, event, run, ruleset)
        if not event.is_same_call(call):
            return refusals.another_call(event)
        return _recorded(batch, event, run, self._answers.repeated(batch, event, run, call))

    # New ------------------------------------------------------------------------------------------

    def _new(
        self, batch: Batch, event: Incoming, known_run: KnownRun | None, ruleset: Ruleset
    ) -> Answer | EventRefused | PutOff:
        """A call, or another event, that nobody has told of before."""
        if (event.call is None or event.parent is not None) and self.evaluator.has_told_enough():
            return PutOff(event)
        if not self._read_whole(batch, event):
            return PutOff(event)
        begun_at = thread_time() if known_run is None and event.parent is not None else None
        run, inherited = (known_run, _NOTHING) if known_run is not None else begun(batch, event, ruleset)
        keep_up(batch, run, event, ruleset)
        inheriting = 0.0 if begun_at is None else thread_time() - begun_at
        outcome = None
        if event.call is not None:
            outcome = self._decide(batch, event, run, ruleset, inheriting)
            if not isinstance(outcome, DecidedCall):
                return outcome
        elif known_run is not None:
            begun_at = thread_time()
            ends = may_end(batch, event, known_run)
            self.evaluator.count(event, thread_time() - begun_at)
            if not ends:
                return PutOff(event)
        values_before = len(batch.value_rows)
        if known_run is None:
            batch.add_run(run, inherited)
        if isinstance(outcome, DecidedCall):
            answer = self._record(batch, event, run, outcome)
        else:
            begun_at = thread_time()
            receipt = report(batch, event, run, ruleset, self._rules_revision(), self._halts)
            self.evaluator.count(event, inheriting + thread_time() - begun_at)
            answer = _recorded(batch, event, run, receipt)
        if len(batch.value_rows) > values_before:
            self._keeps(event.caller.key_id, sum(row.size for row in batch.value_rows[values_before:]))
        return answer

    def _decide(
        self, batch: Batch, event: Incoming, run: KnownRun, ruleset: Ruleset, inheriting: float
    ) -> DecidedCall | EventRefused | PutOff:
        """What becomes of a call; `inheriting` took so long before, which is counted now, since no event is
        put off for what it takes itself."""
        evaluated = self.evaluator.of_commit(batch, event, run, ruleset)
        if inheriting:
            self.evaluator.count(event, inheriting)
        if evaluated is None:
            return PutOff(event)
        halt = self._halts.covering(run.organisation_id, run.agent_id, run.run_id)
        begun_at = thread_time() if self._grants or event.is_limited() else None
        outcome = decide(batch, event, run, evaluated, halt, self._grants)
        if begun_at is not None:
            self.evaluator.counted(event, begun_at)
        asks = outcome.status == "awaiting_approval"
        if asks and not self._pending.may_hold(batch.counts, event.caller.key_id):
            batch.need_answer()  # it may be known already
            return refusals.too_many_pending(self._pending.most)
        return outcome

    def _record(self, batch: Batch, event: Incoming, run: KnownRun, outcome: DecidedCall) -> Answer:
        """A call that is decided now."""
        # To say what its run has read, or when the limits have room again, takes time.
        looks = outcome.status != "allowed" and (outcome.evaluated.memory is not None or event.is_limited())
        begun_at = thread_time() if looks else None
        call = record_call(batch, event, run, batch.next_event, outcome, self._grants)
        if begun_at is not None:
            self.evaluator.counted(event, begun_at)
        receipt = self._answers.receipt(event, call, batch.transaction.positions[call.audit_id])
        if outcome.cover is not None:
            receipt.grantIds = [grant.grant_id for grant in outcome.cover.grants]
        follows = call.approval_id is None and outcome.cover is None
        return _recorded(batch, event, run, receipt, follows=follows)

    def _read_whole(self, batch: Batch, event: Incoming) -> bool:
        """Bring what the runs that an event is about tell of themselves; False: there is no time for that in
        this commit."""
        organisation_id, names = event.caller.organisation_id, (event.body.runId, *event.named_runs)
        runs = [batch.runs.get((organisation_id, name)) for name in names]
        untold = [run for run in runs if run is not None and run.is_untold]
        if untold and self.evaluator.has_told_enough():
            return False
        for run in untold:
            begun_at = thread_time()
            tell(batch.store, run)
            self.evaluator.counted(event, begun_at)
        return True

    # Known already --------------------------------------------------------------------------------

    def _compared(
        self, batch: Batch, event: Incoming, known: KnownEvent, run: KnownRun | None
    ) -> Answer | EventRefused | PutOff:
        """An event of an id that is known, unless it is put off since large bodies take long to compare."""
        if not (known.is_large or len(event.raw) > LARGE):
            return self._answers.answer(batch, event, known, run)
        if self.evaluator.has_told_enough():
            return PutOff(event)
        begun_at = thread_time()
        answer = self._answers.answer(batch, event, known, run)
        self.evaluator.counted(event, begun_at)
        return answer


def _recorded(
    batch: Batch, event: Incoming, run: KnownRun, receipt: Receipt, *, follows: bool = False
) -> Answer:
    """The answer to an event that is kept with it; see `Batch.add_event`."""
    content = _encode(receipt)
    batch.add_event(event, run, content, follows=follows)
    return Answer(content)
