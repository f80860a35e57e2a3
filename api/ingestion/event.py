"""An event on its way in, and the answer on its way out: plain values, and the digests they are known by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

import schemas
from api.caller import Caller
from api.database.audit_chain import FIRST_CHAIN
from api.database.id_index import hash64
from api.database.lanes.keys import call_key, event_key
from api.ingestion.rows import CallRow, RunRow
from api.store.call_facts import ASSERTED
from engine.canonical_json import canonical_json
from engine.flow.memory import RunMemory
from engine.matching.ruleset import Ruleset
from engine.model import Evaluation, ToolCall

_decode = msgspec.json.decode

_SPEAKS: Final = frozenset(("model", "host"))
"""By which model and program the agent speaks."""
_SAID: Final = _SPEAKS.union(ASSERTED)
"""That, and its own words."""

MOST_ASSERTED: Final = 4_096
"""Bytes of them in a record, and ..."""
MOST_OF_NAME: Final = 200
"""... characters of a model or program, which stay though there is more."""

OF_ONE_TOKEN = frozenset(
    ("aio", "at_hash", "c_hash", "exp", "iat", "jti", "nbf", "nonce", "rh", "s_hash", "scope", "uti")
)
"""Claims that differ from one token of a user to the next (`scope` is compared as a set)."""

MEANT_AS_PAYLOAD: Final = frozenset(
    ("input", "inputs", "args", "arguments", "parameters", "params", "payload", "toolinput", "toolargs")
)
"""What others call the payload; by any of these names it would go ungoverned."""

RESOLVED_SECONDS: Final = 30
"""After which it is worth a try whether people have resolved some approvals."""


_FIELDS: Final = schemas.load("bodies/event")["properties"]


def _bounded(name: str) -> Meta:
    """The length that the schema allows a text."""
    found = _FIELDS[name]
    return Meta(min_length=found.get("minLength", 0), max_length=found["maxLength"])


class EventBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of POST /v1/events, section 2.4 of the contract. The schema says the same in more words."""

    eventId: Annotated[str, _bounded("eventId")]  # noqa: N815
    runId: Annotated[str, _bounded("runId")]  # noqa: N815
    agentId: Annotated[str, _bounded("agentId")]  # noqa: N815
    timestamp: Annotated[str, _bounded("timestamp")]
    eventType: str  # noqa: N815
    status: Annotated[str, _bounded("status")] | None = None
    metadata: dict[str, Any] | None = None
    organisationId: Annotated[str, _bounded("organisationId")] | None = None  # noqa: N815


class Evaluated(msgspec.Struct, frozen=True):
    """What the policies said of one call, and what they were told of its run."""

    ruleset: Ruleset
    run_facts: dict[str, Any] | None
    call: ToolCall
    evaluation: Evaluation
    memory: RunMemory | None = None
    """The same of what the run went through, if the policies ask for that."""
    about: dict[str, Any] | None = None
    """What the call is about, if a person may have to decide on it; see `derived.summary`."""


class Line:
    """The events of one batch, in their order. INVARIANT: while one of a run is put off, so are those behind
    it that are of this run, or of one that it has started: what became of a call comes after the call."""

    def __init__(self) -> None:
        self._put_off: dict[str, set[int]] = {}
        """Places in the batch of the events that are put off, by run."""

    def holds(self, event: Incoming) -> bool:
        """Whether an earlier event of its run, or of a run that it names, is put off and not answered yet."""
        runs = (event.body.runId, *event.named_runs)
        return any(place < event.place for run_id in runs for place in self._put_off.get(run_id, ()))

    def passed(self, event: Incoming, *, put_off: bool) -> None:
        """Note what became of an event: `put_off` to a later commit, or answered."""
        places = self._put_off.setdefault(event.body.runId, set())
        (places.add if put_off else places.discard)(event.place)


