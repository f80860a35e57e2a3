"""Deciding and recording events, many in one transaction: the heart of the service.

`prepare` runs before the write lock and asks the policies what matches. `apply` runs inside: it settles what
other transactions may have changed (revision, keys, halts, duplicates, rate counts), decides, and gathers
every row - event, tool call, decision, approval, rate counts, audit record, webhook deliveries - to be
written together.

INVARIANT: an answer is built only from what the same transaction records. A repeated event or tool call gets
the recorded decision, never a second one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from api import metrics
from api.errors import ApiError
from api.exchange import Caller
from api.store.batch import Batch, Known, Run
from api.store.database import Database
from api.store.decisions import Decisions, Evaluated
from api.store.halts import HaltBook
from api.store.incoming import Answer, Incoming, same_body
from api.store.reports import report
from api.store.writer import Transaction
from engine.ruleset import Ruleset

_encode = msgspec.json.encode

MOST_FACTS = 10_000
"""Runs whose facts are remembered between batches."""


class Ingestion:
    """Implements `writer.Ingest`. `rules` gives the newest ruleset of an organisation; `catch_up` brings the
    rules to at least the given revision before anything is decided."""

    def __init__(
        self,
        store: Database,
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
        self._facts: dict[tuple[str, str], dict[str, Any]] = {}
        """What runs are about, as far as they said so, as of the last batch that saw them: a guess that
        `apply` compares with the truth."""

    # Before the lock ------------------------------------------------------------------------------

    def prepare(self, events: Sequence[Incoming]) -> list[Evaluated | None]:
        evaluate, facts = self._decisions.evaluate, self._facts
        return [
            None
            if event.call is None
            else evaluate(event, facts.get((event.caller.organisation_id, event.body.runId)))
            for event in events
        ]

    # Inside the lock ------------------------------------------------------------------------------

    def apply(
        self, transaction: Transaction, events: Sequence[Incoming], prepared: list[Evaluated | None]
    ) -> list[Answer | Exception]:
        self._refresh()
        batch = Batch.open(self._store, transaction, events)
        answers = [self._one(batch, event, ready) for event, ready in zip(events, prepared, strict=True)]
        batch.write()
        self._remember(batch)
        transaction.after_commit(lambda: metrics.recorded(batch.event_types, batch.statuses))
        return answers

    def _refresh(self) -> None:
        """Bring rules, keys and halts to what the database says now."""
        counters = dict(self._store.rows("SELECT name, value FROM counters"))
        revision = counters.get("policies", 0)
        if revision > self._rules_revision():
            self._catch_up(revision)
        if counters.get("keys", 0) != self._keys_version():
            self._load_keys()
        self._halts.refresh(counters.get("halts", 0))

    def _remember(self, batch: Batch) -> None:
        for place, run in batch.runs.items():
            facts = run.facts()
            if facts is not None:
                if len(self._facts) >= MOST_FACTS:
                    self._facts.clear()
                self._facts[place] = facts

    def _one(self, batch: Batch, event: Incoming, ready: Evaluated | None) -> Answer | Exception:
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
            answer = _repeated(event, known)
            if isinstance(answer, ApiError) or ready is None or run is None:
                return answer
            if self._decisions.conflict(batch, event, run) is not None:
                return _other_event(event)
            if not self._decisions.halted(batch, event, run):
                return answer
            # The recorded answer says `allowed`; while a halt lasts, nobody gets to act on it.
            receipt = self._decisions.decide(batch, event, ready, run, 0)
            return Answer(_receipt(event, receipt), replayed=True)
        if run is not None:
            refused = self._refused(batch, event, run)
            if refused is not None:
                return refused
        else:
            run = batch.new_run(event)
        event_no = batch.next_event
        batch.next_event += 1
        if ready is not None:
            receipt = self._decisions.decide(batch, event, ready, run, event_no)
        else:
            receipt = report(batch, event, run, self._rules_revision())
        content = _receipt(event, receipt)
        batch.record(event, event_no, run, content)
        return Answer(content)

    def _refused(self, batch: Batch, event: Incoming, run: Run) -> ApiError | None:
        if run.agent_id != event.body.agentId:
            return ApiError(
                "run_conflict",
                f"the run `{run.run_id}` belongs to another agent; a run has one agent: use another `runId`",
            )
        return self._decisions.conflict(batch, event, run) if event.call is not None else None


def _repeated(event: Incoming, known: Known) -> Answer | ApiError:
    same_id = (known.organisation_id, known.event_id) == (event.caller.organisation_id, event.body.eventId)
    if not same_id or not same_body(known.body, event.raw):
        return _other_event(event)
    return Answer(known.answer, replayed=True)


def _other_event(event: Incoming) -> ApiError:
    return ApiError(
        "event_id_conflict",
        f"the event `{event.body.eventId}` was sent before with another body, or for another user; use a new"
        " `eventId`",
    )


def _receipt(event: Incoming, receipt: Mapping[str, Any]) -> bytes:
    body = event.body
    return _encode({"eventId": body.eventId, "runId": body.runId, "processed": True, **receipt})
