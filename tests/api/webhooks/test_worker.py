"""The worker against real receivers, on both databases: signatures, retries, ends, fairness."""

from __future__ import annotations

import asyncio
import itertools
import time
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
import standardwebhooks

from api.clock import seconds
from api.health.stored import stored
from api.store.webhooks import deliveries, webhooks
from api.webhooks import signing
from api.webhooks.presence import Presence
from api.webhooks.worker import Limits
from tests.harness.deliveries import SECRET, Bench, all_are, bench, run
from tests.harness.receiver import Answer, Received, Receiver


async def test_an_event_arrives_signed_and_the_record_says_so(database_url: str) -> None:
    with Receiver() as receiver:
        async with bench(database_url, allow=[receiver.place]) as b:
            webhook_id = await b.add(receiver.url)
            await b.notify()
            (record,) = await b.until(webhook_id, all_are("delivered"))
        (request,) = receiver.requests
        assert request.id == record["deliveryId"]
        assert request.headers["content-type"] == "application/json"
        assert standardwebhooks.Webhook(SECRET).verify(request.body, request.headers) == record["payload"]
        assert record["payload"] == {
            "event": "tool.blocked",
            "timestamp": record["createdAt"],
            "data": {"number": 0},
        }
        assert record["nextAttemptAt"] is None
        (attempt,) = record["attempts"]
        assert attempt["responseStatus"] == 200 and attempt["responseBody"] == "ok"
        assert attempt["error"] is None and attempt["durationMs"] >= 0


def test_it_leaves_at_once_after_the_commit(database_url: str) -> None:
    async def work(receiver: Receiver) -> float:
        # Sweeps are a minute away: only the wake-up by the commit can be quicker.
        async with bench(database_url, allow=[receiver.place], limits=Limits(sweep=60)) as b:
            await b.add(receiver.url)
            await asyncio.sleep(0.1)
            before = time.time()
            await b.notify()
            (request,) = await asyncio.to_thread(receiver.wait_for, 1)
            return request.at - before

    with Receiver() as receiver:
        assert run(work(receiver)) < 20


async def test_a_failure_is_tried_again_under_the_same_id_with_a_new_signature(database_url: str) -> None:
    with Receiver([Answer(500, b"no"), Answer(503), Answer(200)]) as receiver:
        async with bench(database_url, allow=[receiver.place], delays=(0, 1.1, 0.1)) as b:
            webhook_id = await b.add(receiver.url)
            await b.notify()
            (record,) = await b.until(webhook_id, all_are("delivered"))
        assert [attempt["responseStatus"] for attempt in record["attempts"]] == [500, 503, 200]
        assert record["attempts"][0]["responseBody"] == "no"
        requests = receiver.requests
        assert {request.id for request in requests} == {record["deliveryId"]}
        assert len({request.body for request in requests}) == 1
        assert requests[0].headers["webhook-timestamp"] < requests[1].headers["webhook-timestamp"]
        assert requests[1].at - requests[0].at >= 1.0


async def test_after_the_last_attempt_it_has_failed(database_url: str) -> None:
    with Receiver([Answer(500)]) as receiver:
        async with bench(database_url, allow=[receiver.place], delays=(0, 0.05, 0.05)) as b:
            webhook_id = await b.add(receiver.url)
            await b.notify()
            (record,) = await b.until(webhook_id, all_are("failed"))
            assert len(record["attempts"]) == 3 and record["nextAttemptAt"] is None
            hook = await b.webhook(webhook_id)
            assert hook["enabled"] and hook["failingSince"] == record["attempts"][0]["at"]
            await asyncio.sleep(0.2)
        assert len(receiver.requests) == 3


async def test_a_success_ends_the_row_of_failures(database_url: str) -> None:
    with Receiver([Answer(500), Answer(200)]) as receiver:
        async with bench(database_url, allow=[receiver.place], delays=(0, 0.05)) as b:
            webhook_id = await b.add(receiver.url)
            await b.notify()
            await b.until(webhook_id, all_are("delivered"))
            assert "failingSince" not in await b.webhook(webhook_id)


