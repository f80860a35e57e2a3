"""Files and API together, through HTTP: a broken file is reported and left alone, and what was stays."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.harness.application import Service

HOLD = {
    "name": "Hold payments",
    "action": "require_approval",
    "matchConditions": [{"field": "toolName", "operator": "equals", "value": "pay"}],
}


def conversation(tmp_path: Path, steps: Any, **environment: str) -> None:
    async def play() -> None:
        async with Service(tmp_path, [HOLD], live=True, environment=environment) as service:
            await steps(service)

    asyncio.run(play())


async def until(check: Any) -> Any:
    """The first true answer of `check`; the watcher needs a moment."""
    for _ in range(200):
        if found := await check():
            return found
        await asyncio.sleep(0.05)
    raise AssertionError("it did not come to pass")


def test_a_broken_file_is_a_conflict_and_stays_as_it_is(tmp_path: Path) -> None:
    async def steps(service: Service) -> None:
        file = service.settings.policies_dir / "policies" / "hold-payments.yaml"
        broken = file.read_text(encoding="utf-8").replace("require_approval", "requires_approval")
        file.write_text(broken, encoding="utf-8")
        answer = await service.call("admin", "PATCH", "/v1/policies/hold-payments", {"enabled": False})
        assert answer.status_code == 409
        problem = answer.json()
        assert problem["code"] == "policy_file_invalid"
        assert problem["errors"][0]["file"] == "policies/hold-payments.yaml"
        assert problem["errors"][0]["line"] > 0
        assert "did you mean `require_approval`" in problem["errors"][0]["message"]
        assert file.read_text(encoding="utf-8") == broken

        async def stale() -> Any:
            found = (await service.call("nobody", "GET", "/health")).json()
            return found if found["policies"]["stale"] else None

        health = await until(stale)
        assert health["status"] == "ok"
        assert "policies/hold-payments.yaml" in str(health["policies"]["errors"])
        decided = await service.report("agent", 1, "tool.called", toolCallId="c-1", toolName="pay")
        assert decided.json()["toolCallStatus"] == "awaiting_approval"

    conversation(tmp_path, steps)


def test_an_edit_on_disk_counts_before_the_one_by_the_api(tmp_path: Path) -> None:
    async def steps(service: Service) -> None:
        file = service.settings.policies_dir / "policies" / "hold-payments.yaml"
        file.write_text(
            file.read_text(encoding="utf-8").replace("Hold payments", "Hold all payments"), "utf-8"
        )
        answer = await service.call("admin", "PATCH", "/v1/policies/hold-payments", {"action": "block"})
        assert answer.status_code == 200
        assert answer.json()["name"] == "Hold all payments"
        assert answer.json()["version"] == 3
        history = (await service.call("viewer", "GET", "/v1/policies/hold-payments/versions")).json()
        assert [(entry["version"], entry["source"]) for entry in history["versions"]] == [
            (2, "file"),
            (1, "file"),
        ]

    conversation(tmp_path, steps)


def test_the_body_limit_is_a_setting(tmp_path: Path) -> None:
    async def steps(service: Service) -> None:
        payload = {"text": "x" * 3000}
        answer = await service.report(
            "agent", 1, "tool.called", toolCallId="c-1", toolName="pay", inputPayload=payload
        )
        assert (answer.status_code, answer.json()["code"]) == (413, "payload_too_large")

    conversation(tmp_path, steps, GOVERNANCE_MAX_BODY_BYTES="2048")


def test_the_lifetime_of_tokens_is_a_setting(tmp_path: Path) -> None:
    async def steps(service: Service) -> None:
        assert (await service.call("viewer", "GET", "/v1/me")).status_code == 200
        service.clock.advance(61)
        answer = await service.call("viewer", "GET", "/v1/me")
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")

    conversation(tmp_path, steps, GOVERNANCE_TOKEN_SECONDS="60")
