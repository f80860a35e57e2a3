"""A preset, policies made of it, and upgrades between them."""

from __future__ import annotations

from typing import Any

from engine.documents.policy import policy_as_json, policy_from_json
from engine.documents.preset_upgrade import Step, Upgrade, origin_of, plan
from engine.documents.presets import Parameter, Preset, instantiate
from engine.model import Policy

WIRE = {"field": "toolName", "operator": "equals", "value": "wire"}
PAY = {"field": "toolName", "operator": "in", "value": ["wire", "pay"]}
LARGE = {"field": "inputPayload.amount", "operator": "greater_than", "value": "{{limit}}"}
HOME = {"field": "inputPayload.country", "operator": "not_equals", "value": "AT"}
TESTED = [{"match": True, "toolName": "wire", "inputPayload": {"amount": 5000, "country": "DE"}}]
LIMIT = {"limit": Parameter("limit", "the largest", 1000, "number", minimum=0)}


def made(parameters: dict[str, Parameter] | None = None, **members: Any) -> Preset:
    template = {
        "name": "Hold wires",
        "description": "No more than {{limit}}.",
        "action": "block",
        "matchConditions": [WIRE, LARGE],
        "examples": TESTED,
    } | members
    template = {key: value for key, value in template.items() if value is not None}
    known = LIMIT if parameters is None else parameters
    return Preset("wires", "money", template["name"], "", template, known, digest=repr((template, known)))


def activated(preset: Preset, **parameters: Any) -> Policy:
    return policy_from_json(instantiate(preset, parameters, "wires"))


def edited(policy: Policy, **changes: Any) -> Policy:
    body = {k: v for k, v in (policy_as_json(policy) | changes).items() if v is not None}
    return policy_from_json(body)


def upgrade(*history: tuple[Policy, Preset], to: Preset) -> Upgrade:
    last = history[-1][0]
    steps = [Step(policy_as_json(policy), preset) for policy, preset in history]
    return plan(origin_of(steps, last.preset_parameters or {}), to, last)


def after(policy: Policy, found: Upgrade) -> Policy:
    return edited(policy, **found.sent)


def changed(found: Upgrade) -> list[str]:
    return [each.member for each in found.changes]


def kept(found: Upgrade) -> list[str]:
    return [each.member for each in found.kept]


OLD = made()
NEW = made(
    action="require_approval", matchConditions=[PAY, LARGE], rateLimit={"limit": 2, "windowSeconds": 9}
)
