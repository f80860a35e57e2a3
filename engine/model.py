"""The nouns of the engine, as frozen values: policy, condition, tool call, match, decision.

Those that are made for every call are structs of msgspec, which take a fifth of the time to make.

This module decides only what the words mean. It knows nothing of files, YAML, JSON Schema, HTTP or SQL,
and no other engine module's behaviour.

A tool call is one JSON document whose top-level keys are the field roots of the policy language
(`toolName`, `inputPayload`, `agentId`, `run`, `user`, ...). Field paths and expressions both read that one
document, so what a condition can name and what a caller can send is the same thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

import msgspec

Json = Any
"""A JSON value: None, bool, int, float, str, list or dict with string keys."""

Action = Literal["block", "require_approval", "warn", "allow"]
Scope = Literal["all", "action_only"]
Mode = Literal["enforce", "shadow"]
FailurePolicy = Literal["fail", "ignore"]
On = Literal["tool.called", "tool.completed"]
ToolCallStatus = Literal["allowed", "blocked", "awaiting_approval"]

ACTIONS: Final[tuple[Action, ...]] = ("block", "require_approval", "warn", "allow")
"""Every action, strongest first."""

STRENGTH: Final[Mapping[str, int]] = {action: rank for rank, action in enumerate(ACTIONS)}
"""Rank of an action; a lower rank is stronger."""

STATUS: Final[Mapping[str, ToolCallStatus]] = {
    "block": "blocked",
    "require_approval": "awaiting_approval",
    "warn": "allowed",
    "allow": "allowed",
}
"""The tool call status that the strongest effective action leads to."""

READING_HINTS: Final = frozenset({"read", "list", "get", "search", "query"})
"""Values of `actionHint` (any case) that say a call just reads; `scope: action_only` skips those."""

RATE_LIMIT_KEYS: Final = ("agentId", "runId", "toolName", "payload", "userId", "apiKeyId")
"""What a rate limit may count by."""

ROOTS: Final[Mapping[str, str]] = {
    "toolName": "text",
    "inputPayload": "object",
    "outputPayload": "object",
    "agentId": "text",
    "runId": "text",
    "toolCallId": "text",
    "actionHint": "text",
    "reason": "text",
    "agentContext": "object",
    "run": "object",
    "user": "object",
    "delegation": "object",
    "key": "object",
}
"""Field root -> kind. `run` holds task, model, agentContext, labels; `user` holds id, email, scopes, claims;
`delegation` holds chain; `key` holds id, scopes; `outputPayload` is there in reports only. Only `text` roots
may stand alone as a whole field, besides `inputPayload`, `outputPayload` and `agentContext`."""

BEFORE: Final = "before"
"""The key of a call document under which stands what its run went through before. It is no root: conditions
read it by `after`, `derived.provenance` and their like alone. It holds a `RunMemory` (see the room `flow`),
or steps as people write them in examples."""

COMPUTED: Final = ("tool", "derived")
"""Roots that the service works out of the call itself, for field conditions and expressions. They are no
roots of a call: what a caller sends under these names is never looked at."""

ALWAYS_PRESENT: Final = frozenset({"toolName", "inputPayload", "agentId", "runId", "toolCallId"})
"""Roots every tool call has: reading them can never be an error."""


Effect = Literal["read", "write", "execute", "send", "pay", "delete"]
Trust = Literal["trusted", "untrusted"]

EFFECTS: Final[tuple[Effect, ...]] = ("read", "write", "execute", "send", "pay", "delete")
"""What a tool does to the world."""

_KINDS: Final = (
    "shell code files sql http browser search mail chat calendar contacts payments cloud devops repository "
    "tickets crm users memory agents clock"
)
TOOL_KINDS: Final = (*_KINDS.split(), "other")
"""What kind of tool it is; `other` is declared and none of these."""

UNKNOWN_KIND: Final = "unknown"
"""What `tool.kind` shows of a tool that no tool set declares."""


@dataclass(frozen=True, slots=True)
class ToolDeclaration:
    """What is known of the tools whose names match one of `names` (see `derived.tools` for the patterns).

    `kind` is one of `TOOL_KINDS`, or None. `output` says whether what the tool returns may be believed, and
    `output_fields` the same of single keys of it. The paths of arguments `where` (recipient, URL, account)
    and `which` (id, name) are the targets of a call, `sensitive` those that are neither but matter.

    A tool that nobody declared is as `ToolDeclaration(())`: it writes, its output is untrusted, it has no
    kind.
    """

    names: tuple[str, ...]
    kind: str | None = None
    effect: Effect = "write"
    output: Trust = "untrusted"
    output_fields: Mapping[str, Trust] = field(default_factory=dict)
    where: tuple[str, ...] = ()
    which: tuple[str, ...] = ()
    sensitive: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolSet:
    """A document of declarations. `version` is 0 while the repository has not given one."""

    tool_set_id: str
    name: str
    tools: tuple[ToolDeclaration, ...]
    description: str | None = None
    version: int = 0
    organisation_id: str = "default"


@dataclass(frozen=True, slots=True)
class OrganisationSettings:
    """What policies need to know of an organisation, by name; see `conditions.settings` for the names."""

    values: Mapping[str, Json] = field(default_factory=dict)
    version: int = 0
    organisation_id: str = "default"


Severity = Literal["low", "medium", "high", "critical"]
SEVERITIES: Final[tuple[Severity, ...]] = ("low", "medium", "high", "critical")
"""How much an alert matters, least first."""

Watched = Literal[
    "tool.called",
    "tool.refused",
    "request.refused",
    "enforcement.gap",
    "approval.unseen",
    "agent.new",
    "agent.changed",
]
WATCHED: Final[tuple[Watched, ...]] = get_args(Watched)
"""What a detector may count."""

Subject = Literal["agentId", "apiKeyId", "runId", "userId", "organisationId"]
"""Whose a count may be."""


@dataclass(frozen=True, slots=True)
class Usual:
    """Counts only what is more than so many `times` the subject's own usual count, which is known once it was
    active in so many `windows`."""

    times: float
    windows: int


@dataclass(frozen=True, slots=True)
class Detector:
    """What is unusual: `threshold` happenings (or `distinct` values of one member of them) of one `per`
    within `window_seconds`. `first`: only the first that a subject ever had; `established`: only after so
    many of its calls. `version` is 0 while the repository has not given one."""

    detector_id: str
    name: str
    on: Watched
    severity: Severity
    window_seconds: int
    threshold: int = 1
    per: Subject = "agentId"
    distinct: str | None = None
    conditions: tuple[Condition, ...] = ()
    of: tuple[str, ...] = ()
    """With `agent.changed`: of what; () is anything."""
    usual: Usual | None = None
    first: bool = False
    established: int = 0
    unseen_seconds: int = 0
    """With `approval.unseen`: after which an approval counts."""
    enabled: bool = True
    description: str | None = None
    message: str | None = None
    version: int = 0
    organisation_id: str = "default"


class Condition(msgspec.Struct, frozen=True, gc=False):
    """One entry of `matchConditions`: either `field` + `operator` (+ `value`), or `expression`."""

    field: str | None = None
    operator: str | None = None
    value: Json = None
    expression: str | None = None

    def as_json(self) -> dict[str, Json]:
        """The shape of the contract: `{field, operator, value}` or `{expression}`."""
        if self.expression is not None:
            return {"expression": self.expression}
        shape: dict[str, Json] = {"field": self.field, "operator": self.operator}
        if self.operator not in ("exists", "not_exists"):
            shape["value"] = self.value
        return shape


@dataclass(frozen=True, slots=True)
class RateLimit:
    """The policy takes effect only beyond `limit` matching calls in `window_seconds`, per tuple of `per`."""

    limit: int
    window_seconds: int
    per: tuple[str, ...] = ("agentId",)


OnExpiry = Literal["block", "escalate"]
ReviewRole = Literal["reviewer", "admin"]

REVIEW_ROLES: Final[tuple[ReviewRole, ...]] = ("reviewer", "admin")
"""Roles of people whose approval may count."""


@dataclass(frozen=True, slots=True)
class ApprovalTerms:
    """What a policy asks of the approval of a call that it holds.

    So many different `approvers` must approve, each with one of the `roles`. Whoever asked for the call may
    approve it only with `allow_self`. What nobody resolved in `expires_after_seconds` is blocked, or, with
    `on_expiry` `escalate`, waits for `escalate_seconds` more, in which only the approval of admins counts.
    """

    expires_after_seconds: int | None = None
    on_expiry: OnExpiry = "block"
    escalate_seconds: int | None = None
    approvers: int = 1
    roles: tuple[ReviewRole, ...] = REVIEW_ROLES
    allow_self: bool = False


@dataclass(frozen=True, slots=True)
class After:
    """The policy takes effect only after a call of a `tool` (a name pattern), after a `label` was given, or
    after a `policy` (an id) matched, in the same run: if it was one of the last `within_calls` calls, or at
    any time."""

    kind: Literal["tool", "label", "policy"]
    name: str
    within_calls: int | None = None


@dataclass(frozen=True, slots=True)
class Example:
    """A call that must (`match`) or must not match the policy, and maybe why; `call` is its document."""

    match: bool
    call: Mapping[str, Json]
    about: str | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy as the engine uses it. `version` is 0 while the repository has not given one."""

    policy_id: str
    name: str
    action: Action
    conditions: tuple[Condition, ...]
    enabled: bool = True
    description: str | None = None
    message: str | None = None
    """Words for a reviewer, with placeholders of facts; see `conditions.message`."""
    preset_id: str | None = None
    preset_parameters: Mapping[str, Json] | None = None
    scope: Scope = "all"
    mode: Mode = "enforce"
    rate_limit: RateLimit | None = None
    approval: ApprovalTerms | None = None
    failure_policy: FailurePolicy = "fail"
    examples: tuple[Example, ...] = ()
    version: int = 0
    organisation_id: str = "default"
    on: On = "tool.called"
    """What it is asked about: calls, or the outcomes that are reported of them."""
    labels: tuple[str, ...] = ()
    """What it adds to a run when it matches."""
    after: After | None = None

    @property
    def order(self) -> tuple[int, str, str]:
        """Sort key: strength, then name, then id."""
        return (STRENGTH[self.action], self.name, self.policy_id)

    @property
    def is_tolerant(self) -> bool:
        """Whether it does not match where a condition cannot be evaluated: since it says so, or since its
        match would only be told. INVARIANT: nobody dodges a label by what cannot be evaluated."""
        return self.failure_policy == "ignore" or (self.action == "allow" and not self.labels)


