"""Whether calls, runs, approvals, events, policy versions, people, keys, webhooks and halts say what the log
says of them.

`told` is given every record of one organisation's log, chain by chain, each oldest first; `problems` then
compares the tables. Calls and events are read along with the chains, in the order in which both were written
(a lane numbers its rows after those of the lanes before), so that a long history needs little memory. What
was written after the comparison began is left to the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

import msgspec

from api.database import audit_chain
from api.database.audit_chain import FIRST_CHAIN
from api.database.connection import Database
from api.database.models import numbers_of
from api.store.webhooks import receiver

PAGE: Final = 1_000
AHEAD: Final = 10_000
LONGEST_REASON: Final = 2_000
"""Characters of a reason that a record holds."""
_decode = msgspec.json.decode

_CALLS: Final = (
    "SELECT c.call_no, c.decided_at, c.audit_id, c.tool_call_id, c.tool_name, c.payload_digest,"
    " c.policy_revision, c.status, c.approval_id, c.action, c.policy_digest, c.reason, c.blocked_reason,"
    " c.matched, c.facts, r.run_id, r.agent_id, r.key_id FROM tool_calls c"
    " LEFT JOIN runs r ON r.run_no = c.run_no"
    " WHERE c.organisation_id = ? AND c.call_no > ? AND c.call_no <= ? ORDER BY c.call_no LIMIT ?"
)
_LAST_CALL: Final = "SELECT MAX(call_no) FROM tool_calls WHERE call_no > ? AND call_no < ?"
_LAST_EVENT: Final = "SELECT MAX(event_no) FROM events WHERE event_no > ? AND event_no < ?"
_EVENTS: Final = (
    "SELECT e.event_no, e.received_at, e.event_id, e.body, r.run_id, r.agent_id, r.key_id FROM events e"
    " LEFT JOIN runs r ON r.run_no = e.run_no"
    " WHERE e.organisation_id = ? AND e.event_no > ? AND e.event_no <= ? ORDER BY e.event_no LIMIT ?"
)
_APPROVALS: Final = (
    "SELECT a.approval_id, a.status, a.actor, a.resolved_by, a.decision_reason, c.status,"
    " a.run_id, a.agent_id, a.tool_call_id, a.tool_name, a.reason FROM approvals a"
    " LEFT JOIN tool_calls c ON c.call_no = a.call_no WHERE a.organisation_id = ?"
)
_VERSIONS: Final = "SELECT policy_id, version, digest FROM policy_versions WHERE organisation_id = ?"
_BLOBS: Final = (
    "SELECT b.digest, b.content FROM policy_versions v JOIN blobs b ON b.digest = v.digest"
    " WHERE v.organisation_id = ?"
)
_USERS: Final = "SELECT user_id, email, role, enabled FROM users WHERE organisation_id = ?"
_KEYS: Final = "SELECT key_id, agent_id, scopes, revoked_at FROM api_keys WHERE organisation_id = ?"
_WEBHOOKS: Final = (
    "SELECT webhook_id, url, events, enabled FROM webhooks WHERE organisation_id = ? AND kind = 'webhook'"
)
_CHANNELS: Final = (
    "SELECT webhook_id, name, events, enabled, config FROM webhooks"
    " WHERE organisation_id = ? AND kind <> 'webhook'"
)
_HALTS: Final = "SELECT halt_id, kind, target, ended_at FROM halts WHERE organisation_id = ?"

_OF_EVENTS: Final = frozenset(("decision", "event", "decision.repeated", "decision.doubtful"))
_TELLING: Final = _OF_EVENTS | {
    *("approval.resolved", "policy.changed", "user.created", "user.updated"),
    *("key.created", "key.revoked", "agent.halted", "agent.resumed"),
    *("webhook.created", "webhook.updated", "webhook.disabled", "webhook.deleted"),
    "channel.changed",
}
"""Types of records that say how something in the tables is."""
_BEGINNING: Final = frozenset(("user.created", "key.created", "agent.halted", "webhook.created"))
"""Those that come before all others about the same thing, whatever the clocks of two nodes said."""

Name = tuple[str, str]
"""What kind of thing, and its id, in the words of a problem."""


class _Along:
    """Rows of a table, taken as the records that were written with them come by: in about the same order."""

    def __init__(self, rows: Iterator[tuple[Any, ...]]) -> None:
        """Each row begins with its number, when it was written, and its key."""
        self._rows = rows
        self._waiting: dict[str, tuple[Any, ...]] = {}
        """Rows that were read and that no record has asked for yet."""

    def take(self, key: str) -> tuple[Any, ...] | None:
        """The row of this key; None when it is gone, or more than `AHEAD` rows behind its record."""
        while key not in self._waiting and len(self._waiting) < AHEAD:
            row = next(self._rows, None)
            if row is None:
                break
            self._waiting[row[2]] = row
        return self._waiting.pop(key, None)

    def finish(self) -> list[tuple[Any, ...]]:
        """All rows that no record has asked for."""
        return [*self._waiting.values(), *self._rows]


class Agreement:
    """One comparison.

    INVARIANT: the tables are read after the log's end was noted and before the log is walked. A thing that no
    record behind that end is about must be what the records say; what one is about has changed meanwhile.
    """

    def __init__(self, store: Database, organisation_id: str) -> None:
        self._store = store
        self._organisation_id = organisation_id
        self._problems: list[str] = []
        self._ends = {
            chain: sequence
            for (name, chain), (sequence, _) in audit_chain.tips(store).items()
            if name == organisation_id
        }
        calls, events = self._spans(_LAST_CALL), self._spans(_LAST_EVENT)
        self._found = self._tables()
        self._calls = _Along(self._pages(_CALLS, calls))
        self._events = _Along(self._pages(_EVENTS, events))
        self._unnoted: set[str] = set()
        """When events were written whose records do not name them."""
        self._later: list[tuple[bool, str, int, int, dict[str, Any]]] = []
        """Records about everything but calls and events, whose order counts across chains."""
        self._wrong_runs: set[str] = set()
        self._said: dict[Name, tuple[Any, ...]] = {}
        """What they say."""
        self._moved: set[Name] = set()
        """What records behind the noted end are about."""

    def _tables(self) -> dict[Name, tuple[Any, ...]]:
        rows, own = self._store.rows, (self._organisation_id,)
        found: dict[Name, tuple[Any, ...]] = {}
        for approval_id, *row in rows(_APPROVALS, own):
            found[("approval", approval_id)] = tuple(row[:5])
            found[("request for approval", approval_id)] = (*row[5:9], row[9][:LONGEST_REASON])
        for webhook_id, url, events, enabled in rows(_WEBHOOKS, own):
            found[("webhook", webhook_id)] = (receiver(url), tuple(_decode(events)), bool(enabled))
        for channel_id, name, events, enabled, config in rows(_CHANNELS, own):
            content = (name, tuple(_decode(events)), bool(enabled), body_digest(config.encode()))
            found[("channel", channel_id)] = content
        for policy_id, version, digest in rows(_VERSIONS, own):
            found[("policy version", f"{policy_id} {version}")] = (digest,)
        for user_id, email, role, enabled in rows(_USERS, own):
            found[("user", user_id)] = (email, role, bool(enabled))
        for key_id, agent_id, scopes, revoked_at in rows(_KEYS, own):
            found[("API key", key_id)] = (agent_id, tuple(_decode(scopes)), revoked_at is not None)
        for halt_id, kind, target, ended_at in rows(_HALTS, own):
            found[("halt", halt_id)] = (kind, target, ended_at is not None)
        return found

    def _spans(self, statement: str) -> list[tuple[int, int]]:
        """The numbers that there are now, as those before the first and the last of each chain's lane."""
        spans = []
        for chain in sorted(self._ends):
            before = numbers_of(chain) - 1
            ((last,),) = self._store.rows(statement, (before, numbers_of(chain + 1)))
            spans.append((before, int(last or before)))
        return spans

    def _pages(self, statement: str, spans: list[tuple[int, int]]) -> Iterator[tuple[Any, ...]]:
        for number, last in spans:
            while rows := self._store.rows(statement, (self._organisation_id, number, last, PAGE)):
                yield from rows
                number = rows[-1][0]

    # The log --------------------------------------------------------------------------------------

    def told(self, row: tuple[Any, ...]) -> None:
        """The next record, as a row in the order of `audit_chain.COLUMNS`."""
        chain, sequence, at, type = row[1], row[2], row[4], row[5]
        if type not in _TELLING:
            return
        record = _decode(row[10])
        if type in _OF_EVENTS:
            self._event_of(record)
            if type == "decision":
                self._decision(record)
        else:
            self._later.append((type not in _BEGINNING, at, chain, sequence, record))

    def _hear(self, record: dict[str, Any]) -> None:
        """A record about anything but a call or an event; earlier ones were heard before."""
        details = record.get("details") or {}
        said: tuple[Any, ...]
        match record["type"]:
            case "approval.resolved":
                status, resolved_by = record["decision"], details.get("resolvedBy")
                reason, call = record.get("reason"), details["toolCallStatus"]
                said = (status, record.get("actor"), resolved_by, reason, call)
                self._say(("approval", details["approvalId"]), said, record)
            case "policy.changed" if details["change"] != "deleted":
                name = ("policy version", f"{details['policyId']} {details['version']}")
                self._say(name, (details["digest"],), record)
            case "user.created":
                said = (details["email"], details["role"], True)
                self._say(("user", details["userId"]), said, record)
            case "user.updated":
                email, role, enabled = self._said.get(("user", details["userId"]), ("", "", True))
                said = (email, details.get("role", role), details.get("enabled", enabled))
                self._say(("user", details["userId"]), said, record)
            case "key.created":
                said = (record.get("agentId"), tuple(details["scopes"]), False)
                self._say(("API key", details["keyId"]), said, record)
            case "key.revoked":
                agent_id, scopes, _ = self._said.get(("API key", details["keyId"]), (None, (), False))
                self._say(("API key", details["keyId"]), (agent_id, scopes, True), record)
            case "webhook.created":
                said = (details["receiver"], tuple(details["events"]), details.get("enabled", True))
                self._say(("webhook", details["webhookId"]), said, record)
            case "webhook.updated":
                place, events, enabled = self._said.get(("webhook", details["webhookId"]), ("", (), True))
                said = (
                    details.get("receiver", place),
                    tuple(details.get("events", events)),
                    details.get("enabled", enabled),
                )
                self._say(("webhook", details["webhookId"]), said, record)
            case "webhook.disabled":
                place, events, _ = self._said.get(("webhook", details["webhookId"]), ("", (), True))
                self._say(("webhook", details["webhookId"]), (place, events, False), record)
            case "webhook.deleted":
                self._say(("webhook", details["webhookId"]), (), record)
                del self._said["webhook", details["webhookId"]]
            case "channel.changed" if details["change"] == "deleted":
                self._say(("channel", details["channelId"]), (), record)
                del self._said["channel", details["channelId"]]
            case "channel.changed":
                said = (details["name"], tuple(details["events"]), True, details["digest"])
                self._say(("channel", details["channelId"]), said, record)
            case "agent.halted" | "agent.resumed":
                target = record.get("agentId") or record.get("runId") or ""
                said = (details["scope"], target, record["type"] == "agent.resumed")
                self._say(("halt", details["haltId"]), said, record)

    def _say(self, name: Name, said: tuple[Any, ...], record: dict[str, Any]) -> None:
        self._said[name] = said
        if record["sequence"] > self._ends.get(record.get("chain", FIRST_CHAIN), 0):
            self._moved.add(name)

    def _decision(self, record: dict[str, Any]) -> None:
        details, audit_id = record["details"], record["auditId"]
        approval_id = details.get("approvalId")
        if approval_id is not None:
            said = ("pending", None, None, None, "awaiting_approval")
            self._say(("approval", approval_id), said, record)
            said = (*(record[name] for name in ("runId", "agentId", "toolCallId", "toolName", "reason")),)
            self._say(("request for approval", approval_id), said, record)
        row = self._calls.take(audit_id)
        call = f"the call `{record['toolCallId']}` of run `{record['runId']}`"
        if row is None:
            self._problems.append(f"{call}, decided by record `{audit_id}`, is gone")
            return
        _, _, _, tool_call_id, tool_name, digest, revision, status, approval, *words, run, agent, key = row
        self._run_of(record, run, agent, key)
        expected = (record["toolCallId"], record["toolName"], record["policyRevision"], approval_id)
        same = (tool_call_id, tool_name, revision, approval) == expected
        same = same and digest.startswith(details["payloadDigest"])
        same = same and (approval_id is not None or status == record["decision"])
        if not same or not _same_words(record, *words):
            self._problems.append(f"{call} says something else than its record `{audit_id}`")

    def _run_of(self, record: dict[str, Any], run_id: Any, agent_id: Any, key_id: Any) -> None:
        """The run that a call or an event belongs to is the agent's and the key's that the record names."""
        said = (record["runId"], record["agentId"], record["actor"])
        if (run_id, agent_id, f"key:{key_id}") != said and record["runId"] not in self._wrong_runs:
            self._wrong_runs.add(record["runId"])
            self._problems.append(
                f"the run `{record['runId']}` is of another agent or API key than record"
                f" `{record['auditId']}` says"
            )

    def _event_of(self, record: dict[str, Any]) -> None:
        """Old events go with time, and a repeated one leaves no row; but one that is there is as it was."""
        details = record.get("details") or {}
        if "bodyDigest" not in details:
            self._unnoted.add(record["at"])  # by a version that did not note it
            return
        row = self._events.take(details["eventId"])
        if row is None:
            return
        self._run_of(record, *row[4:])
        if body_digest(bytes(row[3])) != details["bodyDigest"]:
            self._problems.append(
                f"the body of event `{row[2]}` is not the one of record `{record['auditId']}`"
            )

    # The tables -----------------------------------------------------------------------------------

    def problems(self) -> list[str]:
        """Everything found; asked once, at the end of the log."""
        for *_, record in sorted(self._later, key=lambda heard: heard[:4]):
            self._hear(record)
        for row in self._calls.finish():
            self._problems.append(f"the call `{row[3]}` (record `{row[2]}`) was never decided by this log")
        for row in self._events.finish():
            if row[1] in self._unnoted:
                continue
            self._problems.append(f"the event `{row[2]}` was never recorded by this log")
        for name in sorted((self._found.keys() | self._said.keys()) - self._moved):
            found, said = self._found.get(name), self._said.get(name)
            if found != said:
                self._problems.append(_difference(name, found, said))
        for digest, content in self._store.rows(_BLOBS, (self._organisation_id,)):
            if sha256(bytes(content)).hexdigest() != digest:
                self._problems.append(f"the archived text `{digest[:16]}` of a policy was changed")
        return self._problems


