"""Keys that end by themselves, and when keys were last used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from api.auth.credentials import key_digest
from api.auth.key_use import KeyUse
from api.clock import iso
from api.ingestion.quotas import Quotas
from api.store import accounts
from tests.harness.application import Service, event

START = 4_102_444_800.0


async def made(service: Service, **members: Any) -> dict[str, Any]:
    found: dict[str, Any] = await service.answered(
        "admin", "POST", "/v1/api-keys", {"name": "deployment", **members}, status=201
    )
    return found


async def test_a_key_ends_by_itself_everywhere_at_once(tmp_path: Path) -> None:
    async with Service(tmp_path) as service:
        for_good = await made(service)
        for_a_while = await made(service, expiresAt=iso(START + 60))
        assert for_a_while["expiresAt"] == iso(START + 60) and "expiresAt" not in for_good
        header = {"X-API-Key": for_a_while["key"]}
        body = event(1, "tool.called", service.clock.text, {"toolCallId": "c1", "toolName": "look"})
        assert (await service.call(header, "POST", "/v1/events", body)).status_code == 200
        service.clock.advance(60)
        assert (await service.call(header, "POST", "/v1/events", body)).status_code == 401
        assert (await service.call(header, "GET", "/v1/runs")).status_code == 401
        assert (await service.call({"X-API-Key": for_good["key"]}, "GET", "/v1/runs")).status_code == 200
        service.context.credentials.load_keys()
        assert (await service.call(header, "GET", "/v1/runs")).status_code == 401
        rotated = await service.call("admin", "POST", f"/v1/api-keys/{for_a_while['keyId']}/rotate")
        assert rotated.status_code == 409 and "has expired" in rotated.json()["detail"]


async def test_who_looks_why_an_agent_stands_still_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Service(tmp_path) as service:
        key = await made(service, expiresAt=iso(START + 60))
        service.clock.advance(60)
        for _ in range(2):
            answer = await service.call({"X-API-Key": key["key"]}, "GET", "/v1/runs")
            assert answer.status_code == 401 and "the API key has expired" in answer.json()["detail"]
        wrong = await service.call({"X-API-Key": key["key"] + "x"}, "GET", "/v1/runs")
        assert wrong.status_code == 401 and "not valid" in wrong.json()["detail"]
    told = [record.getMessage() for record in caplog.records if "has expired" in record.getMessage()]
    assert len(told) == 1 and f"`{key['keyId']}`" in told[0]


async def test_a_key_is_right_again_when_the_clock_was_ahead_for_a_while(tmp_path: Path) -> None:
    async with Service(tmp_path) as service:
        header = {"X-API-Key": (await made(service, expiresAt=iso(START + 60)))["key"]}
        service.clock.advance(86_400)
        statuses = {(await service.call(header, "GET", "/v1/runs")).status_code for _ in range(100)}
        assert statuses == {401, 429}
        service.clock.advance(-86_400)
        assert (await service.call(header, "GET", "/v1/runs")).status_code == 200


@pytest.mark.parametrize("text", ["2020-01-01T00:00:00Z", "tomorrow", "9999-99-99T00:00:00Z"])
async def test_an_end_is_a_moment_to_come(tmp_path: Path, text: str) -> None:
    async with Service(tmp_path) as service:
        answer = await service.answered(
            "admin", "POST", "/v1/api-keys", {"name": "x", "expiresAt": text}, status=422
        )
        assert [error["pointer"] for error in answer["errors"]] == ["/expiresAt"]


async def test_the_last_use_is_kept_to_the_minute(tmp_path: Path) -> None:
    async with Service(tmp_path) as service:
        used, idle = await made(service), await made(service)
        quotas = Quotas(0, 0)
        key_use = KeyUse(quotas.used, service.context.writer)

        async def last_use() -> dict[str, str | None]:
            keys = (await service.call("admin", "GET", "/v1/api-keys")).json()
            return {key["keyId"]: key.get("lastUsedAt") for key in keys}

        quotas.take(used["keyId"], 10)
        await key_use.write_down()
        assert (await last_use())[used["keyId"]] == iso(START)
        assert (await last_use())[idle["keyId"]] is None
        service.clock.advance(60)
        await key_use.write_down()
        assert (await last_use())[used["keyId"]] == iso(START)
        quotas.take(used["keyId"], 10)
        await key_use.close()
        assert (await last_use())[used["keyId"]] == iso(START + 60)


async def test_events_and_reads_are_uses(tmp_path: Path) -> None:
    async with Service(tmp_path) as service:
        body = event(1, "tool.called", service.clock.text, {"toolCallId": "c1", "toolName": "look"})
        quotas = service.context.intake.quotas
        quotas.used()
        await service.call("agent", "POST", "/v1/events", body)
        assert len(quotas.used()) == 1 and quotas.used() == []
        await service.call("agent", "GET", "/v1/runs")
        assert len(quotas.used()) == 1


async def test_keys_are_bounded_and_those_that_stay_are_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With each change of one all are read before the next event: 10,000 of one organisation took 0.34 s."""
    async with Service(tmp_path) as service:
        key = await made(service)
        credentials, digest = service.context.credentials, key_digest(key["key"])
        await service.context.store.read(credentials.load_keys)
        before = credentials.known(digest)
        _, keys = await service.context.store.read(accounts.list_keys, "default")
        monkeypatch.setattr(accounts, "MOST_KEYS", keys + 1)
        another = await made(service)
        await service.context.store.read(credentials.load_keys)
        assert before is not None and credentials.known(digest) is before
        refused = await service.call("admin", "POST", "/v1/api-keys", {"name": "one more"})
        assert refused.status_code == 409 and "revoke some" in refused.json()["detail"]
        assert (
            await service.call("other admin", "POST", "/v1/api-keys", {"name": "ours"})
        ).status_code == 201
        assert (await service.call("admin", "DELETE", f"/v1/api-keys/{another['keyId']}")).status_code == 204
        await made(service)


async def test_keys_whose_time_is_over_for_long_stand_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where each run of a pipeline gets a key for an hour."""
    async with Service(tmp_path) as service:
        later, first = [await made(service, expiresAt=iso(START + end)) for end in (120, 60)]
        _, keys = await service.context.store.read(accounts.list_keys, "default")
        monkeypatch.setattr(accounts, "MOST_KEYS", keys)
        monkeypatch.setattr(accounts, "ENDED_SECONDS", 3_600.0)  # within the life of the admin's token
        service.clock.advance(60 + 3_600 - 1)
        await service.answered("admin", "POST", "/v1/api-keys", {"name": "one more"}, status=409)
        service.clock.advance(1)
        await made(service)
        shown, _ = await service.context.store.read(accounts.list_keys, "default")
        assert [key["keyId"] for key in shown if key["revokedAt"]] == [first["keyId"]] != [later["keyId"]]
        await service.answered("admin", "POST", "/v1/api-keys", {"name": "one more"}, status=409)
