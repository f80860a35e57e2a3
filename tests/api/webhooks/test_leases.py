"""Who delivers: leases that run out or are given back, and webhooks that end meanwhile."""

from __future__ import annotations

import asyncio
import time

import pytest

from api.database.connection import Database
from api.database.models import Delivery, Webhook
from api.database.transaction import Transaction
from api.store.webhooks import deliveries, webhooks
from api.webhooks.presence import Presence
from api.webhooks.worker import Limits
from tests.harness.deliveries import all_are, bench, run
from tests.harness.receiver import Answer, Receiver


async def test_a_lease_that_ran_out_is_taken_over(database_url: str) -> None:
    with Receiver() as receiver:
        # Somebody else sends too, so the start does not take every lease for a dead one's.
        store = Database(database_url)
        other = Presence(store)
        other.enter()
        async with bench(database_url, allow=[receiver.place], limits=Limits(sweep=0.1)) as b:
            # Another process claims at the moment of the commit, and dies.
            webhook_id = await b.add(receiver.url)

            def claim_and_die(transaction):  # type: ignore[no-untyped-def]
                transaction.notify("default", "tool.blocked", {"number": 1})
                transaction.flush()
                transaction._deliveries.clear()
                claimed, _ = deliveries.claim(transaction, webhook_id, 5, 0.6)
                return claimed

            (claimed,) = await b.writer.write(claim_and_die)
            await asyncio.sleep(0.3)
            assert receiver.requests == [], "the lease is respected"
            (record,) = await b.until(webhook_id, all_are("delivered"))
            assert record["deliveryId"] == claimed.delivery_id == receiver.requests[0].id
        other.leave()


async def test_a_late_outcome_of_a_lost_lease_moves_nothing(database_url: str) -> None:
    async with bench(database_url, start=False) as b:
        webhook_id = await b.add("https://example.com/")
        await b.notify()

        def claim(transaction, lease):  # type: ignore[no-untyped-def]
            return deliveries.claim(transaction, webhook_id, 5, lease)[0]

        def record(claimed, delivered):  # type: ignore[no-untyped-def]
            outcome = deliveries.Outcome(
                claimed, time.time(), 200 if delivered else 500, "", None, 1, delivered, False, None
            )
            return lambda transaction: deliveries.record(transaction, [outcome], 1e9)

        (first,) = await b.writer.write(lambda transaction: claim(transaction, -1.0))
        (second,) = await b.writer.write(lambda transaction: claim(transaction, 60.0))
        assert first.delivery_no == second.delivery_no
        assert await b.writer.write(lambda transaction: claim(transaction, 60.0)) == []
        await b.writer.write(record(first, False))
        (now,) = await b.deliveries(webhook_id)
        assert now["status"] == "pending" and len(now["attempts"]) == 1
        await b.writer.write(record(first, True))
        (now,) = await b.deliveries(webhook_id)
        assert now["status"] == "delivered", "a receipt counts, whoever heard it"
        await b.writer.write(record(second, False))
        (now,) = await b.deliveries(webhook_id)
        assert now["status"] == "delivered" and len(now["attempts"]) == 3


async def test_a_process_that_stops_gives_its_leases_back(database_url: str) -> None:
    with Receiver([Answer(delay=30)]) as receiver:
        async with bench(database_url, allow=[receiver.place], limits=Limits(closing=0.1)) as b:
            webhook_id = await b.add(receiver.url)
            await b.notify()
            await asyncio.to_thread(receiver.wait_for, 1)
        receiver.plan = [Answer()]
        async with bench(database_url, allow=[receiver.place]) as b:
            (record,) = await b.until(webhook_id, all_are("delivered"), 5)
            assert {request.id for request in receiver.requests} == {record["deliveryId"]}


@pytest.mark.parametrize("ahead", [10 * 86_400.0, 7_200.0])
@pytest.mark.parametrize("ends", ["fails", "dies"])
def test_what_was_begun_while_the_clock_was_ahead_goes_out(
    database_url: str, ends: str, ahead: float
) -> None:

    def clock() -> float:
        return time.time() + ahead

    async def work(receiver: Receiver) -> None:
        nonlocal ahead
        limits = Limits(sweep=0.1)
        if ends == "dies":
            async with bench(database_url, clock=clock, start=False) as b:
                webhook_id = await b.add(receiver.url)
                await b.notify()
                await b.writer.write(
                    lambda transaction: deliveries.claim(transaction, webhook_id, 5, 30.0, 7)
                )
            ahead = 0.0
        async with bench(
            database_url, allow=[receiver.place], clock=clock, delays=(0.0, 60.0), limits=limits
        ) as b:
            if ends == "fails":
                webhook_id = await b.add(receiver.url)
                await b.notify()
                await b.until(webhook_id, lambda found: len(found[0]["attempts"]) == 1, 60)
                ahead = 0.0
            await b.until(webhook_id, all_are("delivered"), 60)

    with Receiver([Answer(503), Answer()] if ends == "fails" else [Answer()]) as receiver:
        run(work(receiver))


