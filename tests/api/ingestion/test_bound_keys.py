"""`GOVERNANCE_REQUIRE_BOUND_KEYS=on`: a key that is bound to no agent reports nothing."""

from __future__ import annotations

from pathlib import Path

from tests.harness.application import Service, event

SETTING = {"GOVERNANCE_REQUIRE_BOUND_KEYS": "on"}


async def test_only_bound_keys_report_where_that_is_asked_for(tmp_path: Path) -> None:
    async with Service(tmp_path, environment=SETTING) as service:
        refused = await service.report("agent", 1, "run.started")
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        assert "bound to no agent" in refused.json()["detail"]
        assert (await service.report("bound agent", 2, "run.started")).status_code == 200
        batch = {"events": [event(3, "custom.note", service.clock.text, {})]}
        for who, status in (("agent", 403), ("bound agent", 200)):
            answer = await service.call(who, "POST", "/v1/events/batch", batch)
            assert [each["status"] for each in answer.json()["results"]] == [status]
        assert (await service.call("agent", "GET", "/v1/runs")).status_code == 200
