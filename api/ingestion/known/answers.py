"""What is answered to an event, or a call, that was recorded before: what was decided then, never a second
decision; unless a halt outweighs an old yes, or the record does not hold what the row says."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from api.agent_message import refused_message
from api.database.audit_chain import Position
from api.ingestion import event as refusals
from api.ingestion.batch import Batch
from api.ingestion.decide import halted
from api.ingestion.event import Answer, EventRefused, Incoming, Receipt
from api.ingestion.known.lookups import KnownEvent
from api.ingestion.known.runs import KnownRun
from api.ingestion.record import record_doubt, record_repeat
from api.ingestion.rows import CallRow
from api.store.call_facts import completion_of
from api.store.halts import HaltBook
from api.store.runs import COVERED

_encode = msgspec.json.Encoder().encode


class RecordedAnswers:
    """See the module; `halts` are those that last, `frontend` is the address in approval links."""

    def __init__(self, halts: HaltBook, frontend: str) -> None:
        self._halts = halts
        self._approvals_page = f"{frontend}/approvals?approvalId="

    def answer(
        self, batch: Batch, event: Incoming, known: KnownEvent, run: KnownRun | None
    ) -> Answer | EventRefused:
        """The recorded answer, as long as the event is the one that was recorded."""
        if not known.is_of(event, batch.store):
            return refusals.another_event(event)
        call = batch.call(run, event) if run is not None and event.call is not None else None
        if call is not None and run is not None:
            if not event.is_same_call(call):
                return refusals.another_event(event)
            covered = self._halts.covering(run.organisation_id, run.agent_id, run.run_id) is not None
            if covered and call.status == "allowed":
                # The recorded answer says `allowed`; while a halt lasts, nobody gets to act on it.
                return Answer(_encode(self.repeated(batch, event, run, call)), replayed=True)
        if call is None and event.call is not None:
            return refusals.another_event(event)  # somebody has deleted its call
        if call is None:
            return Answer(known.receipt, replayed=True)
        stored = batch.checked(call, known.receipt)
        if stored.doubt is not None:
            return Answer(_encode(self._doubtful(batch, event, call, stored.doubt)), replayed=True)
        if known.receipt:
            return Answer(known.receipt, replayed=True)
        return Answer(_encode(self.receipt(event, call, stored.position)), replayed=True)

    def repeated(self, batch: Batch, event: Incoming, run: KnownRun, call: CallRow) -> Receipt:
        """A call that was reported before, by this event or another: its recorded decision."""
        stored = batch.checked(call)
        if stored.doubt is not None:
            return self._doubtful(batch, event, call, stored.doubt)
        halt = self._halts.covering(run.organisation_id, run.agent_id, run.run_id)
        if halt is None or call.status != "allowed":
            audit_id = record_repeat(batch, event, call, call.status, None)
            position = batch.transaction.positions[audit_id]
            receipt = self.receipt(event, call, position, audit_id=audit_id)
            if COVERED in call.flags:
                receipt.grantIds = batch.grants_of(call)
            if call.status == "allowed" and call.completed_at is not None:
                receipt.completion = completion_of(batch.store, call.call_no)
            return receipt
        # What was recorded stays, and holds again when the halt ends.
        audit_id = record_repeat(batch, event, call, "blocked", halt)
        position = batch.transaction.positions[audit_id]
        return self.receipt(event, call, position, status="blocked", reason=halted(halt), audit_id=audit_id)

    def _doubtful(self, batch: Batch, event: Incoming, call: CallRow, why: str) -> Receipt:
        """A stored decision that is not the one on record: an admin must look, and nobody acts on it."""
        audit_id = record_doubt(batch.transaction, event, call, why)
        position = batch.transaction.positions[audit_id]
        return self.receipt(event, call, position, status="blocked", reason=why, audit_id=audit_id)

    def receipt(
        self,
        event: Incoming,
        call: CallRow,
        position: Position,
        *,
        status: str = "",
        reason: str = "",
        audit_id: str = "",
    ) -> Receipt:
        """The decision on a call as its row has it, unless something is said to outweigh that. The same
        later, unless somebody was asked to decide it."""
        approval_id = call.approval_id
        now, message = status or call.status, ""
        if now != "allowed":
            message = refused_message(call.tool_name, now, reason or call.reason, call.matched, approval_id)
        return Receipt(
            event.body.eventId,
            event.body.runId,
            True,
            now,
            reason or call.current_reason,
            message or UNSET,
            UNSET if approval_id is None else approval_id,
            UNSET if approval_id is None else self._approvals_page + approval_id,
            msgspec.Raw(call.matched),
            UNSET if call.shadow == "[]" else msgspec.Raw(call.shadow),
            call.decided_at,
            call.policy_revision,
            audit_id or call.audit_id,
            *position,
        )
