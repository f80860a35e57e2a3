"""Old events and deliveries go, in small batches; what proves decisions stays, and nobody has to wait."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from api.audit.verification import verify
from api.clock import DAY, Leaps
from api.database.errors import DatabaseUnavailable
from api.database.partitions.upkeep import Partitions
from api.retention import cleaning
from api.retention.caution import Caution, leaps_of
from api.retention.cleaning import Retention, clean
from api.settings import SettingsError, load
from api.store import expiry
from api.store.alerts import alerts
from tests.harness.application import Service
from tests.harness.policy_bodies import on_tool
from tests.harness.watching import files, look

HOLD = on_tool("Hold payments", "require_approval", "pay")
FEW = on_tool("Few mails", "block", "mail", rateLimit={"limit": 3, "windowSeconds": 60})


async def cleaned(service: Service, retention: Retention) -> int:
    return await clean(retention, service.context.id_index, service.context.writer, service.clock())


def count(service: Service, table: str) -> Any:
    store = service.context.store
    return store.read_here(store.rows, f"SELECT COUNT(*) FROM {table}")[0][0]


async def told(service: Service, number: int, tool: str = "read") -> Any:
    return await service.report(
        "agent", number, "tool.called", toolCallId=f"call-{number}", toolName=tool, inputPayload={"n": number}
    )


async def until(log: pytest.LogCaptureFixture, condition: Callable[[], bool]) -> None:
    """While a service works on by itself; the log says what it did instead."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, log.text
        await asyncio.sleep(0.05)


async def test_old_events_go_and_decisions_stay(tmp_path: Path, database_url: str) -> None:
    environment = {"GOVERNANCE_DATABASE_URL": database_url, "GOVERNANCE_TOKEN_SECONDS": "999999"}
    async with Service(tmp_path, [HOLD, FEW], environment=environment) as service:
        for number in range(20):
            await told(service, number, "pay" if number == 3 else "read")
        approval_id = (await service.call("reviewer", "GET", "/v1/approvals")).json()[0]["approvalId"]
        records = count(service, "audit")
        service.clock.advance(2 * DAY)
        for number in range(20, 25):
            await told(service, number)
        directory, writer, now = service.context.id_index, service.context.writer, service.clock()
        assert await clean(Retention(0, 0), directory, writer, now) == 0, "0 means for ever"
        assert await clean(Retention(3, 3), directory, writer, now) == 0
        assert await clean(Retention(1, 1), directory, writer, now) == 20
        assert count(service, "events") == 5
        assert count(service, "tool_calls") == 25
        assert count(service, "audit") == records + 5
        assert service.context.store.read_here(verify, service.context.store, "default")["valid"]
        # The payload is gone, all the rest is told; nothing gets the number of what went.
        detail = (await service.call("agent", "GET", f"/v1/approvals/{approval_id}")).json()
        assert detail["status"] == "pending" and detail.get("inputPayload") is None
        run = (await service.call("agent", "GET", "/v1/runs/run-1")).json()
        assert len(run["toolCalls"]) == 25 and run["toolCalls"][24]["inputPayload"] == {"n": 24}
        again = await told(service, 3, "pay")
        assert again.json()["toolCallStatus"] == "awaiting_approval"
        assert again.json()["approvalId"] == approval_id
        # Nobody approves what they cannot see.
        seen = (await service.call("reviewer", "GET", f"/v1/approvals/{approval_id}")).json()
        assert "GOVERNANCE_EVENT_DAYS" in seen["mayNotApprove"]
        refused = await service.call("reviewer", "POST", f"/v1/approvals/{approval_id}/approve", {})
        assert refused.status_code == 403 and "not kept any more" in refused.json()["detail"]
        rejected = await service.call("reviewer", "POST", f"/v1/approvals/{approval_id}/reject", {})
        assert rejected.json()["status"] == "rejected"


