"""What an event must be: the checks of the contract, and of who may send it; nothing is written yet.

Typed decoding instead of a JSON Schema, which is only asked when something is wrong, to name every problem at
once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

import schemas
from api import clock
from api.auth.user_tokens import verify_user_token
from api.caller import Caller
from api.http import bodies
from api.http.problems import ApiError, invalid
from api.ingestion.authzen import is_anothers_run
from api.ingestion.event import MEANT_AS_PAYLOAD, EventBody, Incoming, principal, without_user_token
from api.store.call_facts import payload_digest
from engine.errors import Problem
from engine.model import ToolCall
from schemas.suggestion import as_compared, closest

_FIELDS: Final = schemas.load("bodies/event")["properties"]
_METADATA: Final = _FIELDS["metadata"]["properties"]
_EVENT_TYPE: Final[str] = _FIELDS["eventType"]["pattern"]

EVENT_TYPES: Final = tuple(
    name.replace("\\.", ".") for name in _EVENT_TYPE.strip("^()$").split("|") if "[" not in name
)
"""Besides these, `custom.*`: anything else is refused, since a typo must not go ungoverned."""

_is_event_type = re.compile(_EVENT_TYPE).fullmatch
_TOOL_EVENTS = frozenset(name for name in EVENT_TYPES if name.startswith("tool."))
_NAMES_NOTHING: Final = frozenset(_FIELDS["runId"]["not"]["enum"])
"""Clients take these for steps in a path: a run or an agent of that name could not be read."""
_MOST_OF_ID: Final[int] = min(
    _METADATA[name]["maxLength"] for name in ("toolCallId", "toolName", "parentRunId", "continuesRunId")
)
_TYPES: Final = {"string": str, "object": dict, "boolean": bool}
_KINDS: Final[dict[str, type]] = {
    name: _TYPES[kind]
    for name, value in _METADATA.items()
    for kind in value.get("type", ())
    if kind != "null"
}
"""What metadata must be when it is there and not null."""

_MEANT_AS_OUTPUT: Final = frozenset(
    ("output", "outputs", "result", "results", "response", "tooloutput", "toolresult", "toolresponse")
)
"""The same of what a tool gave back."""
MOST_COMPARED: Final = 50
"""Names among which one like `inputPayload` is looked for, which takes a tenth of a millisecond for each."""
_SPELT: Final = {as_compared(name): name for name in _METADATA}
_KNOWN: Final = frozenset(_METADATA)

HANDED_OUT: Final = "custom.approval_handed_out"
ASKED_TWICE: Final = "custom.call_asked_twice"
_TAKING: Final = (f"{HANDED_OUT}:", f"{ASKED_TWICE}:")
"""What can be taken once is taken by who first records an event of such an id."""

_encode = msgspec.json.encode
Admitted = tuple[EventBody, dict[str, Any]]
"""The body of an event, and its metadata."""

_decode = msgspec.json.Decoder(EventBody).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_BATCH_HEAD = re.compile(rb'\s*\{\s*"[^"]*"\s*:\s*')
MOST_IN_A_BATCH: Final[int] = schemas.load("bodies/event-batch")["properties"]["events"]["maxItems"]


def _unworded() -> ApiError:
    text = "this is no event; send it alone, or in a smaller batch, to be told what is wrong"
    return ApiError("validation_failed", text)


class _EventBatch(msgspec.Struct, forbid_unknown_fields=True):
    events: msgspec.Raw


_decode_batch = msgspec.json.Decoder(_EventBatch).decode


def split_batch(raw: bytes) -> list[bytes]:
    """The events of a batch, each as it was sent, to be checked like a body of its own; raises 400 or 422."""
    try:
        listed = bytes(_decode_batch(raw).events)
        events = [bytes(event) for event in _decode_list(listed)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        events = []
    if not 0 < len(events) <= MOST_IN_A_BATCH or not all(event.startswith(b"{") for event in events):
        bodies.validate("event-batch", bodies.decode_unique(raw))
        raise ApiError("invalid_json", "the body cannot be read")
    if _BATCH_HEAD.fullmatch(raw[: raw.rindex(listed)]) is None:
        raise ApiError("invalid_json", "the key `events` stands twice in one object")
    return events


def read_event(raw: bytes, *, worded: bool = True) -> Admitted:
    """The event of a body, and its metadata without nulls; raises 400 or 422 naming every problem, or only
    saying that there are some with `worded` False, which costs next to nothing."""
    bodies.check_long_numbers(raw)
    try:
        body = _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Not JSON, or not of the right shape: the slow path finds the words for it.
        if not worded:
            raise _unworded() from None
        bodies.validate("event", bodies.decode_unique(raw), _also_wrong)
        raise ApiError("invalid_json", "the body cannot be read") from None
    metadata = body.metadata or {}
    most = bodies.MOST_VALUES if body.eventType in ("tool.called", "run.started") else bodies.MOST_KEPT
    bodies.check_count(raw, metadata, "/metadata", most)
    understood = _encode(body)
    # INVARIANT: what is written again byte for byte names no key twice, and none of its numbers is rounded.
    same = raw == understood
    escaped = bodies.BACKSLASH in raw and (b"\\u003" in raw or b"\\u0000" in raw)
    if escaped or not (same or raw.count(b":") == understood.count(b":")):
        # A colon more than in what was understood may be a key that stands twice (an escape may hide one).
        bodies.decode_unique(raw)
    else:
        bodies.check_depth(raw, [metadata])
    if not same:
        bodies.check_digits(raw)
    if not _well_formed(body, metadata):
        if not worded:
            raise _unworded()
        value = bodies.decode_unique(raw)
        bodies.validate("event", value, _also_wrong)
        for problem in _also_wrong(value):
            raise invalid(problem.pointer, problem.message)
        raise invalid("", "the event is not well-formed")
    if None in metadata.values():
        metadata = {key: value for key, value in metadata.items() if value is not None}
    return body, metadata


def _well_formed(body: EventBody, metadata: dict[str, Any]) -> bool:
    """What the schema `event` says, fast. INVARIANT: it never accepts what the schema refuses."""
    try:
        clock.moment(body.timestamp)
    except (ValueError, OverflowError):
        return False
    if body.eventType not in EVENT_TYPES and _is_event_type(body.eventType) is None:
        return False
    if body.runId in _NAMES_NOTHING or body.agentId in _NAMES_NOTHING:
        return False
    for name, value in metadata.items():
        kind = _KINDS.get(name)
        if kind is not None and value is not None and not isinstance(value, kind):
            return False
    tool_call_id, tool_name = metadata.get("toolCallId") or "", metadata.get("toolName") or ""
    if len(tool_call_id) > _MOST_OF_ID or len(tool_name) > _MOST_OF_ID:
        return False
    if any(len(metadata.get(name) or "") > _MOST_OF_ID for name in ("parentRunId", "continuesRunId")):
        return False
    if body.eventType in _TOOL_EVENTS and not tool_call_id:
        return False
    if body.eventType == "tool.called" and (tool_name == "" or metadata.get("inputPayload") is None):
        return False
    return _KNOWN.issuperset(metadata) or not any(_misspelt(body.eventType, metadata))


def _also_wrong(value: Any) -> Iterator[Problem]:
    """What the schema cannot say of an event."""
    if not isinstance(value, dict):
        return
    timestamp, metadata = value.get("timestamp"), value.get("metadata")
    if isinstance(timestamp, str):
        try:
            clock.moment(timestamp)
        except (ValueError, OverflowError):
            message = (
                f"`timestamp` is `{timestamp[:64]}`; write an ISO 8601 time such as `2026-01-31T09:30:00Z`"
            )
            yield Problem(message, "/timestamp", "wrong_form")
    if isinstance(metadata, dict):
        for name, meant in _misspelt(value.get("eventType"), metadata):
            pointer = f"/metadata/{bodies.escape(name[:60])}"
            yield Problem(f"`{name[:60]}` is not looked at; did you mean `{meant}`?", pointer, "unknown")


def _misspelt(event_type: Any, metadata: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Names that nothing reads, each with the one that was meant: what they hold would go ungoverned. Events
    of one's own hold what they like."""
    if event_type not in EVENT_TYPES:
        return
    for name in metadata.keys() - _KNOWN:
        meant = _SPELT.get(as_compared(name[:_MOST_OF_ID])) or _alias(event_type, name, metadata)
        if meant is not None and meant not in metadata:
            yield name, meant