@pytest.mark.parametrize("as_date", [False, True])
async def test_retry_after_is_honoured(database_url: str, as_date: bool) -> None:
    def plan(request: Received) -> Answer:
        when = format_datetime(datetime.fromtimestamp(request.at + 120, UTC), usegmt=True)
        return Answer(429, headers={"Retry-After": when if as_date else "120"})

    with Receiver(plan) as receiver:
        async with bench(database_url, allow=[receiver.place]) as b:
            webhook_id = await b.add(receiver.url)
            await b.notify()
            (record,) = await b.until(webhook_id, lambda found: bool(found and found[0]["attempts"]))
            wait = seconds(record["nextAttemptAt"]) - seconds(record["attempts"][0]["at"])
            assert record["status"] == "pending" and 118 < wait < 123


@pytest.mark.parametrize("enabled", [True, False])
async def test_410_disables_the_webhook_at_once(
    database_url: str, caplog: pytest.LogCaptureFixture, enabled: bool
) -> None:
    with Receiver([Answer(410)]) as receiver:
        async with bench(database_url, allow=[receiver.place], limits=Limits(per_webhook=1)) as b:
            webhook_id = await b.add(receiver.url)
            await b.notify(3)
            found = await b.until(webhook_id, all_are("failed"))
            assert sum(len(record["attempts"]) for record in found) == 1
            hook = await b.webhook(webhook_id)
            assert hook["enabled"] is False
            assert hook["disabledReason"] == "the receiver answered 410: it is gone"
            (audited,) = await b.audited("webhook.disabled")
            assert audited["details"]["webhookId"] == webhook_id and audited["actor"] == "service"
            (told,) = [each.getMessage() for each in caplog.records if webhook_id in each.getMessage()]
            assert "is off" in told and hook["disabledReason"] in told and "/hook" not in told
            assert (await b.store.read(stored, b.store, time.time())).webhooks_off == 1
            await b.notify()
            await asyncio.sleep(0.1)
            assert len(await b.deliveries(webhook_id)) == 3
            # A person enables it, or says that it is to stay off.
            await b.change(webhook_id, enabled=enabled)
            assert "disabledReason" not in await b.webhook(webhook_id)
            assert (await b.store.read(stored, b.store, time.time())).webhooks_off == 0
        assert len(receiver.requests) == 1


async def test_five_days_of_only_failures_disable_the_webhook(database_url: str) -> None:
    now = [1_790_000_000.0]
    with Receiver([Answer(500)]) as receiver:
        async with bench(
            database_url, allow=[receiver.place], delays=(0,), clock=lambda: now[0], limits=Limits(sweep=0.05)
        ) as b:
            webhook_id = await b.add(receiver.url)
            for day, enabled in ((0, True), (4.99, True), (5, False)):
                now[0] = 1_790_000_000.0 + day * 86400
                await b.notify()
                await b.until(webhook_id, all_are("failed"))
                assert (await b.webhook(webhook_id))["enabled"] is enabled, day
            assert (await b.webhook(webhook_id))["disabledReason"] == "every attempt failed for 5 days"


async def test_a_service_that_was_stopped_for_days_disables_no_webhook_with_its_first_attempt(
    database_url: str,
) -> None:
    """As where the receiver starts after it, or the clock leapt."""
    now = [1_790_000_000.0]
    with Receiver([Answer(500), Answer(500), Answer(204)]) as receiver:
        async with bench(
            database_url,
            allow=[receiver.place],
            delays=(0, 60, 120),
            clock=lambda: now[0],
            limits=Limits(sweep=0.05),
        ) as b:
            webhook_id = await b.add(receiver.url)
            await b.notify()
            await b.until(webhook_id, lambda found: len(found[0]["attempts"]) == 1)
            now[0] += 6 * 86400
            await b.until(webhook_id, lambda found: len(found[0]["attempts"]) == 2)
            assert (await b.webhook(webhook_id))["enabled"] is True
            now[0] += 200
            await b.until(webhook_id, all_are("delivered"))


