"""The webhook endpoints of the real application: registering, changing, deliveries, and what a day sends."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import standardwebhooks

import schemas
from api.store.webhooks import webhooks
from tests.harness.application import Service
from tests.harness.policy_bodies import on_tool
from tests.harness.receiver import Answer, Receiver

HOOK = {"url": "https://example.com/hook?token=s3cret", "events": ["tool.blocked", "run.failed"]}
POLICIES = [
    on_tool("No wires", "block", "wire"),
    on_tool("Ask first", "require_approval", "mail"),
    on_tool("Careful", "warn", "delete"),
]


def conforms(name: str, value: Any) -> None:
    jsonschema.Draft202012Validator(schemas.load(name)).validate(value)


@asynccontextmanager
async def serving(folder: Path, policies: Any = (), **environment: str) -> AsyncIterator[Service]:
    async with asyncio.timeout(60), Service(folder, policies, environment=environment) as service:
        yield service


async def registered(service: Service, **body: Any) -> dict[str, Any]:
    record: dict[str, Any] = await service.answered(
        "admin", "POST", "/v1/webhooks", {**HOOK, **body}, status=201
    )
    return record


async def deliveries(service: Service, webhook_id: str, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = await service.answered(
        "admin", "GET", f"/v1/webhooks/{webhook_id}/deliveries{query}"
    )
    for record in found:
        conforms("bodies/delivery", record)
    return found


async def settled(service: Service, webhook_id: str) -> list[dict[str, Any]]:
    """The deliveries, once none is pending."""
    deadline = time.monotonic() + 15
    while True:
        found = await deliveries(service, webhook_id)
        if found and all(record["status"] != "pending" for record in found):
            return found
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.02)


async def test_a_webhook_from_registration_to_deletion(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        made = await service.call("admin", "POST", "/v1/webhooks", {**HOOK, "description": "to the pager"})
        record = made.json()
        conforms("bodies/webhook-created", record)
        path = f"/v1/webhooks/{record['webhookId']}"
        assert made.headers["location"] == path
        assert record["enabled"] is True and record["description"] == "to the pager"
        secret = record.pop("secret")
        assert secret.startswith("whsec_")

        conforms("bodies/webhook", record)
        assert (await service.call("admin", "GET", path)).json() == record
        listed = await service.call("admin", "GET", "/v1/webhooks")
        assert listed.json() == [record] and listed.headers["x-total-count"] == "1"

        changes = {"events": ["approval.requested"], "enabled": False, "description": None}
        changed = (await service.call("admin", "PATCH", path, changes)).json()
        assert changed == {name: value for name, value in (record | changes).items() if name != "description"}
        same = await service.call("admin", "PATCH", path, {})
        assert same.status_code == 200 and same.json() == changed

        rotated = (await service.call("admin", "POST", f"{path}/rotate")).json()
        conforms("bodies/webhook-created", rotated)
        assert rotated["secret"].startswith("whsec_") and rotated["secret"] != secret

        assert (await service.call("admin", "DELETE", path)).status_code == 204
        for method, rest in (("GET", ""), ("DELETE", ""), ("GET", "/deliveries"), ("POST", "/rotate")):
            assert (await service.call("admin", method, path + rest)).status_code == 404
        assert (await service.call("admin", "GET", "/v1/webhooks")).json() == []

        rows = await service.context.store.read(
            service.context.store.rows,
            "SELECT record FROM audit WHERE type LIKE 'webhook.%' ORDER BY sequence",
        )
        records = [json.loads(row[0]) for row in rows]
        assert [record["type"] for record in records] == [
            "webhook.created",
            "webhook.updated",
            "webhook.updated",
            "webhook.rotated",
            "webhook.deleted",
        ]
        assert {record["actor"] for record in records} == {"admin@acme.example"}
        text = json.dumps(records)
        assert "whsec_" not in text and "s3cret" not in text
        assert records[0]["details"]["receiver"] == "https://example.com"


@pytest.mark.parametrize(
    ("body", "pointer", "words"),
    [
        ({"url": "http://example.com/"}, "/url", "must be https"),
        ({"url": "https://user:pw@example.com/"}, "/url", "user name or password"),
        ({"url": "https://example.com/#a"}, "/url", "fragment"),
        ({"url": "https://127.0.0.1/"}, "/url", "loopback"),
        ({"url": "https://[::1]/"}, "/url", "loopback"),
        ({"url": "https://169.254.169.254/"}, "/url", "metadata"),
        ({"url": "nonsense"}, "/url", "not an https address"),
        ({"url": ""}, "/url", ""),
        ({"url": 5}, "/url", ""),
        ({"url": "https://example.com/" + "a" * 3000}, "/url", ""),
        ({"events": []}, "/events", ""),
        ({"events": ["tool.blocked", "tool.blocked"]}, "/events", ""),
        ({"events": ["tool.bloked"]}, "/events/0", "did you mean `tool.blocked`?"),
        ({"events": ["run.failed", "approval_requested"]}, "/events/1", "did you mean `approval.requested`?"),
        ({"events": ["zzz"]}, "/events/0", "known are `approval.requested`, "),
        ({"events": ["*"]}, "/events/0", "known are"),
        ({"events": [1]}, "/events/0", ""),
        ({"events": "tool.blocked"}, "/events", ""),
        ({"enabled": "yes"}, "/enabled", ""),
        ({"description": 1}, "/description", ""),
    ],
)
async def test_what_cannot_be_registered(
    tmp_path: Path, body: dict[str, Any], pointer: str, words: str
) -> None:
    async with serving(tmp_path) as service:
        webhook_id = (await registered(service))["webhookId"]
        for answer in (
            await service.call("admin", "POST", "/v1/webhooks", HOOK | body),
            await service.call("admin", "PATCH", f"/v1/webhooks/{webhook_id}", body),
        ):
            assert answer.status_code == 422, answer.text
            (error,) = [error for error in answer.json()["errors"] if error["pointer"] == pointer]
            assert words in error["message"]
        assert len((await service.call("admin", "GET", "/v1/webhooks")).json()) == 1


async def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        body = {"url": "http://example.com/", "events": ["run.fialed", "tool.blocked", "nope"]}
        answer = await service.call("admin", "POST", "/v1/webhooks", body)
        assert [error["pointer"] for error in answer.json()["errors"]] == ["/url", "/events/0", "/events/2"]
        await service.answered("admin", "POST", "/v1/webhooks", HOOK | {"secret": "mine"}, status=422)


async def test_webhooks_of_another_organisation_do_not_exist(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        webhook_id = (await registered(service))["webhookId"]
        path = f"/v1/webhooks/{webhook_id}"
        delivery_id = (await service.call("admin", "POST", f"{path}/test")).json()["deliveryId"]
        for method, rest, body in (
            ("GET", "", None),
            ("PATCH", "", {"enabled": False}),
            ("DELETE", "", None),
            ("POST", "/rotate", None),
            ("POST", "/test", None),
            ("GET", "/deliveries", None),
            ("POST", f"/deliveries/{delivery_id}/redeliver", None),
        ):
            answer = await service.call("other admin", method, path + rest, body)
            assert answer.status_code == 404, (method, rest)
        assert (await service.call("other admin", "GET", "/v1/webhooks")).json() == []
        mine = await service.call("other admin", "POST", "/v1/webhooks", HOOK)
        across = f"/v1/webhooks/{mine.json()['webhookId']}/deliveries/{delivery_id}/redeliver"
        assert (await service.call("other admin", "POST", across)).status_code == 404


async def test_an_organisation_has_so_many_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "MOST_REGISTERED", 3)
    async with serving(tmp_path) as service:
        made = [(await registered(service))["webhookId"] for _ in range(3)]
        refused = await service.call("admin", "POST", "/v1/webhooks", HOOK)
        assert refused.status_code == 409 and refused.json()["code"] == "conflict"
        assert "as many as may be" in refused.json()["detail"]
        assert (await service.call("other admin", "POST", "/v1/webhooks", HOOK)).status_code == 201
        assert (await service.call("admin", "DELETE", f"/v1/webhooks/{made[0]}")).status_code == 204
        await registered(service)


async def test_lists_come_in_pages(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        made = [(await registered(service))["webhookId"] for _ in range(5)]
        seen: list[str] = []
        path = "/v1/webhooks?limit=2"
        while path:
            answer = await service.call("admin", "GET", path)
            assert answer.headers["x-total-count"] == "5"
            seen += [record["webhookId"] for record in answer.json()]
            path = answer.headers.get("link", "").partition("<")[2].partition(">")[0]
        assert seen == made

        sent = [
            (await service.call("admin", "POST", f"/v1/webhooks/{made[0]}/test")).json()["deliveryId"]
            for _ in range(5)
        ]
        seen, path = [], f"/v1/webhooks/{made[0]}/deliveries?limit=2"
        while path:
            answer = await service.call("admin", "GET", path)
            seen += [record["deliveryId"] for record in answer.json()]
            path = answer.headers.get("link", "").partition("<")[2].partition(">")[0]
        assert seen == list(reversed(sent)), "newest first"
        for limit, status in ((500, 200), (501, 422), (0, 422)):
            path = f"/v1/webhooks/{made[0]}/deliveries?limit={limit}"
            assert (await service.call("admin", "GET", path)).status_code == status


@pytest.mark.parametrize(
    "cursor", ["MTAwMDAwMDAwMDAwMDAwMDAwMDAwMA", "LTU", "IlwwMDAwIg", "IlxcdTAwMDAi", "???"]
)
async def test_forged_cursors_are_harmless(tmp_path: Path, cursor: str) -> None:
    async with serving(tmp_path) as service:
        webhook_id = (await registered(service))["webhookId"]
        for path in ("/v1/webhooks", f"/v1/webhooks/{webhook_id}/deliveries"):
            answer = await service.call("admin", "GET", f"{path}?cursor={cursor}")
            assert answer.status_code in (200, 422), answer.text


async def test_a_test_event_is_delivered_and_can_be_sent_again(tmp_path: Path) -> None:
    with Receiver([Answer(), Answer(500), Answer()]) as receiver:
        async with serving(
            tmp_path, GOVERNANCE_WEBHOOK_ALLOW=receiver.place, GOVERNANCE_WEBHOOK_RETRY="0"
        ) as service:
            webhook = await registered(service, url=receiver.url)
            path = f"/v1/webhooks/{webhook['webhookId']}"
            answer = await service.call("admin", "POST", f"{path}/test")
            assert answer.status_code == 202
            conforms("bodies/delivery", answer.json())
            assert answer.json()["status"] == "pending" and answer.json()["event"] == "webhook.test"
            delivery_id = answer.json()["deliveryId"]
            (record,) = await settled(service, webhook["webhookId"])
            assert record["status"] == "delivered" and record["deliveryId"] == delivery_id
            conforms("events/webhook.test", record["payload"]["data"])

            again = await service.call("admin", "POST", f"{path}/deliveries/{delivery_id}/redeliver")
            assert again.status_code == 202 and again.json()["status"] == "pending"
            (record,) = await settled(service, webhook["webhookId"])
            assert record["status"] == "failed" and len(record["attempts"]) == 2
            await service.call("admin", "POST", f"{path}/deliveries/{delivery_id}/redeliver")
            (record,) = await settled(service, webhook["webhookId"])
            assert record["status"] == "delivered"
            assert [attempt["responseStatus"] for attempt in record["attempts"]] == [200, 500, 200]
            assert {request.id for request in receiver.requests} == {delivery_id}
            assert len({request.body for request in receiver.requests}) == 1
            await service.answered("admin", "POST", f"{path}/deliveries/dlv_0/redeliver", status=404)


async def test_nothing_is_sent_to_a_disabled_webhook(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        webhook_id = (await registered(service))["webhookId"]
        path = f"/v1/webhooks/{webhook_id}"
        delivery_id = (await service.call("admin", "POST", f"{path}/test")).json()["deliveryId"]
        await service.call("admin", "PATCH", path, {"enabled": False})
        for rest in ("/test", f"/deliveries/{delivery_id}/redeliver"):
            answer = await service.call("admin", "POST", path + rest)
            assert answer.status_code == 409 and answer.json()["code"] == "conflict"
            assert "enable it first" in answer.json()["detail"]


async def test_a_day_of_events_sends_what_the_schemas_say(tmp_path: Path) -> None:
    with Receiver() as receiver:
        async with serving(tmp_path, POLICIES, GOVERNANCE_WEBHOOK_ALLOW=receiver.place) as service:
            webhook = await registered(service, url=receiver.url, events=list(webhooks.EVENTS))
            number = iter(range(100))

            async def report(event_type: str, **fields: Any) -> dict[str, Any]:
                answer = await service.report("agent", next(number), event_type, **fields)
                assert answer.status_code == 200, answer.text
                found: dict[str, Any] = answer.json()
                return found

            await report("run.started", task="a day")
            await report("tool.called", toolCallId="1", toolName="wire", inputPayload={"amount": 9})
            await report("tool.called", toolCallId="2", toolName="delete", inputPayload={})
            held = await report("tool.called", toolCallId="3", toolName="mail", inputPayload={"to": "ä@b.c"})
            path = f"/v1/approvals/{held['approvalId']}/approve"
            assert (await service.call("reviewer", "POST", path, {"reason": "fine"})).status_code == 200
            await report("tool.completed", toolCallId="1", outputPayload={})
            await service.answered("admin", "POST", "/v1/halt", {"scope": "all", "reason": "enough"})
            await report("tool.called", toolCallId="4", toolName="read", inputPayload={})
            await report("run.completed")
            await service.report("agent", 101, "run.failed", runId="run-2")
            await service.call("admin", "POST", f"/v1/webhooks/{webhook['webhookId']}/test")
            found = await settled(service, webhook["webhookId"])
            sent = {record["deliveryId"]: record["payload"] for record in found}
            assert all(record["status"] == "delivered" for record in found)
            assert {payload["event"] for payload in sent.values()} == set(webhooks.EVENTS) - {
                *("policy.changed", "policy.reload_failed", "alert.raised"),
                *("approval.progressed", "approval.escalated", "grant.created", "grant.revoked"),
                *("change.requested", "change.resolved"),
            }
            for payload in sent.values():
                conforms(f"events/{payload['event']}", payload["data"])
            verifier = standardwebhooks.Webhook(webhook["secret"])
            for request in receiver.requests:
                # The service's clock stands in another century, so only the signature can agree.
                stamp = int(request.headers["webhook-timestamp"])
                signed = f"{request.id}.{stamp}.".encode() + request.body
                import base64

                from standardwebhooks.webhooks import hmac_data

                expected = base64.b64encode(hmac_data(verifier._whsecret, signed)).decode()
                assert request.headers["webhook-signature"] == f"v1,{expected}"
                assert request.json == sent[request.id]


HANGS = 30
"""Seconds."""


async def test_receivers_that_hang_do_not_delay_the_api(tmp_path: Path) -> None:
    with Receiver([Answer(delay=HANGS)]) as receiver:
        async with serving(tmp_path, POLICIES, GOVERNANCE_WEBHOOK_ALLOW=receiver.place) as service:
            for _ in range(10):
                await registered(service, url=receiver.url, events=["tool.blocked"])
            longest = 0.0
            for number in range(60):
                began = time.monotonic()
                answer = await service.report(
                    "agent", number, "tool.called", toolCallId=str(number), toolName="wire", inputPayload={}
                )
                longest = max(longest, time.monotonic() - began)
                assert answer.json()["toolCallStatus"] == "blocked"
            await asyncio.to_thread(receiver.wait_for, 10)
            assert len(receiver.requests) == 10, "all hang"
            assert longest < HANGS / 3, "and nobody waits for them; the machine may be busy"
