"""The shipped packs on a fresh install can be activated, with parameters and without, in one revision."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from engine.conditions.settings import SETTINGS
from tests.harness import case_files
from tests.harness.application import Service
from tests.harness.places import SHIPPED
from tests.harness.policy_folder import document

PACKS = ("comms", "office-agent", "starter", "business")


def parameters_of(pack_id: str) -> dict[str, Any]:
    """A value for every parameter of the pack's presets, other than the default where there is another."""
    pack = case_files.read(SHIPPED / "packs" / f"{pack_id}.yaml")
    found: dict[str, Any] = {}
    for preset_id in pack["presets"]:
        (path,) = (SHIPPED / "presets").glob(f"*/{preset_id}.yaml")
        for name, shape in case_files.read(path).get("parameters", {}).items():
            value = shape["default"]
            if isinstance(value, str) and value.startswith("{{"):
                value = SETTINGS[value.strip("{ }")].default
            if isinstance(value, list) and shape.get("format") == "domain":
                value = ["mine.example"]
            found[name] = value + 1 if isinstance(value, int | float) else value
    return found


@pytest.mark.parametrize("with_parameters", [False, True], ids=["plain", "with parameters"])
async def test_the_shipped_packs_can_be_activated(tmp_path: Path, with_parameters: bool) -> None:
    shutil.copytree(SHIPPED, tmp_path / "policies.d", copy_function=shutil.copyfile)
    async with Service(tmp_path, live=True) as service:
        chosen: dict[str, Any] = {}
        for pack_id in PACKS:
            # A parameter that two packs have is chosen alike in both.
            chosen = parameters_of(pack_id) | chosen if with_parameters else {}
            parameters = {name: chosen[name] for name in parameters_of(pack_id) if with_parameters}
            before = service.context.live.revision
            answer = await service.call(
                "admin", "POST", f"/v1/policy-presets/packs/{pack_id}/activate", {"parameters": parameters}
            )
            assert answer.status_code == 200, (pack_id, answer.json())
            assert service.context.live.revision <= before + 1, "one activation is one revision"
            lacking = {name for each in answer.json() for name in each.get("missingSettings", ())}
            assert lacking <= {name for name in SETTINGS if name not in parameters}
        for problem in (await service.call("admin", "GET", "/health")).json()["policies"]["inactive"]:
            assert "governance settings set" in problem["message"]


PRESET = """\
apiVersion: governance/v1
kind: Preset
presetId: {id}
category: money
name: {id}
description: d
action: block
matchConditions:
  - {{field: toolName, operator: equals, value: {id}}}
examples:
  - {{match: true, toolName: {id}}}
  - {{match: false, toolName: other}}
"""
PACK = """\
apiVersion: governance/v1
kind: Pack
packId: {id}
name: {id}
description: d
presets: [{presets}]
"""


def write(policies: Path, **packs: str) -> None:
    """These packs, with the presets that they name."""
    for path in ("policies", "presets/money", "packs"):
        (policies / path).mkdir(parents=True, exist_ok=True)
    for pack_id, presets in packs.items():
        (policies / f"packs/{pack_id}.yaml").write_text(PACK.format(id=pack_id, presets=presets))
        for preset_id in presets.split(", "):
            (policies / f"presets/money/{preset_id}.yaml").write_text(PRESET.format(id=preset_id))


async def test_packs_that_share_presets_can_be_activated_at_once(tmp_path: Path) -> None:
    write(tmp_path / "policies.d", one="a, b, c", two="b, c, d", three="c, d, a")
    async with Service(tmp_path, live=True) as service:

        async def activate(pack_id: str) -> Any:
            return await service.call("admin", "POST", f"/v1/policy-presets/packs/{pack_id}/activate")

        answers = await asyncio.gather(*map(activate, ("one", "two", "three", "one")))
        assert [answer.status_code for answer in answers] == [200] * 4, [each.json() for each in answers]
        made = [each["policyId"] for answer in answers for each in answer.json()]
        assert sorted(made) == ["a", "b", "c", "d"]


async def test_a_policy_that_has_the_id_of_a_preset_is_told_of(tmp_path: Path) -> None:
    write(tmp_path / "policies.d", one="a")
    (tmp_path / "policies.d/policies/a.yaml").write_text(document("a"))
    async with Service(tmp_path, live=True) as service:
        answer = await service.call("admin", "POST", "/v1/policy-presets/packs/one/activate")
        assert (answer.status_code, answer.json()["code"]) == (409, "policy_exists")
        assert "the policy `a` was not made from the preset of that name" in answer.json()["detail"]
        assert (await service.call("admin", "DELETE", "/v1/policies/a")).status_code in (200, 204)
        answer = await service.call("admin", "POST", "/v1/policy-presets/packs/one/activate")
        assert [each["policyId"] for each in answer.json()] == ["a"]
