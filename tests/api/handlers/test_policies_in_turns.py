"""Versions of documents are read and written out in people's turns, however many they are: nothing of it is
done on the event loop, which everybody else needs. Of writes few are under way at once, and
those who write take turns."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from api.context import MOST_WRITES
from api.handlers import definitions, policies, presets, settings
from engine.live import LivePolicies
from tests.harness.application import PEOPLE, Service
from tests.harness.policy_bodies import on_tool

POLICY = on_tool("Wires", "block", "wire")
PRESET = {
    "apiVersion": "governance/v1",
    "kind": "Preset",
    "presetId": "wires",
    "category": "money",
    "description": "Stops wires.",
    "examples": [{"toolName": "wire", "match": True}],
    **{name: POLICY[name] for name in ("name", "action", "matchConditions")},
}
TOOLS = {
    "toolSetId": "ours",
    "name": "Ours",
    "tools": [{"names": ["post"], "kind": "mail", "effect": "send"}],
}


def test_versions_are_written_out_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []

    def noted(module: ModuleType, name: str) -> None:
        function = getattr(module, name)

        def note(*arguments: Any, **named: Any) -> Any:
            threads.append(threading.current_thread().name)
            return function(*arguments, **named)

        monkeypatch.setattr(module, name, note)

    for module in (definitions, settings):
        noted(module, "version_as_json")
    for name in ("_version", "_page"):
        noted(policies, name)
    noted(presets, "_preset_json")

    async def play() -> None:
        files = {"presets/money/wires.yaml": json.dumps(PRESET)}
        async with Service(tmp_path, live=True, files=files) as service:
            assert len((await service.call("viewer", "GET", "/v1/policy-presets")).json()) == 1
            for path, body in (("policies", POLICY), ("tools", TOOLS)):
                made = await service.call("admin", "POST", f"/v1/{path}", body)
                assert made.status_code == 201, made.text
                document = made.headers["location"]
                await service.answered("admin", "PATCH", document, {"description": "other"})
                found = (await service.call("viewer", "GET", f"{document}/versions")).json()
                numbers = [each["version"] for each in (found["versions"] if path == "policies" else found)]
                assert numbers == ([1] if path == "policies" else [2, 1])
            domains = {"settings": {"companyDomains": ["acme.example"]}}
            assert (await service.call("admin", "PUT", "/v1/organisation/settings", domains)).is_success
            kept = (await service.call("admin", "GET", "/v1/organisation/settings/versions")).json()
            assert kept[0]["settings"] == domains["settings"]
            assert len((await service.call("viewer", "GET", "/v1/policies")).json()) == 1
            missing = await service.call("viewer", "GET", "/v1/policies/none/versions")
            assert missing.status_code == 404 and missing.json()["code"] == "not_found"
            missing = await service.call("viewer", "GET", "/v1/tools/none/versions")
            assert missing.status_code == 404 and missing.json()["code"] == "not_found"

    asyncio.run(play())
    assert len(threads) >= 6 and {name.partition("-")[0] for name in threads} == {"people"}


def test_few_writes_are_under_way_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    under_way: list[int] = []
    most: list[int] = []

    def noted(function: Any) -> Any:
        def note(*arguments: Any) -> Any:
            under_way.append(1)
            most.append(len(under_way))
            time.sleep(0.01)  # for others to begin
            try:
                return function(*arguments)
            finally:
                under_way.pop()

        return note

    monkeypatch.setattr(LivePolicies, "write", noted(LivePolicies.write))
    monkeypatch.setattr(policies.bodies, "read", noted(policies.bodies.read))

    async def play() -> None:
        async with Service(tmp_path, live=True) as service:
            bodies = [POLICY | {"policyId": f"wires-{number}"} for number in range(8)]
            made = [service.call("admin", "POST", "/v1/policies", body) for body in bodies]
            assert {answer.status_code for answer in await asyncio.gather(*made)} == {201}
            changes = {"description": "other"}
            changed = [
                service.call("admin", "PATCH", f"/v1/policies/{body['policyId']}", changes) for body in bodies
            ]
            assert {answer.status_code for answer in await asyncio.gather(*changed)} == {200}

    asyncio.run(play())
    assert len(most) == 32 and max(most) <= MOST_WRITES


def test_nobody_stands_behind_all_that_another_admin_writes(tmp_path: Path) -> None:
    order: list[str] = []

    async def play() -> None:
        async with Service(tmp_path, live=True) as service:

            async def write(who: str, number: int) -> None:
                body = POLICY | {"policyId": f"wires-{number}"}
                assert (await service.call(who, "POST", "/v1/policies", body)).status_code == 201
                order.append(who)

            many = [asyncio.create_task(write("admin", number)) for number in range(30)]
            while service.context.writes._waiting == {}:
                await asyncio.sleep(0.001)
            await asyncio.gather(*many, write("other admin", 0))

    asyncio.run(play())
    assert order.index("other admin") < 15


async def test_a_policy_that_waits_for_its_turn_is_not_written_for_somebody_who_was_disabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go = threading.Event(), threading.Event()
    write = LivePolicies.write

    def late(live: LivePolicies, operation: Any) -> Any:
        begun.set()
        assert go.wait(60)
        return write(live, operation)

    async with Service(tmp_path, live=True) as service:
        monkeypatch.setattr(LivePolicies, "write", late)
        waiting = asyncio.create_task(service.call("second admin", "POST", "/v1/policies", POLICY))
        assert await asyncio.to_thread(begun.wait, 60)
        users = (await service.call("admin", "GET", "/v1/users")).json()
        (who,) = (each["userId"] for each in users if each["email"] == PEOPLE["second admin"][1])
        await service.answered("admin", "PATCH", f"/v1/users/{who}", {"enabled": False})
        go.set()
        assert (await waiting).status_code == 401
        assert (await service.call("admin", "GET", "/v1/policies/wires")).status_code == 404
