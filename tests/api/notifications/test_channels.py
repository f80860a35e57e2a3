"""Notices through the outbox to real receivers: once, together, in time, and only while they count."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from api.database.transaction import Transaction
from api.store import approvals
from api.store.notifications import channels, notices
from api.store.webhooks import deliveries
from api.webhooks.worker import Limits
from tests.harness.deliveries import Bench, all_are, bench
from tests.harness.receiver import Answer, Receiver

QUICK = Limits(sweep=0.1)


class Ahead:
    """Real time, which tests move on."""

    def __init__(self) -> None:
        self.by = 0.0

    def __call__(self) -> float:
        return time.time() + self.by


def chat(*events: str, **more: Any) -> dict[str, Any]:
    return {"type": "slack", "secret": "hook", "events": list(events or ("approval.requested",))} | more


async def told(b: Bench, approval_id: str) -> list[tuple[str, str, str]]:
    found = await b.store.read(notices.notified, b.store, [approval_id])
    return [(each["channel"], each["event"], each["state"]) for each in found.get(approval_id, [])]


async def test_an_approval_is_told_and_the_record_says_so(database_url: str) -> None:
    with Receiver() as receiver:
        async with bench(database_url, allow=[receiver.place]) as b:
            await b.channels({"hook": receiver.url}, reviewers=chat())
            await b.ask("apr_1", reason="pays 7 EUR to <!channel>")
            (record,) = await b.notices("reviewers", all_are("delivered"))
            assert await told(b, "apr_1") == [("reviewers", "approval.requested", "delivered")]
            assert await b.store.read(notices.count_unreached, b.store) == 0
        assert record["approvalId"] == "apr_1" and record["attempts"][0]["responseStatus"] == 200
        (request,) = receiver.requests
        assert "webhook-signature" not in request.headers
        (said,) = [block for block in request.json["blocks"][1:] if block["text"]["type"] == "plain_text"]
        assert said["text"]["text"].startswith("mailer wants to call pay: pays 7 EUR to <!channel>.")


async def test_a_page_for_people_is_no_receipt(database_url: str) -> None:
    """What a login answers, with 200, or the address that a browser shows of a chat."""
    with Receiver([Answer(body=b"\n<!DOCTYPE html><title>Sign in</title>")]) as receiver:
        async with bench(database_url, allow=[receiver.place], delays=(0,)) as b:
            await b.channels({"hook": receiver.url}, reviewers=chat())
            await b.ask("apr_1")
            (record,) = await b.notices("reviewers", all_are("failed"))
            assert "address of an incoming webhook" in record["attempts"][0]["error"]
            assert await b.store.read(notices.count_unreached, b.store) == 1


async def test_what_comes_soon_after_a_message_goes_out_together(database_url: str) -> None:
    clock = Ahead()
    with Receiver() as receiver:
        async with bench(database_url, allow=[receiver.place], clock=clock, limits=QUICK) as b:
            await b.channels({"hook": receiver.url}, reviewers=chat(groupSeconds=600))
            await b.ask("apr_1")
            await b.notices("reviewers", all_are("delivered"))
            for number in range(2, 6):
                await b.ask(f"apr_{number}")
            await asyncio.sleep(0.5)
            assert len(receiver.requests) == 1
            clock.by += 601
            await b.notices("reviewers", all_are("delivered"))
        assert [request.json["text"] for request in receiver.requests] == [
            "Approval needed: pay",
            "4 approvals wait",
        ]


async def test_a_message_of_a_time_to_come_holds_up_no_notice(database_url: str) -> None:
    clock = Ahead()
    with Receiver() as receiver:
        async with bench(database_url, allow=[receiver.place], clock=clock, limits=QUICK) as b:
            await b.channels({"hook": receiver.url}, reviewers=chat(groupSeconds=600))
            clock.by += 10 * 86_400
            await b.ask("apr_1")
            await b.notices("reviewers", all_are("delivered"))
            clock.by -= 10 * 86_400
            await b.ask("apr_2")
            await b.notices("reviewers", all_are("delivered"))


async def test_a_flood_is_told_in_few_messages(database_url: str) -> None:
    with Receiver() as receiver:
        async with bench(database_url, allow=[receiver.place], limits=QUICK, start=False) as b:
            await b.channels({"hook": receiver.url}, ops=chat("agent.halted", groupSeconds=3600))
            halt = {"scope": "all", "createdBy": "admin@localhost", "createdAt": "2026-01-31T09:30:00Z"}

            def flood(transaction: Transaction) -> None:
                for _ in range(notices.MOST_AT_ONCE + 20):
                    transaction.notify("default", "agent.halted", halt)

            await b.writer.write(flood)
            b.worker.start()
            await asyncio.to_thread(receiver.wait_for, 2)
        texts = [request.json["text"] for request in receiver.requests]
        assert texts == [f"{notices.MOST_AT_ONCE} notices", "20 notices"]


async def test_calls_that_an_agent_has_blocked_without_end_are_told_now_and_then(database_url: str) -> None:
    with Receiver() as receiver:
        async with bench(database_url, allow=[receiver.place], limits=QUICK, start=False) as b:
            events = ("tool.blocked", "approval.requested")
            await b.channels({"hook": receiver.url}, ops=chat(*events, groupSeconds=2))
            blocked = {"agentId": "mallory", "toolName": "Bash", "reason": "no"}

            def flood(transaction: Transaction) -> None:
                for _ in range(2 * notices.MOST_AT_ONCE):
                    transaction.notify("default", "tool.blocked", blocked, "key_of_very_many")

            await b.writer.write(flood)
            b.worker.start()
            await asyncio.to_thread(receiver.wait_for, 1)
            await b.ask("apr_1")
            await asyncio.to_thread(receiver.wait_for, 2)
        first, second, *_ = receiver.requests
        assert second.at - first.at > 1.0  # of 2 s, as the first may have come late
        assert "mailer wants to call pay" in second.json["blocks"][1]["text"]["text"]  # not behind the rest


@pytest.mark.parametrize("rests", [False, True])
async def test_what_a_message_takes_does_not_grow_with_what_waits(tmp_path: Path, rests: bool) -> None:
    """One agent has as many calls blocked as it likes, and others' events wait for the transaction."""
    steps: list[int] = []

    def claim(transaction: Transaction) -> None:
        (channel,) = transaction.store.rows("SELECT webhook_id FROM webhooks")
        notices.rest(transaction, channel[0], transaction.now + 60 if rests else 0.0)
        taken = 0

        def count() -> None:
            nonlocal taken
            taken += 1

        connection = transaction.store.peewee.connection()
        connection.set_progress_handler(count, 100)
        claimed, due = deliveries.claim(transaction, channel[0], 1, 30.0)
        connection.set_progress_handler(None, 0)
        assert len(claimed) == (0 if rests else notices.MOST_AT_ONCE) and due is not None
        steps.append(taken)

    blocked = {"agentId": "mallory", "toolName": "Bash", "reason": "no"}
    async with bench(f"sqlite:///{tmp_path}/some.db", start=False) as b:
        await b.channels(
            {"hook": "https://hooks.example.com/x"}, ops=chat("tool.blocked", "approval.requested")
        )
        for count in (2 * notices.MOST_AT_ONCE, 40 * notices.MOST_AT_ONCE):

            def flood(transaction: Transaction, count: int = count) -> None:
                for _ in range(count):
                    transaction.notify("default", "tool.blocked", blocked, "key_of_very_many")

            await b.writer.write(flood)
            await b.ask(f"apr_{count}")
            await b.writer.write(claim)
    few, many = steps
    assert many < 2 * few + 10


