"""Who listens: what nobody would be told of need not be put into words; and who is told first."""

from __future__ import annotations

import asyncio

import msgspec

from api.clock import DAY
from api.store.webhooks import deliveries, webhooks
from api.store.webhooks.delivery_order import DeliveryOrder
from tests.harness.deliveries import Bench, bench


async def listens(b: Bench, organisation: str = "default") -> bool:
    return await b.writer.write(lambda transaction: transaction.listens(organisation))


async def test_somebody_listens_from_a_subscription_to_the_end_of_it(database_url: str) -> None:
    async with bench(database_url, start=False) as b:
        assert not await listens(b)
        webhook = await b.add("https://one.example/", "run.failed")
        assert await listens(b)
        assert not await listens(b, "other")
        await b.change(webhook, enabled=False)
        assert not await listens(b)
        await b.change(webhook, enabled=True)
        other = await b.add("https://two.example/", "tool.blocked", organisation="other")
        assert await listens(b) and await listens(b, "other")
        await b.writer.write(lambda t: webhooks.remove(t, "default", webhook, "admin@localhost"))
        await b.writer.write(lambda t: webhooks.remove(t, "other", other, "admin@localhost"))
        assert not await listens(b) and not await listens(b, "other")


async def claimed(b: Bench, webhook_id: str, most: int) -> list[int]:
    """The numbers of the events that are sent next, in their order."""
    taken, _ = await b.writer.write(lambda t: deliveries.claim(t, webhook_id, most, 60.0))
    return [msgspec.json.decode(each.payload)["data"]["number"] for each in taken]


async def failed_once(b: Bench, webhook_id: str) -> deliveries.Claimed:
    """The delivery that is sent next, which fails and is due again at once."""
    (first,), _ = await b.writer.write(lambda t: deliveries.claim(t, webhook_id, 1, 60.0))
    at = first.lease - 60.0
    failed = deliveries.Outcome(first, at, 500, "", None, 1, False, False, next_at=at)
    await b.writer.write(lambda t: deliveries.record(t, [failed], 1e9))
    return first


async def test_what_one_key_causes_does_not_stand_before_what_others_cause(database_url: str) -> None:
    async with bench(database_url, start=False) as b:
        webhook = await b.add("https://one.example/", "tool.blocked", "approval.requested", "run.failed")
        await b.notify(30, key_id="key_of_very_many")
        await b.notify(2, "approval.requested", key_id="key_of_few")
        await b.notify(1, "run.failed")
        assert await claimed(b, webhook, 5) == [0, 0, 0, 1, 29]
        assert await claimed(b, webhook, 40) == [*range(1, 29), 1][:-1]
        records = await b.deliveries(webhook)
        assert all(each["nextAttemptAt"] == each["createdAt"] for each in records)


async def test_what_is_tried_again_is_not_behind_all_that_is_new(database_url: str) -> None:
    async with bench(database_url, start=False) as b:
        webhook = await b.add("https://one.example/")
        await b.notify(1, key_id="key_of_few")
        first = await failed_once(b, webhook)
        await b.notify(30, key_id="key_of_very_many")
        taken, _ = await b.writer.write(lambda t: deliveries.claim(t, webhook, 3, 60.0))
        assert [each.delivery_id == first.delivery_id for each in taken] == [False, False, True]


async def test_what_is_tried_again_has_its_turn_where_one_is_sent_at_a_time(database_url: str) -> None:
    """As to a receiver that is slow, while more comes than it takes."""
    async with bench(database_url, start=False) as b:
        webhook = await b.add("https://one.example/")
        await b.notify(4, key_id="key_of_very_many")
        await failed_once(b, webhook)
        await asyncio.sleep(0.002)
        await b.notify(4, key_id="key_of_very_many")
        sent = [await claimed(b, webhook, 1) for _ in range(8)]
        assert sent == [[1], [2], [3], [0], [0], [1], [2], [3]]


def test_a_key_has_a_day_for_what_it_causes() -> None:
    order, now = DeliveryOrder(), 10 * DAY
    places = [order.place("key", now) for _ in range(1_000_000)]
    assert places == sorted(places) and places[0] > now - DAY == order.place(None, now)
    assert places[-1] == now == order.place("key", now) and order.place("other", now) < places[1]
    assert order.place("key", now + 100) == now + 0.1 and order.place("key", now - 100) == now - 100
