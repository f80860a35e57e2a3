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
def test_the_shipped_packs_can_be_activated(tmp_path: Path, with_parameters: bool) -> None:
    asyncio.run(_activate(tmp_path, with_parameters))


async def _activate(folder: Path, with_parameters: bool) -> None:
    shutil.copytree(SHIPPED, folder / "policies.d", copy_function=shutil.copyfile)
    async with Service(folder, live=True) as service:
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
