"""The shape of a policy as types: a quick yes for the documents that are right.

The schemas in `schemas/` decide; asking them costs a hundred times more, so they are asked only when this
says no, and then find the words. INVARIANT: what this accepts, the schema accepts (a property test). It may
refuse what the schema accepts, such as `5.0` for a whole number.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

Json = Any

_ID = Annotated[str, Meta(max_length=100, pattern=r"^[a-z0-9]([a-z0-9._-]*[a-z0-9])?(?![\s\S])")]
_Name = Annotated[
    str, Meta(min_length=1, max_length=200, pattern=r"^(?![\s\S]*[\u0000-\u001f\u007f-\u009f])")
]
_Description = Annotated[str, Meta(max_length=10_000)]
_Expression = Annotated[str, Meta(min_length=1, max_length=10_000)]
_Operator = Literal[
    "equals",
    "not_equals",
    "in",
    "not_in",
    "contains",
    "not_contains",
    "starts_with",
    "ends_with",
    "matches",
    "not_matches",
    "greater_than",
    "greater_than_or_equal",
    "less_than",
    "less_than_or_equal",
    "exists",
    "not_exists",
]


class _Condition(Struct, forbid_unknown_fields=True, rename="camel"):
    field: Annotated[str, Meta(min_length=1, max_length=1000)] | UnsetType = UNSET
    operator: _Operator | UnsetType = UNSET
    value: Any = UNSET
    expression: _Expression | UnsetType = UNSET

    def fits(self) -> bool:
        others = (self.field, self.operator, self.value)
        if self.expression is not UNSET:
            return others == (UNSET, UNSET, UNSET)
        if self.field is UNSET or self.operator is UNSET:
            return False
        return (self.value is UNSET) is (self.operator in ("exists", "not_exists"))


class _RateLimit(Struct, forbid_unknown_fields=True, rename="camel"):
    limit: Annotated[int, Meta(ge=1, le=1_000_000)]
    window_seconds: Annotated[int, Meta(ge=1, le=2_592_000)]
    per: (
        Annotated[
            list[Literal["agentId", "runId", "toolName", "payload", "userId", "apiKeyId"]], Meta(min_length=1)
        ]
        | UnsetType
    ) = UNSET


class _Approval(Struct, forbid_unknown_fields=True, rename="camel"):
    expires_after_seconds: Annotated[int, Meta(ge=1, le=31_536_000)]


class _Example(Struct, forbid_unknown_fields=True, rename="camel"):
    match: bool
    tool_name: str | UnsetType = UNSET
    input_payload: dict[str, Any] | UnsetType = UNSET
    agent_id: str | UnsetType = UNSET
    run_id: str | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET
    action_hint: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    agent_context: dict[str, Any] | UnsetType = UNSET
    run: dict[str, Any] | UnsetType = UNSET
    user: dict[str, Any] | UnsetType = UNSET
    delegation: dict[str, Any] | UnsetType = UNSET
    key: dict[str, Any] | UnsetType = UNSET


class _Policy(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    api_version: Literal["governance/v1"]
    kind: Literal["Policy"]
    policy_id: _ID
    version: Annotated[int, Meta(ge=1, le=2_147_483_647)] | UnsetType = UNSET
    name: _Name
    description: _Description | UnsetType = UNSET
    preset_id: _ID | UnsetType = UNSET
    action: Literal["allow", "warn", "block", "require_approval"]
    scope: Literal["all", "action_only"] | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET
    mode: Literal["enforce", "shadow"] | UnsetType = UNSET
    match_conditions: Annotated[list[_Condition | _Expression], Meta(min_length=1, max_length=64)]
    rate_limit: _RateLimit | UnsetType = UNSET
    approval: _Approval | UnsetType = UNSET
    failure_policy: Literal["fail", "ignore"] | UnsetType = UNSET
    examples: Annotated[list[_Example], Meta(max_length=1000)] | UnsetType = UNSET


def is_policy(document: Json) -> bool:
    """True when a policy document surely has the right shape."""
    try:
        policy = msgspec.convert(document, type=_Policy)
    except (msgspec.ValidationError, RecursionError):
        return False
    limit = policy.rate_limit
    if isinstance(limit, _RateLimit) and isinstance(limit.per, list) and len(set(limit.per)) < len(limit.per):
        return False
    return all(isinstance(each, str) or each.fits() for each in policy.match_conditions)
