"""Deciding and recording events, many in one transaction: the heart of the service.

`prepare` runs before the write lock: it reads the runs that calls belong to and asks the rules what
matches. `apply` runs inside: it settles what other transactions may have changed (revision, keys, halts,
duplicates, rate counts), decides, and gathers every row - event, tool call, decision, approval, rate counts,
audit record, webhook deliveries - to be written together.

INVARIANT: an answer is built only from what the same transaction records. A repeated event or tool call gets
the recorded decision, never a second one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import msgspec

from api import metrics
from api.clock import iso
from api.errors import ApiError
from api.exchange import Caller
from api.store.database import Database
from api.store.halts import HaltBook
from api.store.writer import Transaction
from engine.decision import decide
from engine.model import Decision, Evaluation, Policy, ToolCall
from engine.ratelimit import bucket
from engine.ruleset import Ruleset

_encode = msgspec.json.encode
_decode = msgspec.json.decode
_canonical = msgspec.json.Encoder(order="sorted").encode

EVENT_COLUMNS = (
    "event_no",
    "organisation_id",
    "event_id",
    "event_hash",
    "run_no",
    "event_type",
    "received_at",
    "body",
    "answer",
)
CALL_COLUMNS = (
    "organisation_id",
    "run_no",
    "tool_call_id",
    "event_no",
    "tool_name",
    "payload_digest",
    "status",
    "action",
    "reason",
    "matched",
    "shadow",
    "policy_revision",
    "policy_digest",
    "decided_at",
    "audit_id",
    "approval_id",
    "blocked_reason",
    "facts",
    "flags",
)
APPROVAL_COLUMNS = (
    "approval_id",
    "organisation_id",
    "run_no",
    "run_id",
    "agent_id",
    "call_no",
    "tool_call_id",
    "tool_name",
    "policy_id",
    "policy_name",
    "status",
    "reason",
    "requested_at",
    "expires_at",
)
RUN_COLUMNS = (
    "run_no",
    "organisation_id",
    "run_id",
    "agent_id",
    "status",
    "task",
    "model",
    "reason",
    "agent_context",
    "started_at",
    "ended_at",
    "key_id",
)
HIT_COLUMNS = ("bucket", "at", "expires_at")


class EventBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of POST /v1/events, section 2.4 of the contract. The schema says the same in more words."""

    eventId: str  # noqa: N815
    runId: str  # noqa: N815
    agentId: str  # noqa: N815
    timestamp: str
    eventType: str  # noqa: N815
    status: str | None = None
    metadata: dict[str, Any] | None = None
    organisationId: str | None = None  # noqa: N815


@dataclass(slots=True)
class Incoming:
    """One checked event on its way in. `call` and `digest` are there for `tool.called` only."""

    caller: Caller
    raw: bytes
    body: EventBody
    metadata: dict[str, Any]
    call: ToolCall | None = None
    digest: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    """Verified user and delegation (`user`, `delegation`), as far as there are any."""

    event_hash: int = field(init=False)

    def __post_init__(self) -> None:
        self.event_hash = hash64(self.caller.organisation_id, self.body.eventId)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer as sent. `replayed`: the event was known, and this is its recorded answer."""

    content: bytes
    replayed: bool = False


def without_user_token(raw: bytes) -> bytes:
    """The body to keep of an event that names a user token: the token's text gives way to its sha256.

    INVARIANT: the same body always becomes the same kept body, and a body with another token another one, so
    a repeated event is still told from a changed one. Writing the value anew also drops what an object names
    twice, so that no second copy of a token hides in the bytes.
    """
    value = _decode(raw)
    metadata = value.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("userToken"), str):
        metadata["userToken"] = "sha256:" + sha256(metadata["userToken"].encode()).hexdigest()
    return _canonical(value)


def hash64(organisation_id: str, event_id: str) -> int:
    digest = sha256(f"{organisation_id}\0{event_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def payload_digest(tool_name: str, payload: Any) -> str:
    """What an approval is bound to: the tool and the exact payload, by canonical JSON."""
    return sha256(_canonical([tool_name, payload])).hexdigest()


@dataclass(slots=True)
class _Run:
    """A run as known inside a batch; `dirty` ones are written back at the end."""

    run_no: int
    organisation_id: str
    run_id: str
    agent_id: str
    status: str
    task: str | None
    model: str | None
    reason: str | None
    agent_context: str | None
    started_at: str
    ended_at: str | None
    key_id: str
    new: bool = False
    dirty: bool = False

    def facts(self) -> dict[str, Any] | None:
        """The `run` root of a tool call document."""
        facts: dict[str, Any] = {}
        if self.task is not None:
            facts["task"] = self.task
        if self.model is not None:
            facts["model"] = self.model
        if self.agent_context is not None:
            facts["agentContext"] = _decode(self.agent_context)
        return facts or None


@dataclass(slots=True)
class _Call:
    """A tool call as known inside a batch."""

    call_no: int
    digest: str
    status: str
    answer: dict[str, Any]
    flags: list[str]
    approval_id: str | None
    policy_revision: int
    decided_at: str
    audit_id: str


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What `prepare` found for one event; compared again inside the lock."""

    ruleset: Ruleset
    run_facts: dict[str, Any] | None
    call: ToolCall
    evaluation: Evaluation