async def test_a_refused_address_is_a_failure_that_says_why(database_url: str) -> None:
    async def inside(host: str, port: int) -> list[str]:
        return ["169.254.169.254"]

    async with bench(database_url, resolver=inside, delays=(0,)) as b:
        webhook_id = await b.add("https://metadata.example/")
        await b.notify()
        (record,) = await b.until(webhook_id, all_are("failed"))
        (attempt,) = record["attempts"]
        assert attempt["responseStatus"] is None
        assert attempt["error"].startswith("`metadata.example` leads to no address that may be called")


async def test_after_a_rotation_both_secrets_verify_for_a_day(database_url: str) -> None:
    now = [time.time()]
    new = signing.secret_of(b"1" * 32)
    with Receiver() as receiver:
        async with bench(
            database_url, allow=[receiver.place], clock=lambda: now[0], limits=Limits(sweep=0.05)
        ) as b:
            webhook_id = await b.add(receiver.url)
            await b.writer.write(
                lambda transaction: webhooks.rotate(
                    transaction, "default", webhook_id, new, signing.OLD_SECRET_SECONDS, "admin@localhost"
                )
            )
            await b.notify()
            (request,) = await asyncio.to_thread(receiver.wait_for, 1)
            for secret in (SECRET, new):
                standardwebhooks.Webhook(secret).verify(request.body, request.headers)
            now[0] += 24 * 3600 + 1
            await b.notify()
            later = (await asyncio.to_thread(receiver.wait_for, 2))[1]
            assert " " not in later.headers["webhook-signature"]
            body = later.body
            expected = signing.headers([new], later.id, now[0], body)
            assert later.headers["webhook-signature"] == expected["webhook-signature"]


async def test_a_second_rotation_leaves_the_secret_that_the_receiver_has(database_url: str) -> None:
    """As after a second click, or of two admins: only the one between signed along."""
    with Receiver() as receiver:
        async with bench(database_url, allow=[receiver.place]) as b:
            webhook_id = await b.add(receiver.url)
            for number in range(2):
                made = signing.secret_of(bytes([number]) * 32)
                await b.writer.write(
                    lambda transaction, made=made: webhooks.rotate(
                        transaction, "default", webhook_id, made, signing.OLD_SECRET_SECONDS, "a@localhost"
                    )
                )
            await b.notify()
            (request,) = await asyncio.to_thread(receiver.wait_for, 1)
            for secret in (SECRET, signing.secret_of(b"\0" * 32), made):
                standardwebhooks.Webhook(secret).verify(request.body, request.headers)


async def test_receivers_that_hang_delay_nobody_else(database_url: str) -> None:
    """Far more owed to hanging receivers than there are places; the others hear at once."""
    with Receiver([Answer(delay=30)]) as hanging, Receiver() as quick:
        limits = Limits(attempts=24)
        async with bench(database_url, allow=[hanging.place, quick.place], limits=limits) as b:
            for _ in range(10):
                await b.add(hanging.url, "run.failed")
            await b.notify(30, "run.failed")
            await asyncio.to_thread(hanging.wait_for, 10)
            webhook_id = await b.add(quick.url, "tool.blocked")
            started = time.monotonic()
            await b.notify(40)
            await b.until(webhook_id, all_are("delivered"))
            assert time.monotonic() - started < 4
            assert len(hanging.requests) == 10, "one place each"