async def test_outputs_of_old_calls_go_with_the_events_that_told_them(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaning, "MOST_AT_ONCE", 4)
    looked: list[int] = []
    old_calls = expiry.old_calls

    def noted(*arguments: Any) -> list[tuple[int, bool]]:
        found = old_calls(*arguments)
        looked.extend(number for number, _ in found)
        return found

    monkeypatch.setattr(expiry, "old_calls", noted)
    environment = {"GOVERNANCE_DATABASE_URL": database_url, "GOVERNANCE_TOKEN_SECONDS": "999999"}
    async with Service(tmp_path, environment=environment) as service:

        async def ended(number: int) -> None:
            told = {"toolCallId": f"call-{number}", "outputPayload": {"secret": f"s{number}"}}
            answer = await service.report("agent", f"end-{number}", "tool.completed", **told)
            assert answer.status_code == 200, answer.text

        async def outputs() -> dict[str, Any]:
            run = (await service.call("agent", "GET", "/v1/runs/run-1?limit=100")).json()
            assert len(run["toolCalls"]) == count(service, "tool_calls")
            assert all(call["status"] == "allowed" for call in run["toolCalls"])
            found = {call["toolCallId"]: call.get("outputPayload") for call in run["toolCalls"]}
            return {name: output for name, output in found.items() if output is not None}

        for number in range(20):
            await told(service, number)
        for number in range(0, 20, 2):
            await ended(number)
        service.clock.advance(2 * DAY)
        for number in range(20, 23):
            await told(service, number)
            await ended(number)
        assert await cleaned(service, Retention(0, 0)) == 0 and len(await outputs()) == 13
        assert await cleaned(service, Retention(1, 0)) == 10 + 30
        young = {f"call-{number}": {"secret": f"s{number}"} for number in range(20, 23)}
        assert await outputs() == young
        assert len(looked) == 20
        # What is told of an old call goes with its event, and nobody goes through the old calls again.
        await ended(1)
        assert await outputs() == young
        assert await cleaned(service, Retention(1, 0)) == 0 and len(looked) == 20
        service.clock.advance(2 * DAY)
        await told(service, 23)
        assert await cleaned(service, Retention(1, 0)) == 3 + 7
        assert await outputs() == {} and len(looked) == 23
        assert service.context.store.read_here(verify, service.context.store, "default")["valid"]