def _alias(event_type: str, name: str, metadata: dict[str, Any]) -> str | None:
    """What others call by such a name."""
    word = as_compared(name[:_MOST_OF_ID])
    if event_type == "tool.called":
        if word == "annotations" and isinstance(metadata[name], dict):
            return "toolAnnotations"
        if "inputPayload" not in metadata:
            is_few = len(metadata) <= MOST_COMPARED
            named = word in MEANT_AS_PAYLOAD or (is_few and closest(name, ("inputPayload",)))
            return "inputPayload" if named else None
    elif event_type in _TOOL_EVENTS and word in _MEANT_AS_OUTPUT:
        return "outputPayload"
    return None


def admitted(caller: Caller, raw: bytes, *, worded: bool = True, taking: bool = False) -> Admitted:
    """What `read_event` says of a body that this caller may send; `taking`: the service itself made it, to
    take something for the caller. Raises 4xx."""
    body, metadata = read_event(raw, worded=worded)
    _refuse_foreign(caller, body, metadata)
    if not taking:
        _refuse_taking(body)
    return body, metadata


def checked(caller: Caller, raw: bytes) -> Incoming | None:
    """The checked event of a body; None when it names a user, whose token must be verified. Raises 4xx, not
    saying why."""
    body, metadata = read_event(raw, worded=False)
    _refuse_foreign(caller, body, metadata)
    _refuse_taking(body)
    if "userToken" in metadata:
        return None
    return _ready(caller, raw, body, metadata, _bound_user(caller))


