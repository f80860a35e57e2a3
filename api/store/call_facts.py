"""What the decision on a call saw beside its payload, as its row keeps it: user, delegation, key, the agent's
words, facts of the run.

The facts of a run are the same for each of its calls, so they are kept once, in the run's row, and calls
refer to them. INVARIANT: once a run has facts, they do not change but for its labels, of which each call
keeps those of then, so what is put together here is what the decision saw. Rows of before hold the facts of
their run themselves.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from hashlib import sha256
from typing import Any, Final

import msgspec
from peewee import fn

from api.database.connection import Database
from api.database.models import CallTable, Event
from engine.canonical_json import canonical_json
from engine.derived.evaluated import evaluated
from engine.model import Json

LABELS: Final = "labels"
"""The labels of its run as a call's row keeps them, since the run may get more."""
FLOW: Final = "flow"
"""What else was known of the run: `version` of its values, and `steps`."""
OF_THE_RUN: Final = True
"""Stands for the facts of its run in the row of a call."""

ASSERTED: Final[tuple[str, ...]] = ("actionHint", "agentContext", "reason", "toolAnnotations")
"""The agent's own words on an event."""

OF_THE_CALL: Final = frozenset((*ASSERTED, "user", "delegation", "key"))
"""Roots of a call that its row keeps, and that stay as its decision saw them."""

DIGEST: Final = 64
"""Characters of a payload's digest; behind a colon follows on whose behalf the call is made, if on any."""

_decode = msgspec.json.decode

NO_LABELS: Final = "[]"


def payload_digest(tool_name: str, payload: Any) -> str:
    """What an approval is bound to: the tool and the exact payload, by canonical JSON."""
    return sha256(canonical_json([tool_name, payload])).hexdigest()


def facts_of_run(
    task: str | None, model: str | None, agent_context: str | None, labels: str = NO_LABELS
) -> dict[str, Any] | None:
    """The `run` root of a tool call document, from the columns of the run; None when nothing is known."""
    facts: dict[str, Any] = {"task": task, "model": model}
    if agent_context is not None:
        facts["agentContext"] = _decode(agent_context)
    if labels != NO_LABELS:
        facts["labels"] = _decode(labels)
    return {name: value for name, value in facts.items() if value is not None} or None


def whole(facts: dict[str, Any], run: dict[str, Any] | None) -> dict[str, Any]:
    """Facts of a call with those of its run in their place, if it refers to them; its labels are those of
    then, which the call's row has."""
    others = {name: value for name, value in facts.items() if name not in (LABELS, FLOW)}
    if not refers(facts):
        return others
    labels = {"labels": facts[LABELS]} if LABELS in facts else {}
    return others | {"run": {**(run or {}), **labels} or None}


def refers(facts: dict[str, Any]) -> bool:
    return facts.get("run") is OF_THE_RUN


def asserted(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Of what a decision saw, the agent's own words."""
    return {name: facts[name] for name in ASSERTED if name in facts}


NAMING: Final = (
    *("email", "emails", "mail", "preferred_username", "upn", "unique_name"),
    *("username", "user_name", "cognito:username", "login"),
)
"""Claims in which identity providers say by what name somebody logs in, or by which ones, beside `sub`."""


def acting(facts: Mapping[str, Any]) -> list[Any]:
    """Everybody whom a verified token of a call names: on whose behalf it is made, and who acts for them."""
    user = facts.get("user") or {}
    found = [user.get("id"), user.get("email"), *(facts.get("delegation") or {}).get("chain", ())]
    party = user.get("claims")
    while isinstance(party, dict):
        for told in (party.get(claim) for claim in NAMING):
            found += told if isinstance(told, list) else [told]
        party = party.get("act")
    return found


def said_of_evaluation(asserted: Mapping[str, Any], read: Container[str]) -> str:
    """A digest of what an AuthZEN evaluation says beside its payload and is another call without: its subject
    and action, and all that stands in the roots that policies `read`. Empty for any other call, of which
    these are the agent's own words."""
    told = evaluated(asserted.get("agentContext"))
    if told is None:
        return ""
    seen = {name: asserted[name] for name in ASSERTED if name in asserted and name in read}
    return sha256(canonical_json([told["subject"], told["action"], seen])).hexdigest()[:32]


def granted_digest(digest: str, said: str) -> str:
    """What a grant holds of the call that it is for: its digest, and `said_of_evaluation` as a third part."""
    return f"{digest}{'' if ':' in digest else ':'}:{said}" if said else digest


def parts_of_granted(digest: str) -> tuple[str, str]:
    """The two that `granted_digest` put together."""
    payload, _, others = digest.partition(":")
    behalf, _, said = others.partition(":")
    return (f"{payload}:{behalf}" if behalf else payload), said


BODY: Final = "(SELECT e.body FROM events e WHERE e.event_no = c.event_no AND e.received_at = c.decided_at)"
"""Of a call `c`, as SQL: the body of its event, which was written with it, at the same time; null when it was
removed by retention. The time names the partition to look in."""

_CALL: Final = f"SELECT c.facts, {BODY} FROM tool_calls c WHERE c.call_no = ?"


def seen_by_decision(store: Database, call_no: int) -> tuple[dict[str, Any], Json]:
    """What the decision on a recorded call saw: its facts as the row keeps them, and its payload; None once
    retention has removed that."""
    for facts, body in store.rows(_CALL, (call_no,)):
        metadata = {} if body is None else _decode(bytes(body)).get("metadata") or {}
        return _decode(facts), None if body is None else metadata.get("inputPayload") or {}
    return {}, None


def completion_of(store: Database, call_no: int) -> str:
    """What was reported of a call that has an outcome: `completed` or `failed`."""
    return str(store.rows("SELECT completion FROM tool_calls WHERE call_no = ?", (call_no,))[0][0])


def is_event_of_call() -> Any:
    """The same, as a condition."""
    return (Event.event_no == CallTable.event_no) & (Event.received_at == CallTable.decided_at)


def body_of_call() -> Any:
    """The same, as the column `body` of a select of calls."""
    return Event.select(Event.body).where(is_event_of_call()).alias("body")


def size_of_call() -> Any:
    """The length of that body in bytes, as the column `size`."""
    return Event.select(fn.LENGTH(Event.body)).where(is_event_of_call()).alias("size")


class _Metadata(msgspec.Struct):
    inputPayload: msgspec.Raw = msgspec.Raw(b"{}")  # noqa: N815


class _Body(msgspec.Struct):
    metadata: _Metadata | None = None


def input_payload(body: bytes | None) -> msgspec.Raw | None:
    """The payload of a stored `tool.called` event; None when the event was removed by retention.

    It is as the agent spelled it, so that a reviewer sees every digit of a number. Nothing else of the body
    may leave: its metadata can hold a user's token.
    """
    if body is None:
        return None
    metadata = msgspec.json.decode(bytes(body), type=_Body).metadata or _Metadata()
    return msgspec.Raw(b"{}") if bytes(metadata.inputPayload) == b"null" else metadata.inputPayload