async def test_disabling_and_deleting_end_what_is_pending(database_url: str) -> None:
    async with bench(database_url, delays=(60,)) as b:
        disabled = await b.add("https://example.com/")
        deleted = await b.add("https://example.com/")
        await b.notify()
        await b.change(disabled, enabled=False)
        (record,) = await b.deliveries(disabled)
        assert record["status"] == "failed" and record["nextAttemptAt"] is None
        assert await b.writer.write(
            lambda transaction: webhooks.remove(transaction, "default", deleted, "admin@localhost")
        )
        left = await b.store.read(lambda: Delivery.select().where(Delivery.status == "pending").count())
        assert left == 0


@pytest.mark.parametrize("how", ["disabled", "deleted", "left"])
async def test_what_a_webhook_is_owed_ends_piece_by_piece(database_url: str, how: str) -> None:
    """An agent has as many calls blocked as it likes, and everybody else waits for the transaction that ends
    them. `left`: by a process that died before it had ended all."""
    count = 3 * webhooks.ENDED_TOGETHER + 7

    def pending() -> int:
        return int(Delivery.select().where(Delivery.status == "pending").count())

    async with bench(database_url, delays=(60,), start=False, limits=Limits(sweep=0.1)) as b:
        webhook_id = await b.add("https://example.com/")
        await b.notify(count)

        def off(transaction: Transaction) -> None:
            actor = "admin@localhost"
            if how == "disabled":
                webhooks.change(transaction, "default", webhook_id, {"enabled": False}, actor)
            else:
                webhooks.remove(transaction, "default", webhook_id, actor)

        if how != "left":
            b.worker.start()
        await b.writer.write(off)
        if how == "left":
            assert await b.store.read(pending) == count - webhooks.ENDED_TOGETHER
            b.worker.start()
        while await b.store.read(pending):
            await asyncio.sleep(0.02)


async def test_a_webhook_goes_on_once_all_is_ended_that_it_was_owed(database_url: str) -> None:
    async with bench(database_url, delays=(60,), start=False) as b:
        webhook_id = await b.add("https://example.com/")
        await b.notify(2 * webhooks.ENDED_TOGETHER + 1)
        await b.change(webhook_id, enabled=False)
        with pytest.raises(webhooks.WebhookRefused, match="still being ended"):
            await b.change(webhook_id, enabled=True)
        b.worker.start()
        while True:
            try:
                await b.change(webhook_id, enabled=True)
            except webhooks.WebhookRefused:
                await asyncio.sleep(0.02)
            else:
                break
        assert {each["status"] for each in await b.deliveries(webhook_id)} == {"failed"}


async def test_a_row_made_beside_the_deletion_of_its_webhook_is_ended(database_url: str) -> None:
    async with bench(database_url) as b:
        webhook_id = await b.add("https://example.com/")

        def both(transaction):  # type: ignore[no-untyped-def]
            transaction.notify("default", "tool.blocked", {})
            webhooks.remove(transaction, "default", webhook_id, "admin@localhost")

        await b.writer.write(both)
        for _ in range(100):
            statuses = await b.store.read(lambda: [row.status for row in Delivery.select()])
            if statuses == ["failed"]:
                return
            await asyncio.sleep(0.02)
        raise AssertionError(statuses)


async def test_an_event_goes_only_to_those_subscribed_in_its_organisation(database_url: str) -> None:
    async with bench(database_url, start=False) as b:
        blocked = await b.add("https://example.com/1", "tool.blocked", "run.failed")
        failed = await b.add("https://example.com/2", "run.failed")
        other = await b.add("https://example.com/3", "tool.blocked", organisation="other")
        await b.notify()
        await b.notify(event="run.failed")
        await b.notify(event="run.completed")
        rows = await b.store.read(lambda: list(Delivery.select().order_by(Delivery.delivery_no).dicts()))
        assert [(row["webhook_id"], row["event"]) for row in rows] == [
            (blocked, "tool.blocked"),
            (blocked, "run.failed"),
            (failed, "run.failed"),
        ]
        assert other not in {row["webhook_id"] for row in rows}


async def test_changes_of_subscriptions_count_from_the_next_transaction_on(database_url: str) -> None:
    async with bench(database_url, start=False) as b:
        webhook_id = await b.add("https://example.com/")

        def rolled_back(transaction):  # type: ignore[no-untyped-def]
            webhooks.change(transaction, "default", webhook_id, {"events": ["run.failed"]}, "a")
            raise ValueError

        with pytest.raises(ValueError):
            await b.writer.write(rolled_back)
        await b.notify()
        assert len(await b.deliveries(webhook_id)) == 1
        await b.change(webhook_id, events=["run.failed"])
        await b.notify()
        assert len(await b.deliveries(webhook_id)) == 1
        await b.notify(event="run.failed")
        assert len(await b.deliveries(webhook_id)) == 2
        assert await b.store.read(lambda: Webhook.select().count()) == 1


async def test_the_payload_is_fixed_when_the_event_happens(database_url: str) -> None:
    async with bench(database_url, start=False) as b:
        webhook_id = await b.add("https://example.com/")
        data = {"reason": "Überweisung „teuer“ 💸", "nested": {"list": [1, 2.5, None, True]}}
        await b.writer.write(lambda transaction: transaction.notify("default", "tool.blocked", data))
        (record,) = await b.deliveries(webhook_id)
        assert record["payload"]["data"] == data
