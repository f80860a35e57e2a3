"""Who listens: what nobody would be told of need not be put into words."""

from __future__ import annotations

from api.store import webhooks
from tests.harness.deliveries import Bench, bench, run


async def listens(b: Bench, organisation: str = "default") -> bool:
    return await b.writer.write(lambda transaction: transaction.listens(organisation))


def test_somebody_listens_from_a_subscription_to_the_end_of_it(database_url: str) -> None:
    async def play() -> None:
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

    run(play())
