"""A process that owes and delivers webhook events and notices, to be killed: `python -m
tests.harness.delivery_process`.

Arguments: database address, receiver `host:port`, first number. It prints each number once its transaction is
committed, with a webhook event and an approval of that number; what it has printed must arrive, whatever
becomes of it. With a negative first number it owes
nothing and only delivers, until nothing is pending.
"""

from __future__ import annotations

import asyncio
import sys

from api.database.models import Delivery
from api.database.transaction import Transaction
from api.webhooks.worker import Limits
from tests.harness.deliveries import asked, bench

LEASE = 1.0


async def main(url: str, place: str, first: int) -> None:
    limits = Limits(lease=LEASE, sweep=0.2)
    delays = (0.0, 0.1) * 20
    async with bench(url, allow=[place], delays=delays, limits=limits, seconds=None) as b:
        if first < 0:
            while await b.store.read(lambda: Delivery.select().where(Delivery.status == "pending").count()):
                await asyncio.sleep(0.05)
            return
        number = first
        while True:
            several = [number, number + 1, number + 2]

            def job(transaction: Transaction, several: list[int] = several) -> None:
                for each in several:
                    transaction.notify("default", "tool.blocked", {"number": each})
                    asked(transaction, f"apr_{each}")

            await b.writer.write(job)
            print(*several, flush=True)
            number += 3
            await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