async def test_reminders_of_approvals_do_not_wait_behind_blocked_calls(database_url: str) -> None:
    clock = Ahead()
    with Receiver() as receiver:
        async with bench(database_url, allow=[receiver.place], clock=clock, limits=QUICK, start=False) as b:
            events = ("tool.blocked", "approval.expiring")
            await b.channels({"hook": receiver.url}, ops=chat(*events, groupSeconds=60))
            asked = [f"apr_{number}" for number in range(5)]
            for approval_id in asked:
                await b.ask(approval_id, expires_at=clock() + 900)

            def flood(transaction: Transaction) -> None:
                blocked = {"agentId": "mallory", "toolName": "Bash", "reason": "no"}
                for _ in range(3 * notices.MOST_AT_ONCE):
                    transaction.notify("default", "tool.blocked", blocked, "key_of_very_many")

            await b.writer.write(flood)
            clock.by += 600
            b.worker.start()
            await asyncio.to_thread(receiver.wait_for, 1)
            deadline = time.monotonic() + 10
            while [each for name in asked for each in await told(b, name) if each[2] != "delivered"]:
                assert len(receiver.requests) == 1 and time.monotonic() < deadline
                await asyncio.sleep(0.02)


async def test_a_failure_is_tried_again_before_the_quiet_time_is_over(database_url: str) -> None:
    with Receiver([Answer(500), Answer(200)]) as receiver:
        async with bench(database_url, allow=[receiver.place], limits=QUICK) as b:
            await b.channels({"hook": receiver.url}, reviewers=chat(groupSeconds=3600))
            await b.ask("apr_1")
            (record,) = await b.notices("reviewers", all_are("delivered"))
            assert [each["responseStatus"] for each in record["attempts"]] == [500, 200]


