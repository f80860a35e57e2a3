"""Deciding and recording events, many in one transaction: the heart of the service.

`prepare` runs before the write lock and asks the policies what matches, of many calls in a row, which keeps
what it needs in the processor's caches. `apply` runs inside: it settles what other transactions may have
changed (revision, keys, halts, duplicates, rate counts), decides, and gathers every row - event, tool call,
decision, approval, rate counts, audit record, webhook deliveries - to be written together.

INVARIANT: an answer is built only from what the same transaction records. A repeated event or tool call gets
the recorded decision, never a second one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec import UNSET

from api import metrics
from api.caller import Caller
from api.database.connection import Database
from api.database.id_index import Directory
from api.database.transaction import Again, Transaction
from api.http.problems import ApiError
from api.ingestion.batch import Batch, Known, Memory, Run
from api.ingestion.decide import Decisions
from api.ingestion.event import Answer, Incoming, same_body
from api.ingestion.lifecycle import report
from api.store.halts import HaltBook
from engine.matching.ruleset import Ruleset

_encode = msgspec.json.Encoder().encode

PART = 12
"""Events that PostgreSQL is given at once."""


class Ingestion:
    """Implements `writer.Ingest`. `rules` gives the newest ruleset of an organisation; `catch_up` brings the
    rules to at least the given revision before anything is decided."""

    def __init__(
        self,
        store: Database,
        directory: Directory,
        *,
        rules: Callable[[str], Ruleset],
        rules_revision: Callable[[], int],
        catch_up: Callable[[int], None],
        keys_version: Callable[[], int],
        load_keys: Callable[[], None],
        key_is_active: Callable[[Caller], bool],
        frontend: str,
    ) -> None:
        self._store = store
        self._rules_revision = rules_revision
        self._catch_up = catch_up
        self._keys_version = keys_version
        self._load_keys = load_keys
        self._key_is_active = key_is_active
        self._halts = HaltBook()
        self._decisions = Decisions(rules, self._halts, frontend)
        self._memory = Memory()
        self._directory = directory

    # Before the lock ------------------------------------------------------------------------------

    def prepare(self, events: Sequence[Incoming]) -> None:
        for event in events:
            if event.call is not None and not self._decisions.is_current(event):
                guess = self._memory.guess(event.caller.organisation_id, event.body.runId)
                event.evaluated = self._decisions.evaluate(event, guess)

    # Inside the lock ------------------------------------------------------------------------------

    def apply(
        self, transaction: Transaction, events: Sequence[Incoming], *, repeatable: bool
    ) -> list[Answer | Exception]:
        self._refresh(transaction, repeatable)
        batch = Batch.open(self._store, transaction, events, self._memory, self._directory)
        if self._store.is_sqlite:
            answers = [self._one(batch, event) for event in events]
        else:
            answers = self._in_parts(batch, events)
        batch.write()
        transaction.after_commit(lambda: self._memory.keep(transaction, batch))
        transaction.after_commit(lambda: metrics.recorded(batch.event_types, batch.statuses))
        return answers

    def _in_parts(self, batch: Batch, events: Sequence[Incoming]) -> list[Answer | Exception]:
        """While some are decided, the server writes those before."""
        answers: list[Answer | Exception] = []
        for start in range(0, len(events), PART):
            if start:
                batch.flush_events()
                self._store.push()
            answers += [self._one(batch, event) for event in events[start : start + PART]]
        return answers

    def _refresh(self, transaction: Transaction, repeatable: bool) -> None:
        """Bring rules, keys and halts to what the database says now. Reading policies and keys may take long,
        so it is left to the transaction that is not repeatable."""
        revision = transaction.counter("policies")
        new_rules = revision > self._rules_revision()
        new_keys = transaction.counter("keys") != self._keys_version()
        if repeatable and (new_rules or new_keys):
            raise Again
        if new_rules:
            self._catch_up(revision)
        if new_keys:
            self._load_keys()
        self._halts.refresh(transaction.counter("halts"))

    def _one(self, batch: Batch, event: Incoming) -> Answer | Exception:
        body, organisation_id = event.body, event.caller.organisation_id
        if not self._key_is_active(event.caller):
            return ApiError(
                "unauthenticated",
                "the API key is not valid any more",
                headers={"WWW-Authenticate": 'ApiKey realm="governance"'},
            )
        known = batch.known.get(event.event_hash)
        run = batch.runs.get((organisation_id, body.runId))
        if known is not None:
            return self._repeated(batch, event, known, run)
        existing = None
        if run is None:
            run = batch.new_run(event)
        elif run.agent_id != body.agentId:
            return _another_agents(run)
        elif event.call is not None:
            existing = batch.call(run, event)
            if existing is not None:
                refused = self._decisions.conflict(existing, event)
                if refused is not None:
                    return refused
        event_no = batch.next_event
        batch.next_event += 1
        if event.call is not None:
            receipt = self._decisions.decide(batch, event, run, existing, event_no)
        else:
            receipt = report(batch, event, run, self._rules_revision())
        content = _encode(receipt)
        follows = event.call is not None and existing is None and receipt.approvalId is UNSET
        batch.record(event, event_no, run, content, follows=follows)
        return Answer(content)

    def _repeated(self, batch: Batch, event: Incoming, known: Known, run: Run | None) -> Answer | ApiError:
        """The recorded answer, as long as the event is the one that was recorded."""
        if not _is_same(event, known):
            return _other_event(event)
        existing = batch.call(run, event) if run is not None and event.call is not None else None
        if existing is not None and run is not None:
            if self._decisions.conflict(existing, event) is not None:
                return _other_event(event)
            if self._decisions.halted(existing, run):
                # The recorded answer says `allowed`; while a halt lasts, nobody gets to act on it.
                return Answer(_encode(self._decisions.decide(batch, event, run, existing, 0)), replayed=True)
        if known.receipt:
            return Answer(known.receipt, replayed=True)
        if existing is None:
            return _other_event(event)  # somebody has deleted its call
        return Answer(_encode(self._decisions.recorded(event, existing)), replayed=True)


def _another_agents(run: Run) -> ApiError:
    return ApiError(
        "run_conflict",
        f"the run `{run.run_id}` belongs to another agent; a run has one agent: use another `runId`",
    )


def _is_same(event: Incoming, known: Known) -> bool:
    same_id = (known.organisation_id, known.event_id) == (event.caller.organisation_id, event.body.eventId)
    return same_id and same_body(known.body, event.raw)


def _other_event(event: Incoming) -> ApiError:
    return ApiError(
        "event_id_conflict",
        f"the event `{event.body.eventId}` was sent before with another body, or for another user; use a new"
        " `eventId`",
    )