class ToolCall(msgspec.Struct, frozen=True):
    """One call to decide on.

    `document` maps field roots to JSON values. `toolName`, `inputPayload`, `agentId`, `runId` and
    `toolCallId` are always there; a root that has no value is absent, never None.
    """

    document: Mapping[str, Json]

    @classmethod
    def of(cls, **roots: Json) -> ToolCall:
        """A call from keyword roots, as people write it down; the always-present ones get empty defaults. A
        label that a step before it gave to its run is one of the run."""
        document = {"toolName": "", "inputPayload": {}, "agentId": "", "runId": "", "toolCallId": ""} | {
            root: value for root, value in roots.items() if value is not None
        }
        steps, run = document.get(BEFORE), document.get("run", {})
        had = (run.get("labels") or []) if isinstance(run, dict) else None
        if isinstance(steps, list) and isinstance(had, list):
            given = [label for step in steps for label in step.get("labels", ()) if label not in had]
            document |= {"run": {**run, "labels": [*had, *dict.fromkeys(given)]}} if given else {}
        return cls(document)

    @property
    def tool_name(self) -> str:
        return str(self.document["toolName"])

    @property
    def input_payload(self) -> Mapping[str, Json]:
        payload: Mapping[str, Json] = self.document["inputPayload"]
        return payload

    @property
    def is_report(self) -> bool:
        """True when it is the outcome of a call that is asked about, not the call."""
        return "outputPayload" in self.document

    @property
    def just_reads(self) -> bool:
        """True when the caller's `actionHint` says that the call only reads."""
        hint = self.document.get("actionHint")
        return isinstance(hint, str) and hint.strip().lower() in READING_HINTS


