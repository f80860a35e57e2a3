"""Presets and packs: what there is, what is in force, and making policies from them."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from operator import methodcaller
from typing import Any

import msgspec

from api.caller import Caller
from api.context import Context
from api.handlers.policies import policy_json
from api.http.bodies import escape
from api.http.exchange import Reply, Values
from api.http.problems import ApiError, invalid, need
from api.http.route import ADMIN, VIEWER, Route
from engine.conditions.settings import missing, reads
from engine.derived.tools import Tools
from engine.documents.policy import check_body, policy_as_json
from engine.documents.presets import Pack, Preset, instantiate, needs
from engine.errors import DocumentError, PolicyExists
from engine.model import Policy
from engine.repository.snapshot import Snapshot, Stored


def _activated(caller: Caller, snapshot: Snapshot) -> dict[str, Policy]:
    """The presets that a policy of the organisation was made from, and (one such) policy."""
    policies = (stored.policy for stored in snapshot.of(caller.organisation_id).values())
    return {policy.preset_id: policy for policy in policies if policy.preset_id is not None}


def _in_force(caller: Caller, snapshot: Snapshot) -> set[str]:
    """The presets of which a policy of the organisation acts: in shadow mode only where the preset is."""
    settings = snapshot.settings_of(caller.organisation_id)
    found = set()
    for stored in snapshot.of(caller.organisation_id).values():
        policy = stored.policy
        preset = snapshot.presets.get(policy.preset_id or "")
        if preset is None or not policy.enabled or missing(reads(policy), settings):
            continue
        if policy.mode == "enforce" or preset.template.get("mode") == policy.mode:
            found.add(preset.preset_id)
    return found


async def list_presets(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/policy-presets: grouped by category."""
    snapshot = await context.newest()
    # They are some hundred kilobytes, so they are written out on a thread.
    return Reply(await context.reads.read(caller, _grouped, caller, snapshot))


def _grouped(caller: Caller, snapshot: Snapshot) -> bytes:
    activated, in_force = _activated(caller, snapshot), _in_force(caller, snapshot)
    groups: dict[str, list[dict[str, Any]]] = {}
    for preset in sorted(snapshot.presets.values(), key=lambda preset: preset.name):
        lacking = needs(preset, snapshot.settings_of(caller.organisation_id))
        groups.setdefault(preset.category, []).append(
            _preset_json(preset, activated, lacking)
            | ({"notInForce": True} if preset.preset_id in activated.keys() - in_force else {})
        )
    return msgspec.json.encode(
        [{"category": category, "presets": groups[category]} for category in sorted(groups)]
    )


def _preset_json(preset: Preset, activated: Container[str], lacking: Sequence[str]) -> dict[str, Any]:
    shape = {
        "presetId": preset.preset_id,
        "category": preset.category,
        **preset.template,
        "name": preset.name,
        "description": preset.description,
        "parameters": {name: parameter.as_json() for name, parameter in preset.parameters.items()},
        "activated": preset.preset_id in activated,
    }
    return shape | {"missingSettings": list(lacking)} if lacking else shape


def _pack_json(pack: Pack, activated: Container[str], in_force: Container[str]) -> dict[str, Any]:
    shape: dict[str, Any] = {"packId": pack.pack_id, "name": pack.name}
    if pack.description:
        shape["description"] = pack.description
    return shape | {
        "presetIds": list(pack.presets),
        "presetCount": len(pack.presets),
        "activatedCount": sum(preset_id in activated for preset_id in pack.presets),
        "inForceCount": sum(preset_id in in_force for preset_id in pack.presets),
    }