class Incoming(msgspec.Struct):
    """One checked event. `call` and `digest` are there for `tool.called` only.

    `raw` is the body as it is kept, `metadata` without nulls and tokens, `facts` the verified user and
    delegation (`user`, `delegation`), as far as there are any. `event_hash` and `call_hash` are what event
    and tool call are found by.
    """

    caller: Caller
    raw: bytes
    body: EventBody
    metadata: dict[str, Any]
    call: ToolCall | None = None
    digest: str = ""
    facts: dict[str, Any] = {}
    event_hash: int = 0
    call_hash: int = 0
    evaluated: Evaluated | None = None
    """What the policies said so far; compared with the truth when the event is decided."""
    line: Line | None = None
    """Of its batch, in which it has this `place`."""
    place: int = 0

    def __post_init__(self) -> None:
        self.event_hash = hash64(self.caller.organisation_id, self.body.eventId)
        tool_call_id = self.metadata.get("toolCallId")
        if tool_call_id is not None:
            self.call_hash = hash64("", tool_call_id)

    @property
    def key(self) -> str:
        """What PostgreSQL finds the event by."""
        return event_key(self.caller.organisation_id, self.body.eventId)

    @property
    def call_key(self) -> str:
        """The same of its tool call."""
        return call_key(self.caller.organisation_id, self.body.runId, self.metadata["toolCallId"])

    @property
    def ends_run(self) -> bool:
        return self.body.eventType in ("run.completed", "run.failed")

    def may_change_run(self) -> bool:
        """Whether its run may be another one afterwards, as far as that is known."""
        if self.call is None or self.evaluated is None:
            return True
        needs = self.evaluated.ruleset.needs
        return needs.labels or bool(needs.bounds)

    def is_same_call(self, call: CallRow) -> bool:
        """Whether it is this call that is reported again."""
        return (call.payload_digest, call.tool_call_id) == (self.digest, self.metadata["toolCallId"])

    @property
    def decided_offline(self) -> bool:
        """Whether the agent says that it made this call while nobody could decide it."""
        return self.metadata.get("decidedOffline") is True

    @property
    def parent(self) -> str | None:
        """The run that is said to have started this one, or to have gone before it."""
        named: str | None = self.metadata.get("parentRunId") or self.metadata.get("continuesRunId")
        return named or None

    @property
    def named_runs(self) -> tuple[str, ...]:
        """The same, where both are said."""
        named = (self.metadata.get("parentRunId"), self.metadata.get("continuesRunId"))
        return tuple(name for name in named if name)

    @property
    def is_of_sub_run(self) -> bool:
        """Whether that one started this one, so that the task is nobody's word."""
        return bool(self.metadata.get("parentRunId"))

    def is_limited(self) -> bool:
        """Whether a policy with a rate limit matches it, by what it was evaluated to."""
        if self.evaluated is None:
            return False
        found = self.evaluated.evaluation
        return any(match.policy.rate_limit is not None for match in (*found.matches, *found.shadow))

    def is_asked(self) -> bool:
        """Whether a policy would have people asked, by what it was evaluated to."""
        return self.evaluated is not None and self.evaluated.about is not None

    def origin(self) -> dict[str, str]:
        """What every record of an event says of it, so that nobody can exchange the kept body."""
        return {"eventId": self.body.eventId, "bodyDigest": sha256(self.raw).hexdigest()}

    def asserted(self) -> dict[str, Any] | None:
        """What the agent says and nobody has verified, as far as a record holds it."""
        metadata = self.metadata
        if _SAID.isdisjoint(metadata):
            return None
        said = {name: metadata[name] for name in _SAID & metadata.keys()}
        text = canonical_json(said)
        if len(text) <= MOST_ASSERTED:
            return said
        short = {name: said[name] for name in _SPEAKS & said.keys() if _is_name(said[name])}
        return {**short, "bytes": len(text), "sha256": sha256(text).hexdigest()}


def _is_name(said: Any) -> bool:
    return isinstance(said, str) and len(said) <= MOST_OF_NAME