@dataclass(frozen=True, slots=True)
class Fault:
    """The third truth value, ERROR: a condition that could not be evaluated, and why.

    A verdict is `True`, `False` or a `Fault`; compare with `is True` / `is False`, never by truthiness.
    """

    message: str

    def __bool__(self) -> bool:
        raise TypeError("a verdict has three values: compare with `is True` or `is False`")


Verdict = bool | Fault


class Match(msgspec.Struct, frozen=True):
    """A policy that matched a call, and why in words: its message, else its description, else the conditions
    and the values seen."""

    policy: Policy
    reason: str
    faults: tuple[str, ...] = ()


class Evaluation(msgspec.Struct, frozen=True):
    """Everything that matched a call, before rate limits; both tuples are in `Policy.order`."""

    matches: tuple[Match, ...] = ()
    shadow: tuple[Match, ...] = ()


class Decision(msgspec.Struct, frozen=True):
    """What happens to a call, and why. `matched` and `shadow` hold effective matches in `Policy.order`."""

    action: Action
    status: ToolCallStatus
    reason: str
    matched: tuple[Match, ...] = ()
    shadow: tuple[Match, ...] = ()
    counted: tuple[Policy, ...] = ()
    """Rate-limited policies on whose count this call goes (empty when it ends up blocked)."""