async def test_an_approval_that_ended_is_not_told(database_url: str) -> None:
    clock = Ahead()
    with Receiver() as receiver:
        async with bench(database_url, allow=[receiver.place], clock=clock, limits=QUICK) as b:
            await b.channels(
                {"hook": receiver.url}, boss=chat("approval.unseen", "approval.expiring", unseenMinutes=15)
            )
            await b.ask("apr_1", expires_at=clock() + 3600)
            await b.writer.write(
                lambda transaction: transaction.store.rows_changed("UPDATE approvals SET status = 'approved'")
            )
            clock.by += 3600
            await b.notices("boss", all_are("dropped"))
            assert sorted(await told(b, "apr_1")) == [
                ("boss", "approval.expiring", "dropped"),
                ("boss", "approval.unseen", "dropped"),
            ]
        assert receiver.requests == []


async def test_what_nobody_has_seen_goes_on_to_others(database_url: str) -> None:
    clock = Ahead()
    with Receiver() as receiver:
        async with bench(database_url, allow=[receiver.place], clock=clock, limits=QUICK) as b:
            await b.channels({"hook": receiver.url}, boss=chat("approval.unseen", unseenMinutes=15))
            await b.ask("apr_seen")
            await b.ask("apr_unseen")
            await b.writer.write(
                lambda transaction: approvals.see(transaction, "default", "apr_seen", "rita@acme.example")
            )
            assert await b.store.read(notices.count_unreached, b.store) == 1
            clock.by += 14 * 60
            await asyncio.sleep(0.5)
            assert receiver.requests == []
            clock.by += 61
            await b.notices("boss", all_are("dropped", "delivered"))
            assert await told(b, "apr_seen") == [("boss", "approval.unseen", "dropped")]
            assert await told(b, "apr_unseen") == [("boss", "approval.unseen", "delivered")]
        (request,) = receiver.requests
        assert request.json["text"] == "Nobody has looked at an approval: pay"


async def test_an_end_is_announced_before_it_comes(database_url: str) -> None:
    clock = Ahead()
    with Receiver() as receiver:
        async with bench(database_url, allow=[receiver.place], clock=clock, limits=QUICK) as b:
            await b.channels({"hook": receiver.url}, boss=chat("approval.expiring", expiringMinutes=10))
            await b.ask("apr_1", expires_at=clock() + 3600)
            await b.ask("apr_2")
            clock.by += 3600 - 590
            (record,) = await b.notices("boss", all_are("delivered"))
            assert record["approvalId"] == "apr_1"


