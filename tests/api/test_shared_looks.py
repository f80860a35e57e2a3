"""What many ask of the database is looked at once for all of them, and never before somebody asked."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api.auth.credentials import Credentials
from api.caller import Caller
from api.clock import random_ids
from api.database.connection import Database
from api.database.transaction import Transaction
from api.ingestion.intake import Intake
from api.ingestion.quotas import ProcessorTime, Quotas
from api.shared_looks import SharedLooks
from api.store import accounts

ASKED = 50


async def test_a_look_that_has_begun_is_of_no_use_to_who_asks_later() -> None:
    looks, begun = SharedLooks(), asyncio.Event()
    said, at_once = ["old"], 0

    async def look() -> str:
        nonlocal at_once
        at_once += 1
        assert at_once == 1
        found = said[-1]
        begun.set()
        await asyncio.sleep(0.01)
        at_once -= 1
        return found

    first = asyncio.create_task(looks.of("name", look))
    await begun.wait()
    said.append("new")
    others = [looks.of("name", look) for _ in range(ASKED)]
    assert await asyncio.gather(first, *others) == ["old", *["new"] * ASKED]


async def test_what_a_look_meets_is_told_to_all_who_wait_and_the_next_begins_anew() -> None:
    looks = SharedLooks()

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("away")

    found = await asyncio.gather(*(looks.of(1, fails) for _ in range(3)), return_exceptions=True)
    assert [str(each) for each in found] == ["away"] * 3
    assert await looks.of(1, lambda: asyncio.sleep(0, "there")) == "there"


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with contextlib.closing(Database(f"sqlite:///{tmp_path}/g.sqlite")) as made:
        made.migrate()
        yield made


async def test_a_crowd_of_one_user_or_organisation_stands_before_nobody(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its requests, and its events with a user's token, are as many as somebody has connections."""
    with store.transaction():
        transaction = Transaction(store, 0.0, random_ids, None)
        user = accounts.add_user(transaction, "default", "a@acme.example", "admin", "hash", "admin")
        transaction.flush()
    credentials = Credentials(store, b"secret" * 8, 60, lambda: 0.0)
    row = await store.read_first(accounts.find_user, user["userId"])
    assert row is not None
    token = credentials.issue(row, 0.0, "t")[0]
    nothing: Any = None
    intake = Intake(store, nothing, lambda: 0.0, Quotas(0, 0), ProcessorTime(), nothing)
    looked: Counter[Callable[..., Any]] = Counter()
    read_first = store.read_first

    async def counted(function: Callable[..., Any], *arguments: Any) -> Any:
        looked[getattr(function, "__func__", function)] += 1
        return await read_first(function, *arguments)

    monkeypatch.setattr(store, "read_first", counted)
    person = (await asyncio.gather(*(credentials.from_token(token) for _ in range(ASKED))))[0]
    agent = Caller(kind="key", organisation_id="default", key_id="k")
    await asyncio.gather(*(credentials.recheck(person) for _ in range(ASKED)))
    await asyncio.gather(*(intake._rule(agent) for _ in range(ASKED)))
    assert len(looked) == 3 and max(looked.values()) <= 2