async def test_receivers_that_refuse_are_tried_the_less_often_the_more_they_are(database_url: str) -> None:
    """So that fifty of them with very much to come take no time of others; each has all once it takes one."""
    refuses = [True]
    with Receiver(lambda request: Answer(500 if refuses[0] else 200)) as receiver:
        limits = Limits(longest_rest=0.3)
        async with bench(database_url, allow=[receiver.place], limits=limits, delays=(0, *[0.1] * 50)) as b:
            made = [await b.add(f"{receiver.url}/{number}") for number in range(20)]
            await b.notify(10)
            await asyncio.to_thread(receiver.wait_for, 80)
            refuses[0], count = False, len(receiver.requests)
            for webhook_id in made:
                await b.until(webhook_id, all_are("delivered"))
        paths = {request.path for request in receiver.requests}
        times = [[each.at for each in receiver.requests[:count] if each.path == path] for path in paths]
        gaps = [[later - sooner for sooner, later in itertools.pairwise(each)][1:] for each in times]
        assert min(map(min, gaps)) >= 0.29


async def test_one_that_refuses_some_notices_soon_has_the_others(database_url: str) -> None:
    with Receiver(
        lambda request: Answer(400 if request.json["event"] == "tool.blocked" else 200)
    ) as receiver:
        async with bench(database_url, allow=[receiver.place]) as b:
            await b.add(receiver.url, "tool.blocked", "run.failed")
            await b.notify(60)
            await b.notify(1, "run.failed")
            sent = time.monotonic()
            await asyncio.to_thread(receiver.wait_for, 61)
            assert time.monotonic() - sent < 20


async def claimed_by_another(b: Bench, url: str, sender: int | None = None) -> str:
    """A webhook with one delivery that some process has under lease."""
    webhook_id = await b.add(url)
    await b.notify()
    await b.writer.write(
        lambda transaction: deliveries.claim(transaction, webhook_id, 1, Limits().lease, sender)
    )
    return webhook_id


async def test_a_start_sends_at_once_what_a_dead_process_held(database_url: str) -> None:
    with Receiver() as receiver:
        async with bench(database_url, allow=[receiver.place], start=False) as b:
            webhook_id = await claimed_by_another(b, receiver.url)
            b.worker.start()
            await b.until(webhook_id, all_are("delivered"), seconds=4)


async def test_a_start_leaves_alone_what_a_living_process_holds(database_url: str) -> None:
    with Receiver() as receiver:
        async with bench(database_url, allow=[receiver.place], start=False) as b:
            other = Presence(b.store)
            assert await asyncio.to_thread(other.enter)
            webhook_id = await claimed_by_another(b, receiver.url)
            b.worker.start()
            await b.notify()
            first, second = await b.until(webhook_id, lambda found: found[-1]["status"] == "delivered")
            assert (first["status"], second["status"]) == ("pending", "delivered")
            other.leave()


async def test_a_start_sends_what_one_dead_process_of_several_held(database_url: str) -> None:
    with Receiver() as receiver:
        async with bench(database_url, allow=[receiver.place], start=False) as b:
            living, dead = Presence(b.store), Presence(b.store)
            await asyncio.to_thread(dead.enter)
            await asyncio.to_thread(living.enter)
            held = await claimed_by_another(b, receiver.url, living.number)
            left = await claimed_by_another(b, receiver.url, dead.number)
            assert await asyncio.to_thread(living.gone, [living.number, dead.number]) == []
            dead.leave()
            b.worker.start()
            await b.until(left, lambda found: found[-1]["status"] == "delivered", seconds=Limits().lease / 2)
            first, *_ = await b.deliveries(held)
            assert first["status"] == "pending"
            living.leave()


def test_no_more_attempts_at_once_than_the_limits_allow(database_url: str) -> None:
    async def work(receiver: Receiver) -> int:
        most = 0
        limits = Limits(attempts=8, per_webhook=3)
        async with bench(database_url, allow=[receiver.place], limits=limits) as b:
            ids = [await b.add(receiver.url) for _ in range(4)]
            await b.notify(10)
            while True:
                running = b.worker._state.running
                most = max(most, sum(running.values()))
                assert all(count <= 3 for count in running.values())
                found = [record for webhook_id in ids for record in await b.deliveries(webhook_id)]
                if all(record["status"] == "delivered" for record in found):
                    return most

    with Receiver([Answer(delay=0.2)]) as receiver:
        assert 4 <= run(work(receiver)) <= 8
        assert len(receiver.requests) == 40
