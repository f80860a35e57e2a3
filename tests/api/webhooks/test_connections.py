"""Connections to receivers: kept for the next attempt, and none is looked at for another receiver."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import httpcore
import pytest

from api.webhooks import connections
from api.webhooks.connections import Connections
from api.webhooks.sender import Sender
from tests.harness.receiver import Receiver


async def resolve(host: str, port: int) -> Sequence[str]:
    return [host]


async def test_each_address_has_its_own_until_nobody_has_used_them_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(connections.time, "monotonic", lambda: now[0])
    kept = Connections(httpcore.AsyncConnectionPool)
    async with kept.to("https://one.example/") as one, kept.to("https://two.example/") as two:
        assert one is not two
    async with kept.to("https://one.example/") as again:
        assert again is one
        now[0] += 60
        async with kept.to("https://three.example/"), kept.to("https://two.example/") as anew:
            assert anew is not two  # nobody used it any more
        async with kept.to("https://one.example/") as still:
            assert still is one  # it is under way
    await kept.close()


def test_attempts_at_one_receiver_share_a_connection() -> None:
    async def play(receiver: Receiver) -> None:
        sender = Sender(resolve, frozenset({receiver.place}))
        for _ in range(3):
            assert (await sender.post(receiver.url, {}, b"{}")).acknowledged
        async with sender._connections.to(receiver.url) as pool:
            assert len(pool.connections) == 1
        await sender.close()

    with Receiver() as receiver:
        asyncio.run(play(receiver))