@pytest.mark.parametrize("days", [0, 1])
async def test_events_of_a_clock_that_was_ahead_hide_none_and_go_with_those_behind_them(
    tmp_path: Path, database_url: str, days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than one batch takes, years ahead; in partitions that go in one piece, or do not."""
    monkeypatch.setattr(cleaning, "MOST_AT_ONCE", 4)
    monkeypatch.setattr(expiry, "_PASSED_OVER", 0)
    environment = {"GOVERNANCE_DATABASE_URL": database_url, "GOVERNANCE_EVENT_DAYS": str(days)}
    async with Service(tmp_path, environment=environment) as service:
        store, writer = service.context.store, service.context.writer

        async def some(first: int, last: int) -> None:
            for number in range(first, last):
                await told(service, number)
            await writer.write(
                lambda transaction: store.rows_changed(
                    "INSERT INTO deliveries (delivery_id, organisation_id, webhook_id, event, payload,"
                    " status, attempts, attempt_count, leased_until, created_at)"
                    " SELECT event_id || ?, 'default', 'w', 'e', '{}', 'failed', '[]', 0, 0, ?"
                    " FROM events LIMIT 9",
                    (f"-{first}", transaction.at),
                )
            )

        await some(0, 2)
        service.clock.advance(2_000 * DAY)
        await some(2, 15)
        service.clock.advance(-2_000 * DAY)
        kept = Retention(1, 1)
        now, bounds = service.clock(), ("0", "0")
        assert not store.read_here(expiry.anything, store, now, *bounds)
        await some(15, 20)
        assert await cleaned(service, kept) == 0, "they came just now"
        service.clock.advance(2 * DAY)
        await some(20, 22)
        await cleaned(service, kept)
        assert count(service, "deliveries") == 9
        found = store.read_here(store.rows, "SELECT received_at FROM events ORDER BY event_no")
        now = service.clock.text
        assert [at for (at,) in found if at <= now] == [now, now]
        # With several lanes there may be none behind them in their own.
        assert len(found) == 2 or not store.is_sqlite


async def test_the_newest_event_stays_however_old(tmp_path: Path) -> None:
    async with Service(tmp_path) as service:
        for number in range(3):
            await told(service, number)
        service.clock.advance(9 * DAY)
        assert await cleaned(service, Retention(1, 0)) == 2
        await told(service, 4)
        run = (await service.call("agent", "GET", "/v1/runs/run-1")).json()
        payloads = [call["inputPayload"] for call in run["toolCalls"]]
        assert payloads == [None, None, {"n": 2}, {"n": 4}], "a number was given out twice"


async def test_whoever_deletes_all_events_by_hand_has_no_number_given_out_twice(tmp_path: Path) -> None:
    async with Service(tmp_path) as service:
        for number in range(3):
            await told(service, number)
        with closing(sqlite3.connect(service.settings.data_dir / "governance.sqlite")) as shell, shell:
            shell.execute("DELETE FROM events")
        for number in (1, 4, 5):
            assert (await told(service, number)).json()["toolCallStatus"] == "allowed"
        run = (await service.call("agent", "GET", "/v1/runs/run-1")).json()
        payloads = [call["inputPayload"] for call in run["toolCalls"]]
        assert payloads == [None, None, None, {"n": 4}, {"n": 5}]


async def test_a_part_that_cannot_be_done_stops_no_other_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as making partitions, where the service may not make tables any more."""
    monkeypatch.setattr(cleaning, "EVERY_SECONDS", 0.05)
    broken = {"prepare": True, "alerts": True}

    def prepare(self: Partitions, now: float) -> None:
        if broken["prepare"]:
            raise DatabaseUnavailable("permission denied for schema public")

    def forget_old(*_: object) -> int:
        raise DatabaseUnavailable("permission denied for table alerts")

    monkeypatch.setattr(Partitions, "prepare", prepare)
    monkeypatch.setattr(alerts, "forget_old", forget_old)
    environment = {"GOVERNANCE_EVENT_DAYS": "1", "GOVERNANCE_ALERT_DAYS": "1"}
    async with Service(tmp_path, [HOLD], environment=environment) as service:
        for number in range(5):
            await told(service, number)
        service.clock.advance(2 * DAY)
        await told(service, 5)
        await until(caplog, lambda: count(service, "events") == 1)
        await until(
            caplog, lambda: "retention of alerts waits: permission denied for table alerts" in caplog.text
        )
        told_of = "making partitions of `events` waits: permission denied for schema public"
        assert caplog.text.count(told_of) == 1
        assert "partitions of `audit` waits" not in caplog.text, "the same is in the way"
        broken["prepare"] = False
        await until(caplog, lambda: "making partitions of `events` goes on" in caplog.text)


async def test_finished_deliveries_and_spent_counts_go(tmp_path: Path, database_url: str) -> None:
    async with Service(tmp_path, [FEW], database=database_url) as service:
        for number in range(4):
            await told(service, number, "mail")
        store = service.context.store

        def owe(transaction: Any) -> None:
            for number, status in enumerate(["delivered", "pending", "failed"]):
                store.rows_changed(
                    "INSERT INTO deliveries (delivery_id, organisation_id, webhook_id, event, payload,"
                    " status, attempts, attempt_count, leased_until, created_at)"
                    " VALUES (?, 'default', 'w', 'e', '{}', ?, '[]', 0, 0, ?)",
                    (f"dlv_{number}", status, transaction.at),
                )

        await service.context.writer.write(owe)
        assert count(service, "rate_hits") == 3
        service.clock.advance(2 * DAY)
        now = service.clock()
        assert store.read_here(expiry.anything, store, now, "", "")
        assert await cleaned(service, Retention(0, 1)) == 3 + 2
        assert count(service, "deliveries") == 1 and count(service, "rate_hits") == 0
        assert not store.read_here(expiry.anything, store, now, "", "")


async def test_old_alerts_and_tallies_of_no_use_go(tmp_path: Path, database_url: str) -> None:
    shipped = files("repeated-refusals", "first-write-of-a-reader")
    none = {**FEW, "action": "block"}
    del none["rateLimit"]
    async with Service(tmp_path, [none], live=True, files=shipped, database=database_url) as service:
        for number in range(12):
            await told(service, number, "mail")
        await look(service)
        assert count(service, "alerts") == 1 and count(service, "detector_tallies") > 1
        service.clock.advance(30 * DAY)
        await cleaned(service, Retention(0, 0, 31))
        assert count(service, "alerts") == 1
        assert count(service, "detector_tallies") == 2, "what an agent did first, and how often"
        service.clock.advance(2 * DAY)
        assert await cleaned(service, Retention(0, 0, 31)) == 1
        assert count(service, "alerts") == 0


async def test_many_old_rows_go_in_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "MOST_AT_ONCE", 10)
    async with Service(tmp_path) as service:
        await asyncio.gather(*(told(service, number) for number in range(100)))
        service.clock.advance(2 * DAY)
        going = asyncio.create_task(cleaned(service, Retention(1, 0)))
        slowest = 0.0
        number = 1000
        while not going.done():
            begun = time.perf_counter()
            assert (await told(service, number)).status_code == 200
            slowest = max(slowest, time.perf_counter() - begun)
            number += 1
        assert going.result() == 100
        assert number > 1005 and slowest < 2, "events waited for the cleaning"