@dataclass(slots=True)
class _Batch:
    """Everything gathered while one batch is decided."""

    transaction: Transaction
    runs: dict[tuple[str, str], _Run]
    calls: dict[tuple[int, str], _Call]
    known: dict[int, tuple[str, str, bytes, bytes]]
    next_run: int
    next_event: int
    next_call: int
    counts: dict[str, int] = field(default_factory=dict)
    statuses: list[str] = field(default_factory=list)
    """Of the calls decided for the first time, for the metrics."""
    event_rows: list[tuple[Any, ...]] = field(default_factory=list)
    call_rows: list[tuple[Any, ...]] = field(default_factory=list)
    approval_rows: list[tuple[Any, ...]] = field(default_factory=list)
    hit_rows: list[tuple[Any, ...]] = field(default_factory=list)


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
        self._rules = rules
        self._rules_revision = rules_revision
        self._catch_up = catch_up
        self._keys_version = keys_version
        self._load_keys = load_keys
        self._key_is_active = key_is_active
        self._frontend = frontend
        self._halts = HaltBook()

    # Before the lock ------------------------------------------------------------------------------

    def prepare(self, events: Sequence[Incoming]) -> list[_Prepared | None]:
        with self._store.guarded():
            wanted = {
                (event.caller.organisation_id, event.body.runId) for event in events if event.call is not None
            }
            runs = self._read_runs(wanted)
        prepared: list[_Prepared | None] = []
        for event in events:
            if event.call is None:
                prepared.append(None)
                continue
            run = runs.get((event.caller.organisation_id, event.body.runId))
            prepared.append(self._evaluate(event, run.facts() if run else None))
        return prepared

    def _evaluate(self, event: Incoming, run_facts: dict[str, Any] | None) -> _Prepared:
        assert event.call is not None
        ruleset = self._rules(event.caller.organisation_id)
        call = event.call
        if run_facts is not None:
            call = ToolCall({**call.document, "run": run_facts})
        return _Prepared(ruleset, run_facts, call, ruleset.evaluate(call))

    # Inside the lock ------------------------------------------------------------------------------

    def apply(
        self, transaction: Transaction, events: Sequence[Incoming], prepared: list[_Prepared | None]
    ) -> list[Answer | Exception]:
        self._refresh()
        batch = self._open(transaction, events)
        answers = [self._one(batch, event, ready) for event, ready in zip(events, prepared, strict=True)]
        self._write(batch)
        types = [row[5] for row in batch.event_rows]
        transaction.after_commit(lambda: metrics.recorded(types, batch.statuses))
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

    def _open(self, transaction: Transaction, events: Sequence[Incoming]) -> _Batch:
        hashes = sorted({event.event_hash for event in events})
        marks = ",".join("?" * len(hashes))
        known = {
            row[0]: (row[1], row[2], bytes(row[3]), bytes(row[4]))
            for row in self._store.rows(
                "SELECT event_hash, organisation_id, event_id, body, answer FROM events"
                f" WHERE event_hash IN ({marks})",
                hashes,
            )
        }
        runs = self._read_runs({(event.caller.organisation_id, event.body.runId) for event in events})
        calls = self._read_calls(runs, events)
        tops = self._store.rows(
            "SELECT (SELECT MAX(run_no) FROM runs), (SELECT MAX(event_no) FROM events),"
            " (SELECT MAX(call_no) FROM tool_calls)"
        )[0]
        run_no, event_no, call_no = ((top or 0) + 1 for top in tops)
        return _Batch(transaction, runs, calls, known, run_no, event_no, call_no)

    def _read_runs(self, wanted: set[tuple[str, str]]) -> dict[tuple[str, str], _Run]:
        if not wanted:
            return {}
        ids = sorted({run_id for _, run_id in wanted})
        organisations = sorted({organisation_id for organisation_id, _ in wanted})
        columns = ", ".join(RUN_COLUMNS)
        rows = self._store.rows(
            f"SELECT {columns} FROM runs WHERE organisation_id IN ({','.join('?' * len(organisations))})"
            f" AND run_id IN ({','.join('?' * len(ids))})",
            [*organisations, *ids],
        )
        return {(row[1], row[2]): _Run(*row) for row in rows}

    def _read_calls(
        self, runs: dict[tuple[str, str], _Run], events: Sequence[Incoming]
    ) -> dict[tuple[int, str], _Call]:
        ids = sorted(
            {str(event.metadata["toolCallId"]) for event in events if "toolCallId" in event.metadata}
        )
        numbers = sorted({run.run_no for run in runs.values()})
        if not ids or not numbers:
            return {}
        rows = self._store.rows(
            "SELECT run_no, tool_call_id, call_no, payload_digest, status, reason, approval_id, matched,"
            " shadow, flags, policy_revision, decided_at, audit_id, blocked_reason FROM tool_calls"
            f" WHERE run_no IN ({','.join('?' * len(numbers))})"
            f" AND tool_call_id IN ({','.join('?' * len(ids))})",
            [*numbers, *ids],
        )
        calls: dict[tuple[int, str], _Call] = {}
        for row in rows:
            reason = row[13] if row[4] == "blocked" and row[13] else row[5]
            answer = self._decision_part(row[4], reason, row[6], _decode(row[7]), _decode(row[8]))
            calls[(row[0], row[1])] = _Call(
                row[2], row[3], row[4], answer, _decode(row[9]), row[6], row[10], row[11], row[12]
            )
        return calls

    def _one(self, batch: _Batch, event: Incoming, ready: _Prepared | None) -> Answer | Exception:
        body, organisation_id = event.body, event.caller.organisation_id
        if not self._key_is_active(event.caller):
            return ApiError(
                "unauthenticated",
                "the API key is not valid any more",
                headers={"WWW-Authenticate": 'ApiKey realm="governance"'},
            )
        known = batch.known.get(event.event_hash)
        if known is not None:
            return _repeated(event, known)
        run = batch.runs.get((organisation_id, body.runId))
        if run is not None and run.agent_id != body.agentId:
            return ApiError(
                "run_conflict",
                f"the run `{body.runId}` belongs to another agent; a run has one agent: use another `runId`",
            )
        if event.call is not None:
            existing = batch.calls.get((run.run_no, event.metadata["toolCallId"])) if run else None
            if existing is not None and existing.digest != event.digest:
                return ApiError(
                    "tool_call_conflict",
                    f"the tool call `{event.metadata['toolCallId']}` of this run was reported with another"
                    " tool or payload; a changed call needs a new `toolCallId`",
                )
        if run is None:
            run = self._new_run(batch, event)
        event_no = batch.next_event
        batch.next_event += 1
        if event.call is not None and ready is not None:
            receipt = self._tool_called(batch, event, ready, run, event_no)
        else:
            receipt = self._reported(batch, event, run)
        answer = {"eventId": body.eventId, "runId": body.runId, "processed": True, **receipt}
        content = _encode(answer)
        batch.event_rows.append(
            (
                event_no,
                organisation_id,
                body.eventId,
                event.event_hash,
                run.run_no,
                body.eventType,
                batch.transaction.at,
                event.raw,
                content,
            )
        )
        batch.known[event.event_hash] = (organisation_id, body.eventId, event.raw, content)
        return Answer(content)

    # Tool calls -----------------------------------------------------------------------------------

    def _tool_called(
        self, batch: _Batch, event: Incoming, ready: _Prepared, run: _Run, event_no: int
    ) -> dict[str, Any]:
        transaction, body = batch.transaction, event.body
        organisation_id = event.caller.organisation_id
        tool_call_id = str(event.metadata["toolCallId"])
        existing = batch.calls.get((run.run_no, tool_call_id))
        halt = self._halts.covering(organisation_id, run.agent_id, run.run_id)
        if existing is not None:
            repeated = existing.answer
            details = {"decisionAuditId": existing.audit_id}
            if halt is not None and repeated["toolCallStatus"] == "allowed":
                # A halt outweighs an old yes. What was recorded stays, and holds again when the halt ends.
                repeated = {**repeated, "toolCallStatus": "blocked", "reason": _halted(halt)}
                details["haltId"] = halt["haltId"]
            audit_id = transaction.audit(
                organisation_id,
                "decision.repeated",
                **self._audit_fields(event, repeated["toolCallStatus"]),
                policyRevision=existing.policy_revision,
                details=details,
            )
            return {
                **repeated,
                "decidedAt": existing.decided_at,
                "policyRevision": existing.policy_revision,
                "auditId": audit_id,
            }
        ruleset = self._rules(organisation_id)
        run_facts = run.facts()
        if ready.ruleset is not ruleset or ready.run_facts != run_facts:
            ready = self._evaluate(event, run_facts)
        decision = self._decide(batch, ready)
        status, reason = decision.status, decision.reason
        if halt is not None:
            status, reason = "blocked", _halted(halt)
        elif status != "blocked":
            self._count(batch, ready.call, decision.counted)
        matched = [_match_json(match) for match in decision.matched]
        shadow = [_match_json(match) for match in decision.shadow]
        flags = ["after_run_ended"] if run.status != "running" else []
        approval_id = transaction.ids("apr") if status == "awaiting_approval" else None
        audit_id = transaction.audit(
            organisation_id,
            "decision",
            **self._audit_fields(event, status),
            reason=reason[:2_000],
            policyRevision=ruleset.revision,
            details={
                "action": "block" if halt is not None else decision.action,
                "policyIds": [match.policy.policy_id for match in decision.matched][:50],
                "policyDigest": ruleset.digest,
                "payloadDigest": event.digest,
                **({"approvalId": approval_id} if approval_id else {}),
                **({"haltId": halt["haltId"]} if halt is not None else {}),
                **({"flags": flags} if flags else {}),
            },
        )
        call_no = batch.next_call
        batch.next_call += 1
        if approval_id is not None:
            self._ask(batch, event, run, decision, approval_id, call_no)
        blocked_reason = reason if status == "blocked" else None
        batch.call_rows.append(
            (
                organisation_id,
                run.run_no,
                tool_call_id,
                event_no,
                event.metadata["toolName"],
                event.digest,
                status,
                "block" if halt is not None else decision.action,
                reason,
                _encode(matched).decode(),
                _encode(shadow).decode(),
                ruleset.revision,
                ruleset.digest,
                transaction.at,
                audit_id,
                approval_id,
                blocked_reason,
                _encode(self._recorded_facts(ready.call)).decode(),
                _encode(flags).decode(),
            )
        )
        answer = self._decision_part(status, reason, approval_id, matched, shadow)
        batch.calls[(run.run_no, tool_call_id)] = _Call(
            call_no,
            event.digest,
            status,
            answer,
            flags,
            approval_id,
            ruleset.revision,
            transaction.at,
            audit_id,
        )
        batch.statuses.append(status)
        self._tell(batch, event, status, decision, reason)
        transaction.publish(organisation_id, "run", body.runId)
        transaction.publish(
            organisation_id,
            "decision",
            tool_call_id,
            runId=body.runId,
            agentId=body.agentId,
            toolName=event.metadata["toolName"],
            toolCallStatus=status,
            reason=reason,
        )
        return {
            **answer,
            "decidedAt": transaction.at,
            "policyRevision": ruleset.revision,
            "auditId": audit_id,
        }

    def _decide(self, batch: _Batch, ready: _Prepared) -> Decision:
        def over_limit(policy: Policy) -> bool:
            assert policy.rate_limit is not None
            return self._counted(batch, policy, ready.call)[1] >= policy.rate_limit.limit

        return decide(ready.evaluation, over_limit)

    def _counted(self, batch: _Batch, policy: Policy, call: ToolCall) -> tuple[str, int]:
        """The bucket of a call under a rate-limited policy, and how many calls count in its window now."""
        limit = policy.rate_limit
        assert limit is not None
        key = bucket(policy, call)
        if key not in batch.counts:
            batch.counts[key] = self._store.rows(
                "SELECT COUNT(*) FROM rate_hits WHERE bucket = ? AND at > ?",
                (key, batch.transaction.now - limit.window_seconds),
            )[0][0]
        return key, batch.counts[key]

    def _count(self, batch: _Batch, call: ToolCall, counted: Sequence[Policy]) -> None:
        now = batch.transaction.now
        for policy in counted:
            assert policy.rate_limit is not None
            key, count = self._counted(batch, policy, call)
            batch.counts[key] = count + 1
            batch.hit_rows.append((key, now, now + policy.rate_limit.window_seconds))

    def _ask(
        self,
        batch: _Batch,
        event: Incoming,
        run: _Run,
        decision: Decision,
        approval_id: str,
        call_no: int,
    ) -> None:
        """One approval for the call, on behalf of all policies that ask for one."""
        transaction, organisation_id = batch.transaction, event.caller.organisation_id
        asking = [match.policy for match in decision.matched if match.policy.action == "require_approval"]
        limits = [
            policy.approval_expires_after_seconds
            for policy in asking
            if policy.approval_expires_after_seconds is not None
        ]
        expires_at = iso(transaction.now + min(limits)) if limits else None
        first = asking[0]
        tool_call_id, tool_name = event.metadata["toolCallId"], event.metadata["toolName"]
        batch.approval_rows.append(
            (
                approval_id,
                organisation_id,
                run.run_no,
                run.run_id,
                run.agent_id,
                call_no,
                tool_call_id,
                tool_name,
                first.policy_id,
                first.name,
                "pending",
                decision.reason,
                transaction.at,
                expires_at,
            )
        )
        transaction.notify(
            organisation_id,
            "approval.requested",
            {
                "approvalId": approval_id,
                "runId": run.run_id,
                "toolCallId": tool_call_id,
                "toolName": tool_name,
                "policyName": first.name,
                "agentId": run.agent_id,
            },
        )
        transaction.publish(organisation_id, "approval", approval_id, status="pending", runId=run.run_id)

    def _tell(self, batch: _Batch, event: Incoming, status: str, decision: Decision, reason: str) -> None:
        warned = status == "allowed" and decision.action == "warn"
        if status != "blocked" and not warned:
            return
        names = [match.policy.name for match in decision.matched if match.policy.action == decision.action]
        batch.transaction.notify(
            event.caller.organisation_id,
            "tool.warned" if warned else "tool.blocked",
            {
                "runId": event.body.runId,
                "toolCallId": event.metadata["toolCallId"],
                "toolName": event.metadata["toolName"],
                "agentId": event.body.agentId,
                "policyName": names[0] if names else "",
                "reason": reason,
            },
        )

    # Other events ---------------------------------------------------------------------------------

    def _reported(self, batch: _Batch, event: Incoming, run: _Run) -> dict[str, Any]:
        """Everything but `tool.called`: recorded, and its effect on the run or call; never a decision."""
        transaction, body, metadata = batch.transaction, event.body, event.metadata
        organisation_id = event.caller.organisation_id
        details: dict[str, Any] = {"eventType": body.eventType}
        match body.eventType:
            case "run.started":
                self._start(run, event)
            case "run.completed" | "run.failed":
                if run.status == "running":
                    run.status = body.eventType.removeprefix("run.")
                    run.ended_at, run.dirty = transaction.at, True
                    transaction.notify(
                        organisation_id,
                        body.eventType,
                        {"runId": run.run_id, "agentId": run.agent_id, "status": run.status},
                    )
                if metadata.get("cancelApprovals") is True:
                    details["cancelApprovals"] = True
                    self._flush_calls(batch)
                    from api.store import approvals

                    approvals.cancel_run(transaction, organisation_id, run.run_no, f"run {run.status}")
                    self._forget_calls(batch, run)
            case "tool.completed" | "tool.failed":
                details["toolCallId"] = metadata["toolCallId"]
                if gap := self._completed(batch, event, run):
                    details["enforcementGap"] = gap
        revision = self._rules_revision()
        audit_id = transaction.audit(
            organisation_id,
            "event",
            agentId=body.agentId,
            runId=body.runId,
            toolCallId=metadata.get("toolCallId"),
            actor=event.caller.actor,
            details=details,
        )
        transaction.publish(organisation_id, "run", body.runId)
        return {"decidedAt": transaction.at, "policyRevision": revision, "auditId": audit_id}

    def _start(self, run: _Run, event: Incoming) -> None:
        """The first `run.started` gives the run's facts; a later one cannot change what policies saw."""
        if any(value is not None for value in (run.task, run.model, run.reason, run.agent_context)):
            return
        metadata = event.metadata
        context = metadata.get("agentContext")
        run.task, run.model = metadata.get("task"), metadata.get("model")
        run.reason = metadata.get("reason")
        run.agent_context = _encode(context).decode() if context is not None else None
        run.dirty = True

    def _completed(self, batch: _Batch, event: Incoming, run: _Run) -> str | None:
        """Record the outcome; returns the enforcement gap it reveals: a call that ran though it must not."""
        metadata, transaction = event.metadata, batch.transaction
        organisation_id = event.caller.organisation_id
        call = batch.calls.get((run.run_no, metadata["toolCallId"]))
        gap = None
        if call is None:
            gap = "the tool call was never reported before it ran"
        elif call.status == "blocked":
            gap = "the tool call ran although it was blocked"
        elif call.status == "awaiting_approval":
            gap = "the tool call ran before its approval was resolved"
        elif "inputPayload" in metadata:
            ran = payload_digest(
                str(metadata.get("toolName", self._tool_name(batch, call))), metadata["inputPayload"]
            )
            if ran != call.digest:
                gap = "the tool call ran with another payload than the one decided on"
        if call is not None:
            if gap is not None and "enforcement_gap" not in call.flags:
                call.flags.append("enforcement_gap")
            self._flush_calls(batch)
            self._store.rows_changed(
                "UPDATE tool_calls SET completed_at = ?, completion = ?, output = ?, flags = ?"
                " WHERE call_no = ?",
                (
                    transaction.at,
                    event.body.eventType.removeprefix("tool."),
                    _encode(metadata["outputPayload"]).decode() if "outputPayload" in metadata else None,
                    _encode(call.flags).decode(),
                    call.call_no,
                ),
            )
        if gap is not None:
            transaction.audit(
                organisation_id,
                "enforcement.gap",
                agentId=run.agent_id,
                runId=run.run_id,
                toolCallId=metadata["toolCallId"],
                actor=event.caller.actor,
                reason=gap,
            )
            transaction.notify(
                organisation_id,
                "enforcement.gap",
                {
                    "runId": run.run_id,
                    "toolCallId": metadata["toolCallId"],
                    "agentId": run.agent_id,
                    "reason": gap,
                },
            )
        return gap

    def _tool_name(self, batch: _Batch, call: _Call) -> str:
        self._flush_calls(batch)
        return str(
            self._store.rows("SELECT tool_name FROM tool_calls WHERE call_no = ?", (call.call_no,))[0][0]
        )

    # Rows -----------------------------------------------------------------------------------------

    def _new_run(self, batch: _Batch, event: Incoming) -> _Run:
        run = _Run(
            batch.next_run,
            event.caller.organisation_id,
            event.body.runId,
            event.body.agentId,
            "running",
            None,
            None,
            None,
            None,
            batch.transaction.at,
            None,
            event.caller.key_id,
            new=True,
        )
        batch.next_run += 1
        batch.runs[(run.organisation_id, run.run_id)] = run
        return run

    def _flush_calls(self, batch: _Batch) -> None:
        """Write calls and approvals gathered so far, so that statements can see them."""
        self._store.insert_many("tool_calls", ("call_no", *CALL_COLUMNS), _numbered(batch))
        self._store.insert_many("approvals", APPROVAL_COLUMNS, batch.approval_rows)
        batch.call_rows, batch.approval_rows = [], []

    def _forget_calls(self, batch: _Batch, run: _Run) -> None:
        """Calls of a run whose approvals changed underneath are read again when needed."""
        ids = [tool_call_id for run_no, tool_call_id in batch.calls if run_no == run.run_no]
        for tool_call_id in ids:
            status = self._store.rows(
                "SELECT status, blocked_reason FROM tool_calls WHERE run_no = ? AND tool_call_id = ?",
                (run.run_no, tool_call_id),
            )[0]
            call = batch.calls[(run.run_no, tool_call_id)]
            if status[0] != call.status:
                call.status = status[0]
                call.answer = {**call.answer, "toolCallStatus": status[0], "reason": status[1]}

    def _write(self, batch: _Batch) -> None:
        new = [run for run in batch.runs.values() if run.new]
        self._store.insert_many("runs", RUN_COLUMNS, [_run_row(run) for run in new])
        for run in batch.runs.values():
            if run.dirty and not run.new:
                self._store.rows_changed(
                    "UPDATE runs SET status = ?, task = ?, model = ?, reason = ?, agent_context = ?,"
                    " ended_at = ? WHERE run_no = ?",
                    (
                        run.status,
                        run.task,
                        run.model,
                        run.reason,
                        run.agent_context,
                        run.ended_at,
                        run.run_no,
                    ),
                )
        self._store.insert_many("events", EVENT_COLUMNS, batch.event_rows)
        self._flush_calls(batch)
        self._store.insert_many("rate_hits", HIT_COLUMNS, batch.hit_rows)

    # Shapes ---------------------------------------------------------------------------------------

    def _decision_part(
        self,
        status: str,
        reason: str,
        approval_id: str | None,
        matched: list[dict[str, Any]],
        shadow: list[dict[str, Any]],
    ) -> dict[str, Any]:
        answer: dict[str, Any] = {"toolCallStatus": status, "reason": reason}
        if approval_id is not None:
            answer["approvalId"] = approval_id
            answer["approvalUrl"] = f"{self._frontend}/approvals?approvalId={approval_id}"
        answer["matchedPolicies"] = matched
        if shadow:
            answer["shadowPolicies"] = shadow
        return answer

    def _audit_fields(self, event: Incoming, status: str) -> dict[str, Any]:
        user = event.facts.get("user")
        delegation = event.facts.get("delegation")
        return {
            "actor": event.caller.actor,
            "agentId": event.body.agentId,
            "runId": event.body.runId,
            "toolCallId": event.metadata["toolCallId"],
            "toolName": event.metadata["toolName"],
            "userId": user["id"] if user else event.caller.user_id,
            "delegationChain": delegation["chain"] if delegation else None,
            "decision": status,
        }

    def _recorded_facts(self, call: ToolCall) -> dict[str, Any]:
        """What the decision saw beside the payload, which the event itself holds."""
        skipped = ("toolName", "inputPayload", "agentId", "runId", "toolCallId")
        return {root: value for root, value in call.document.items() if root not in skipped}


def _halted(halt: dict[str, Any]) -> str:
    return f"halted by {halt['createdBy']}: {halt['reason']}"


def _match_json(match: Any) -> dict[str, Any]:
    policy = match.policy
    return {
        "policyId": policy.policy_id,
        "policyName": policy.name,
        "action": policy.action,
        "reason": match.reason,
    }


def _repeated(event: Incoming, known: tuple[str, str, bytes, bytes]) -> Answer | ApiError:
    organisation_id, event_id, raw, content = known
    same = raw == event.raw or _canonical(_decode(raw)) == _canonical(_decode(event.raw))
    if (organisation_id, event_id) != (event.caller.organisation_id, event.body.eventId) or not same:
        return ApiError(
            "event_id_conflict",
            f"the event `{event.body.eventId}` was sent before with another body; use a new `eventId`",
        )
    return Answer(content, replayed=True)


def _run_row(run: _Run) -> tuple[Any, ...]:
    return tuple(getattr(run, column) for column in RUN_COLUMNS)


def _numbered(batch: _Batch) -> list[tuple[Any, ...]]:
    first = batch.next_call - len(batch.call_rows)
    return [(first + index, *row) for index, row in enumerate(batch.call_rows)]
