"""`kill -9` of processes that deliver, and of the database: what was owed arrives, under one id."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from api.webhooks.worker import Limits
from tests.harness.deliveries import bench, run
from tests.harness.places import ROOT
from tests.harness.postgres import Postgres
from tests.harness.receiver import Answer, Received, Receiver

CHAT = "http://{}/chat"


def started(url: str, receiver: Receiver, first: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.harness.delivery_process", url, receiver.place, str(first)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def killed(process: subprocess.Popen[str]) -> set[int]:
    """Kill it; the numbers that it had acknowledged."""
    process.send_signal(signal.SIGKILL)
    output, _ = process.communicate(timeout=20)
    # A line that the kill cut short was still written after its commit, but its last number may be cut too.
    complete = output[: output.rfind("\n") + 1]
    return {int(word) for word in complete.split()}


@pytest.mark.slow
def test_everything_owed_arrives_although_processes_are_killed(database_url: str) -> None:
    chance = random.Random(7)

    def sometimes_fails(request: Received) -> Answer:
        return Answer(500 if chance.random() < 0.2 else 200, delay=chance.random() * 0.03)

    with Receiver(sometimes_fails) as receiver:

        async def register() -> None:
            async with bench(database_url, start=False) as b:
                await b.add(receiver.url)
                chat = {"type": "slack", "secret": "chat", "events": ["approval.requested"]}
                await b.channels({"chat": CHAT.format(receiver.place)}, ops=chat | {"groupSeconds": 0})

        run(register())
        acknowledged: set[int] = set()
        # Two processes share the outbox all the time; each is killed in turn at a random moment.
        running = [started(database_url, receiver, 0), started(database_url, receiver, 1_000_000)]
        for turn in range(6):
            before = len(receiver.requests)
            receiver.wait_for(before + 20, 30)
            time.sleep(chance.random() * 0.4)
            acknowledged |= killed(running.pop(0))
            running.append(started(database_url, receiver, (turn + 2) * 1_000_000))
        for process in running:
            acknowledged |= killed(process)
        last = started(database_url, receiver, -1)
        assert last.wait(60) == 0
        assert last.stdout is not None
        last.stdout.close()

        assert len(acknowledged) > 50
        arrived: dict[int, set[str]] = {}
        bodies: dict[str, set[bytes]] = {}
        for request in receiver.requests:
            if request.path == "/chat":
                continue
            arrived.setdefault(request.json["data"]["number"], set()).add(request.id)
            bodies.setdefault(request.id, set()).add(request.body)
        assert acknowledged - arrived.keys() == set(), "acknowledged, but never delivered"
        assert all(len(ids) == 1 for ids in arrived.values()), "an event came under two ids"
        assert all(len(found) == 1 for found in bodies.values()), "an id came with two bodies"
        told = run(delivered_notices(database_url))
        assert {f"apr_{number}" for number in acknowledged} - told == set(), "asked, but nobody was told"
        said = [request.json["text"] for request in receiver.requests if request.path == "/chat"]
        assert sum(int(text.split()[0]) if text[0].isdigit() else 1 for text in said) >= len(told)


@pytest.mark.slow
def test_two_processes_tell_of_an_approval_once(database_url: str) -> None:
    with Receiver() as receiver:

        async def ask() -> None:
            async with bench(database_url, start=False) as b:
                chat = {"type": "slack", "secret": "chat", "events": ["approval.requested"]}
                chats = {name: chat | {"groupSeconds": 0} for name in ("ops", "boss", "night")}
                await b.channels({"chat": CHAT.format(receiver.place)}, **chats)
                for number in range(30):
                    await b.ask(f"apr_{number}")

        run(ask())
        for process in [started(database_url, receiver, -1), started(database_url, receiver, -1)]:
            assert process.wait(60) == 0
            assert process.stdout is not None
            process.stdout.close()
        said = [request.json["text"] for request in receiver.requests]
        assert sum(int(text.split()[0]) if text[0].isdigit() else 1 for text in said) == 90
        assert len(run(delivered_notices(database_url))) == 30


async def delivered_notices(url: str) -> set[str]:
    """The approvals that the channel has told of; every notice has ended well."""
    async with bench(url, start=False) as b:
        rows = await b.store.read(
            b.store.rows, "SELECT subject, status FROM deliveries WHERE subject IS NOT NULL"
        )
    assert {status for _, status in rows} == {"delivered"}
    return {subject for subject, _ in rows}


@pytest.mark.slow
@pytest.mark.postgres
async def test_a_database_that_goes_away_delays_deliveries_only(
    postgres: Postgres, postgres_url: str
) -> None:
    with Receiver([Answer(delay=0.3)]) as receiver:
        limits = Limits(lease=2, sweep=0.2)
        async with bench(postgres_url, allow=[receiver.place], limits=limits) as b:
            webhook_id = await b.add(receiver.url)
            await b.notify(3)
            # The answers are slow, so the database dies while attempts run: their outcomes wait for it.
            await asyncio.to_thread(receiver.wait_for, 1)
            postgres.crash()
            try:
                await asyncio.sleep(1)
            finally:
                postgres.start()
            found = await b.until(
                webhook_id, lambda found: all(record["status"] == "delivered" for record in found), 30
            )
            assert len(found) == 3
            assert {request.id for request in receiver.requests} == {record["deliveryId"] for record in found}