def test_the_settings() -> None:
    days = {"GOVERNANCE_EVENT_DAYS": "90", "GOVERNANCE_DELIVERY_DAYS": "7", "GOVERNANCE_ALERT_DAYS": "400"}
    settings = load(days)
    assert (settings.event_days, settings.delivery_days, settings.alert_days) == (90, 7, 400)
    assert settings.audit_days == 0, "records stay unless somebody says otherwise"
    assert load(days | {"GOVERNANCE_AUDIT_DAYS": "90"}).audit_days == 90


@pytest.mark.parametrize(
    ("days", "refused"),
    [
        ({"GOVERNANCE_AUDIT_DAYS": "29"}, "write 0, or a whole number from 30 to 36500"),
        ({"GOVERNANCE_AUDIT_DAYS": "-1"}, "whole number"),
        ({"GOVERNANCE_AUDIT_DAYS": "60"}, "set GOVERNANCE_EVENT_DAYS too"),
        ({"GOVERNANCE_AUDIT_DAYS": "60", "GOVERNANCE_EVENT_DAYS": "61"}, "GOVERNANCE_AUDIT_DAYS: no event"),
    ],
)
def test_no_event_outlives_its_record(days: dict[str, str], refused: str) -> None:
    with pytest.raises(SettingsError, match=refused):
        load(days)


async def test_a_start_with_the_clock_ahead_deletes_nothing_for_a_day(
    tmp_path: Path, database_url: str
) -> None:
    async with Service(tmp_path, [FEW], database=database_url) as service:
        store, clock, steady = service.context.store, service.clock, 0.0
        leaps = Leaps(clock, lambda: steady)

        def begun() -> Caution:
            return Caution(store.read_here(leaps_of, store, clock(), leaps))

        def settled() -> bool:
            return begun().settled()

        assert settled(), "there is nothing old"
        await told(service, 1)
        clock.advance(0.9 * DAY)
        await told(service, 2)
        assert settled(), "no day passed without a record"
        clock.advance(60 * DAY)
        assert not settled(), "the machine has come up with a wrong clock"
        caution = begun()
        await told(service, 3)
        assert not settled(), "nor when it is started again"
        clock.advance(-60 * DAY)
        assert caution.settled() and settled(), "the clock was mended, while it ran or not"
        clock.advance(60 * DAY)
        assert not caution.settled()
        steady += DAY
        assert caution.settled(), "it seems to be right"
        clock.advance(1.1 * DAY)
        await told(service, 4)
        assert not settled(), "another day without a record"