def event_of(caller: Caller, raw: bytes, body: EventBody, metadata: dict[str, Any]) -> Incoming:
    """The event of an admitted body without a user token."""
    return _ready(caller, raw, body, metadata, _bound_user(caller))


def event_for_user(
    caller: Caller,
    raw: bytes,
    body: EventBody,
    metadata: dict[str, Any],
    rule: Mapping[str, Any] | None,
    now: float,
) -> Incoming:
    """The event of an admitted body with a user token, verified by the organisation's rule. Raises 4xx."""
    facts = verify_user_token(metadata["userToken"], rule, now)
    user_id = facts["user"]["id"]
    if caller.user_id is not None and user_id != caller.user_id:
        raise ApiError(
            "forbidden", f"the API key is bound to the user `{caller.user_id}`", kind="another_user"
        )
    metadata = {name: value for name, value in metadata.items() if name != "userToken"}
    return _ready(caller, raw, body, metadata, facts)


def _refuse_foreign(caller: Caller, body: EventBody, metadata: dict[str, Any]) -> None:
    for named in (body.organisationId, metadata.get("organisationId")):
        if named is not None and named != caller.organisation_id:
            shown = str(named)[:_MOST_OF_ID]
            raise ApiError(
                "forbidden",
                f"the API key does not belong to the organisation `{shown}`",
                kind="foreign_organisation",
            )
    if caller.agent_id is not None and body.agentId != caller.agent_id:
        raise ApiError(
            "forbidden",
            f"the API key is bound to the agent `{caller.agent_id}`, not to `{body.agentId}`;"
            " name that agent, or use another key",
            kind="another_agent",
        )
    if is_anothers_run(body.runId, caller.key_id, body.agentId):
        raise ApiError(
            "run_conflict",
            f"`{body.runId}` is how the service names runs of evaluations for another API key or agent; use"
            " another `runId`",
            kind="run_of_another_key",
        )


def _refuse_taking(body: EventBody) -> None:
    """Nobody takes by an event what a hook of another key would be given."""
    if body.eventId.startswith(_TAKING):
        raise ApiError(
            "event_id_conflict",
            f"`{body.eventId.partition(':')[0]}:` begins names that the service alone gives events; use"
            " another `eventId`",
        )


def _bound_user(caller: Caller) -> dict[str, Any]:
    """The verified facts of a call without a token: the user that the key is bound to, if any."""
    if caller.user_id is None:
        return {}
    return {"user": {"id": caller.user_id, "scopes": [], "claims": {}}}


def _ready(
    caller: Caller, raw: bytes, body: EventBody, metadata: dict[str, Any], facts: dict[str, Any]
) -> Incoming:
    if raw.find(b"userToken") >= 0 or "userToken" in (body.metadata or {}):
        raw = without_user_token(raw)
    if body.eventType != "tool.called":
        return Incoming(caller, raw, body, metadata, facts=facts)
    payload = metadata["inputPayload"]
    document: dict[str, Any] = {
        "toolName": metadata["toolName"],
        "inputPayload": payload,
        "agentId": body.agentId,
        "runId": body.runId,
        "toolCallId": metadata["toolCallId"],
        "key": {"id": caller.key_id, "scopes": list(caller.scopes)},
        **facts,
    }
    for name in ("actionHint", "reason", "agentContext", "toolAnnotations"):
        if name in metadata:
            document[name] = metadata[name]
    digest = payload_digest(metadata["toolName"], payload)
    if facts or caller.scopes:
        digest += principal(facts, caller.scopes)
    return Incoming(caller, raw, body, metadata, ToolCall(document), digest, facts)
