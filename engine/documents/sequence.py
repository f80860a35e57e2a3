"""`on`, `after` and `rateLimit` of a policy: from JSON and back, and what they forbid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from engine.conditions.compiled import compile_condition
from engine.derived.tools import check_name
from engine.model import After, Condition, Json, Policy, RateLimit


def rate_limit_from_json(shape: Mapping[str, Json]) -> RateLimit:
    per = tuple(shape.get("per", RateLimit.__dataclass_fields__["per"].default))
    return RateLimit(int(shape["limit"]), int(shape["windowSeconds"]), per)


def after_from_json(shape: Mapping[str, Json] | None) -> After | None:
    if not shape:
        return None
    within = shape.get("withinCalls")
    kind: Literal["tool", "label", "policy"] = (
        "tool" if "tool" in shape else "label" if "label" in shape else "policy"
    )
    return After(kind, shape[kind], None if within is None else int(within))


def after_as_json(after: After | None) -> dict[str, Json] | None:
    if after is None:
        return None
    within = {} if after.within_calls is None else {"withinCalls": after.within_calls}
    return {after.kind: after.name, **within}


def sequence_defects(policy: Policy, conditions: Sequence[Condition]) -> Iterator[tuple[str, str, str]]:
    """Pointer, message and code of what `on` and `after` forbid of these good conditions."""
    after = policy.after
    if after is not None and after.kind == "tool" and (message := check_name(after.name)):
        yield "/after/tool", f"`{after.name}` names no tool: {message}", "wrong_form"
    if policy.on == "tool.called":
        for index, condition in enumerate(conditions):
            if _reads_output(condition):
                message = "a call has no `outputPayload` before it runs; write `on: tool.completed`"
                yield f"/matchConditions/{index}", message, "invalid_condition"
        return
    if policy.action not in ("allow", "warn"):
        message = (
            f"after a call it is too late to `{policy.action}`: `on: tool.completed` may only allow or warn"
        )
        yield "/action", message, "wrong_value"
    for key, value in (("rateLimit", policy.rate_limit), ("approval", policy.approval)):
        if value is not None:
            yield f"/{key}", f"a policy `on: tool.completed` has no `{key}`; leave it out", "unknown"


def _reads_output(condition: Condition) -> bool:
    if "outputPayload" not in (condition.field or condition.expression or ""):
        return False
    return "outputPayload" in compile_condition(condition).roots