async def list_packs(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/policy-presets/packs: by name."""
    snapshot = await context.newest()
    activated, in_force = _activated(caller, snapshot), _in_force(caller, snapshot)
    packs = sorted(snapshot.packs.values(), key=lambda pack: pack.name)
    return Reply([_pack_json(pack, activated, in_force) for pack in packs])


async def activate_pack(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/policy-presets/packs/:packId/activate: in one revision; the policies that it made or
    changed."""
    snapshot = await context.newest()
    pack = need(snapshot.packs.get(values.path["packId"]), "pack", values.path["packId"])
    parameters = (values.body or {}).get("parameters", {})
    presets = [snapshot.presets[preset_id] for preset_id in pack.presets]
    known = {name for preset in presets for name in preset.parameters}
    for name in parameters:
        if name not in known:
            words = ", ".join(sorted(known)) or "none"
            message = f"no preset of this pack has a parameter `{name}`; known: {words}"
            raise invalid(f"/parameters/{escape(name)}", message)
    organisation_id = caller.organisation_id
    while True:
        bodies, changes = _missing(caller, snapshot, presets, parameters)
        make = methodcaller(
            "create_many", bodies, author=caller.actor, organisation_id=organisation_id, changes=changes
        )
        try:
            stored: list[Stored] = await context.write_policies(make)
        except PolicyExists:
            before, snapshot = snapshot, await context.newest()
            if snapshot.of(organisation_id).keys() == before.of(organisation_id).keys():
                raise
            # Somebody made one of them meanwhile, as by another pack that has it, too.
        else:
            return Reply([policy_json(each, context.live.snapshot) for each in stored])


def _missing(
    caller: Caller, snapshot: Snapshot, presets: Sequence[Preset], parameters: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """The policies that these presets have still to make, and the changes, by id, of some that they made."""
    activated = _activated(caller, snapshot)
    there = snapshot.of(caller.organisation_id)
    tools = Tools(snapshot.tools_of(caller.organisation_id))
    bodies: list[dict[str, Any]] = []
    changes: dict[str, dict[str, Any]] = {}
    for preset in presets:
        sent = {name: value for name, value in parameters.items() if name in preset.parameters}
        body = _body(preset, sent, tools)
        existing = activated.get(preset.preset_id)
        if existing is None:
            if preset.preset_id in there:
                raise ApiError(
                    "policy_exists",
                    f"the policy `{preset.preset_id}` was not made from the preset of that name, which needs "
                    "its id; delete that policy (make it again under another id, if need be), or activate "
                    "the presets of the pack that you want one by one",
                )
            bodies.append(body)
        elif sent and not _says_the_same(existing, body):
            if existing.preset_parameters or not _says_the_same(existing, _body(preset, {}, tools)):
                raise ApiError(
                    "conflict",
                    f"the policy `{existing.policy_id}` was made from `{preset.preset_id}` already, and says"
                    f" something else than {_named(sent)} would; change or delete it, or activate without",
                )
            # Nobody chose what it says: it is as the preset is by default.
            changes[existing.policy_id] = _chosen(existing, body, tools)
    return bodies, changes


def _chosen(policy: Policy, body: dict[str, Any], tools: Tools) -> dict[str, Any]:
    """What a policy becomes when parameters are chosen for it; of its examples those that hold go on."""
    found = {key: body[key] for key in ("matchConditions", "presetParameters")}
    found |= {key: body[key] for key in ("rateLimit", "approval", "message") if key in body}
    body = {key: value for key, value in policy_as_json(policy).items() if key != "version"}
    _, problems = check_body(body | found, tools=tools)
    failing = {int(each.pointer.split("/")[2]) for each in problems if each.code == "example_fails"}
    examples = policy_as_json(policy).get("examples", [])
    return found | {"examples": [each for n, each in enumerate(examples) if n not in failing] or None}


async def activate_preset(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/policy-presets/:presetId/activate: one preset as a policy."""
    snapshot = await context.newest()
    preset = need(snapshot.presets.get(values.path["presetId"]), "preset", values.path["presetId"])
    body = values.body or {}
    tools = Tools(snapshot.tools_of(caller.organisation_id))
    policy = _body(preset, body.get("parameters", {}), tools, body.get("policyId"))
    organisation_id = caller.organisation_id
    stored = await context.write_policies(
        lambda policies: policies.create(policy, author=caller.actor, organisation_id=organisation_id)
    )
    return Reply(policy_json(stored, context.live.snapshot), 201, {"ETag": f'"{stored.etag}"'})


def _body(
    preset: Preset, parameters: dict[str, Any], tools: Tools, policy_id: str | None = None
) -> dict[str, Any]:
    try:
        return instantiate(preset, parameters, policy_id or preset.preset_id, tools)
    except DocumentError as error:
        raise DocumentError(
            replace(problem, pointer=f"/parameters{problem.pointer}")
            if problem.pointer.split("/")[1:2] and problem.pointer.split("/")[1] in parameters
            else problem
            for problem in error.problems
        ) from None


def _says_the_same(policy: Policy, body: dict[str, Any]) -> bool:
    """Whether a policy still has the conditions that a preset would give it with these parameters."""
    mine = [condition.as_json() for condition in policy.conditions]
    return bool(mine == body["matchConditions"])


def _named(parameters: Mapping[str, Any]) -> str:
    return ", ".join(f"`{name}`" for name in parameters)


ROUTES = (
    Route(
        "GET",
        "/v1/policy-presets",
        VIEWER,
        list_presets,
        "Presets, grouped by category",
        "presets",
        reply="preset-category",
        reply_is_array=True,
    ),
    Route(
        "POST",
        "/v1/policy-presets/:presetId/activate",
        ADMIN,
        activate_preset,
        "Make a policy from a preset",
        "presets",
        status=201,
        body="preset-activation",
        body_optional=True,
        reply="policy",
        errors=("policy_exists", "conflict"),
        headers=("ETag",),
        second_admin=True,
    ),
    Route(
        "GET",
        "/v1/policy-presets/packs",
        VIEWER,
        list_packs,
        "Packs of presets",
        "presets",
        reply="pack",
        reply_is_array=True,
    ),
    Route(
        "POST",
        "/v1/policy-presets/packs/:packId/activate",
        ADMIN,
        activate_pack,
        "Make policies from a pack",
        "presets",
        body="pack-activation",
        body_optional=True,
        reply="policy",
        reply_is_array=True,
        errors=("policy_exists", "conflict"),
        description="One revision. Answers the newly made policies only; presets in force already are "
        "skipped, unless `parameters` choose for one that is still as its preset: then it is changed, and "
        "answered too. `missingSettings` of a policy says what it waits for.",
        second_admin=True,
    ),
)
