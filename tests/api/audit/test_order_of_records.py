"""Which record came later, the record says itself: clocks go back, and those of two nodes differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from api.audit import testimony
from tests.harness.application import Service


async def test_a_clock_that_goes_back_between_changes_leaves_a_valid_record(tmp_path: Path) -> None:
    async with Service(tmp_path) as service:

        async def changed(method: str, path: str, *bodies: Any) -> Any:
            for body in bodies:
                answer = await service.call("admin", method, path, body)
                assert answer.status_code < 300, answer.text
                service.clock.advance(-1)
            return answer.json() if answer.content else None

        person = {"email": "x@acme.example", "role": "reviewer", "password": "correct horse battery"}
        user = await changed("POST", "/v1/users", person)
        off, on = {"enabled": False}, {"enabled": True}
        await changed("PATCH", f"/v1/users/{user['userId']}", off, on, {"role": "viewer"})
        hook = {"url": "https://hooks.example.com/in", "events": ["tool.blocked"]}
        kept, gone = [await changed("POST", "/v1/webhooks", hook) for _ in range(2)]
        for webhook in (kept, gone):
            await changed("PATCH", f"/v1/webhooks/{webhook['webhookId']}", off, on)
        await changed("DELETE", f"/v1/webhooks/{gone['webhookId']}", None)
        found = (await service.call("admin", "GET", "/v1/audit/verify")).json()
        assert found["problems"] == [] and found["valid"]


def test_the_clocks_of_two_nodes_order_nothing() -> None:
    heard = testimony.Testimony(lambda key_id: None)
    for chain, at, order, details in (
        (1, "2026-01-31T09:00:00Z", 2, {"enabled": True}),
        (2, "2026-01-31T09:00:00Z", None, {"email": "x@acme.example", "role": "viewer"}),
        (2, "2026-01-31T09:05:00Z", 1, {"enabled": False}),
    ):
        details = {"userId": "usr_1", **details} | ({} if order is None else {"order": order})
        kind = "user.created" if order is None else "user.updated"
        heard.told({"type": kind, "at": at, "chain": chain, "sequence": 1, "details": details})
    heard.finish()
    assert heard.state["user", "usr_1"] == ("x@acme.example", "viewer", True)