def _same_words(
    record: dict[str, Any],
    action: str,
    policy_digest: str,
    reason: str,
    blocked_reason: str | None,
    matched: str,
    facts: str,
) -> bool:
    """Whether the other columns of a call are what its record holds of them. What an approval was resolved
    with takes the place of the reasons, and is compared there."""
    details, known = record["details"], _decode(facts)
    user, key = known.get("user", {}), known.get("key", {})
    words = "approvalId" in details or (
        reason[:LONGEST_REASON] == record["reason"]
        and blocked_reason == (reason if record["decision"] == "blocked" else None)
    )
    policies = [match["policyId"] for match in _decode(matched)[:50]]
    chain = known.get("delegation", {}).get("chain")
    return words and (
        (action, policy_digest, policies)
        == (details["action"], details["policyDigest"], details["policyIds"])
        and (user.get("id"), user.get("email")) == (record.get("userId"), record.get("userEmail"))
        and (key.get("scopes") or None, chain) == (record.get("keyScopes"), record.get("delegationChain"))
    )


def _difference(name: Name, found: tuple[Any, ...] | None, said: tuple[Any, ...] | None) -> str:
    kind, identifier = name
    if said is None:
        return f"the {kind} `{identifier}` is in the database, but not in the log"
    if found is None:
        return f"the {kind} `{identifier}` is in the log, but gone from the database"
    return f"the {kind} `{identifier}` is {_shown(found)} in the database; the log says {_shown(said)}"


def _shown(values: tuple[Any, ...]) -> str:
    return ", ".join(f"`{value}`" for value in values)


def body_digest(body: bytes) -> str:
    """What a record says of the body of its event."""
    return sha256(body).hexdigest()