class Receipt(msgspec.Struct, omit_defaults=True):
    """What an answer says, section 2.4 of the contract; `approvalUrl` and what follows a call's decision are
    there for `tool.called` only, or as far as there are any."""

    eventId: str  # noqa: N815
    runId: str  # noqa: N815
    processed: bool
    toolCallStatus: str | UnsetType = UNSET  # noqa: N815
    reason: str | UnsetType = UNSET
    agentMessage: str | UnsetType = UNSET  # noqa: N815
    approvalId: str | UnsetType = UNSET  # noqa: N815
    approvalUrl: str | UnsetType = UNSET  # noqa: N815
    matchedPolicies: msgspec.Raw | UnsetType = UNSET  # noqa: N815
    shadowPolicies: msgspec.Raw | UnsetType = UNSET  # noqa: N815
    decidedAt: str | UnsetType = UNSET  # noqa: N815
    policyRevision: int | UnsetType = UNSET  # noqa: N815
    auditId: str | UnsetType = UNSET  # noqa: N815
    auditSequence: int | UnsetType = UNSET  # noqa: N815
    auditHash: str | UnsetType = UNSET  # noqa: N815
    auditChain: int = FIRST_CHAIN  # noqa: N815
    grantIds: list[str] | UnsetType = UNSET  # noqa: N815
    completion: str | UnsetType = UNSET


class Answer(msgspec.Struct, frozen=True):
    """The answer as sent. `replayed`: the event was known, and this is its recorded answer."""

    content: bytes
    replayed: bool = False


class EventRefused(Exception):
    """An event that is not taken; `code` is that of the problem document (`http/problems.py`), `kind` what
    refusals are counted by, `retry_after` the seconds after which it may come again."""

    def __init__(self, code: str, detail: str, kind: str = "", retry_after: int | None = None) -> None:
        super().__init__(detail)
        self.code, self.detail, self.retry_after = code, detail, retry_after
        self.kind = kind or code


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
    return canonical_json(value)


def principal(facts: Mapping[str, Any], key_scopes: Sequence[str]) -> str:
    """On whose verified behalf a call is made, as a suffix of its digest; empty when nothing was verified.

    A decision made for one user is not given to another, nor to the same one with other claims, so it is
    bound to who asked as well.
    """
    user = facts.get("user")
    chain = (facts.get("delegation") or {}).get("chain")
    if user is None and not chain and not key_scopes:
        return ""
    who = [user and _user(user), chain, sorted(key_scopes)]
    return ":" + sha256(canonical_json(who)).hexdigest()[:32]


def _user(user: Mapping[str, Any]) -> list[Any]:
    claims = {name: value for name, value in user["claims"].items() if name not in OF_ONE_TOKEN}
    return [user["id"], sorted(user["scopes"]), *([claims] if claims else [])]


def same_body(one: bytes, other: bytes) -> bool:
    """Whether two kept bodies say the same, however they are spelt."""
    return one == other or canonical_json(_decode(one)) == canonical_json(_decode(other))


# What an event is refused with, once it is known what is there already.


def unbound_key() -> EventRefused:
    return EventRefused(
        "forbidden",
        "the API key is bound to no agent, which this service asks for; ask an admin for one that is, made"
        " with `governance keys add NAME --agent ID`",
        "unbound_key",
    )


def another_keys(run: RunRow) -> EventRefused:
    return EventRefused(
        "run_conflict",
        f"the run `{run.run_id}` was made with another API key; a run belongs to the key that made it: use"
        " another `runId`",
        "run_of_another_key",
    )


def another_agents(run: RunRow) -> EventRefused:
    return EventRefused(
        "run_conflict",
        f"the run `{run.run_id}` belongs to another agent; a run has one agent: use another `runId`",
        "run_of_another_agent",
    )


def too_many_pending(most: int) -> EventRefused:
    return EventRefused(
        "rate_limited",
        f"{most:,} calls of this API key wait for approval, as many as may; the call was not recorded and"
        " must not be made: ask again when some are resolved",
        "pending_approvals",
        RESOLVED_SECONDS,
    )


def another_event(event: Incoming) -> EventRefused:
    return EventRefused(
        "event_id_conflict",
        f"the event `{event.body.eventId}` was sent before with another body, or for another user; use a new"
        " `eventId`",
    )


def another_call(event: Incoming) -> EventRefused:
    return EventRefused(
        "tool_call_conflict",
        f"the tool call `{event.metadata['toolCallId']}` of this run was reported with another"
        " tool or payload, or for another user; a changed call needs a new `toolCallId`",
    )