async def test_a_channel_that_fails_is_told_as_such_and_never_switched_off(database_url: str) -> None:
    with Receiver([Answer(410), Answer(200)]) as receiver:
        async with bench(database_url, allow=[receiver.place], limits=QUICK) as b:
            await b.channels({"hook": receiver.url}, ops=chat(groupSeconds=0), dumb=chat(secret="none"))
            await b.ask("apr_1")
            (record,) = await b.notices("ops", all_are("failed"))
            assert record["attempts"][0]["responseStatus"] == 410
            ((record, _), _) = reversed(await b.store.read(channels.listed, "default"))
            assert record["name"] == "ops" and record["failingSince"]
            (record,) = await b.notices("dumb", all_are("failed"))
            assert record["attempts"][0]["error"] == "the secret `none` is not set"
            assert await b.store.read(notices.count_unreached, b.store) == 1
            await b.ask("apr_2")
            await b.notices("ops", lambda found: len(found) == 2 and found[1]["status"] == "delivered")
            assert await b.store.read(notices.count_unreached, b.store) == 1


async def test_a_test_goes_out_at_once(database_url: str) -> None:
    with Receiver() as receiver:
        async with bench(database_url, allow=[receiver.place]) as b:
            await b.channels({"hook": receiver.url}, ops=chat(groupSeconds=3600))
            await b.ask("apr_1")
            await b.notices("ops", all_are("delivered"))
            await b.writer.write(lambda transaction: notices.test(transaction, "default", "ops"))
            await b.notices("ops", lambda found: len(found) == 2 and all_are("delivered")(found))
        assert receiver.requests[1].json["text"] == "Test"


async def test_a_test_delays_no_notice(database_url: str) -> None:
    with Receiver() as receiver:
        async with bench(database_url, allow=[receiver.place]) as b:
            await b.channels({"hook": receiver.url}, reviewers=chat(groupSeconds=3600))
            await b.writer.write(lambda transaction: notices.test(transaction, "default", "reviewers"))
            await b.notices("reviewers", all_are("delivered"))
            await b.ask("apr_1")
            await b.notices("reviewers", lambda found: len(found) == 2 and all_are("delivered")(found))


async def test_a_channel_that_goes_ends_what_it_had_to_send(database_url: str) -> None:
    async with bench(database_url, start=False) as b:
        await b.channels({"hook": "https://hooks.example.com/x"}, ops=chat(), boss=chat("approval.unseen"))
        await b.ask("apr_1")
        await b.channels(boss=chat("approval.unseen", unseenMinutes=5))
        assert await told(b, "apr_1") == [("boss", "approval.unseen", "pending")]
        assert await b.store.read(notices.listed, "default", "ops", 10, None) is None
        ((record, _),) = await b.store.read(channels.listed, "default")
        assert record["settings"]["unseenMinutes"] == 5


async def test_channels_tell_nothing_of_other_organisations(database_url: str) -> None:
    with Receiver() as receiver:
        async with bench(database_url, allow=[receiver.place], limits=QUICK) as b:
            secret = {"hook": receiver.url}
            await b.channels(secret, ops=chat())
            await b.writer.write(
                lambda transaction: channels.sync(transaction, "other", {"ops": chat()}, "test")
            )
            await b.ask("apr_1", organisation="other")
            await b.ask("apr_2")
            (record,) = await b.notices("ops", all_are("delivered"))
            assert record["approvalId"] == "apr_2"
            found = await b.store.read(notices.listed, "other", "ops", 10, None)
            assert found is not None and [each["approvalId"] for each in found[0]] == ["apr_1"]
            # The secret of the same name is another organisation's, and stays its own.
            ((_, channel),) = await b.store.read(channels.listed, "other")
            assert channel.secret is None
        assert len(receiver.requests) == 1
