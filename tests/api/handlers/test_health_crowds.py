"""However many ask how the service is, and without a credential, nobody else stands behind them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api.handlers import health
from tests.harness.application import Service

MANY = 100
SLOWLY = 0.05
"""Seconds that each look at the database takes here; with one for each who asks, some would not get it within
the patience of `/health`, and be told that the database does not answer."""


@pytest.mark.parametrize("path", ["/health", "/health/ready"])
async def test_the_database_is_looked_at_once_for_all_who_ask_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    async with Service(tmp_path) as service:
        read_first, looks = service.context.store.read_first, Counter[str]()

        async def slowly(function: Callable[..., Any], *arguments: Any) -> Any:
            looks[function.__name__] += 1

            def read() -> Any:
                time.sleep(SLOWLY)
                return function(*arguments)

            return await read_first(read)

        monkeypatch.setattr(service.context.store, "read_first", slowly)
        asked = [asyncio.create_task(service.call("nobody", "GET", path)) for _ in range(MANY)]
        await asyncio.sleep(SLOWLY)  # all of them have asked
        begun = time.monotonic()
        assert (await service.call("admin", "GET", "/v1/me")).status_code == 200
        waited = time.monotonic() - begun
        answers = await asyncio.gather(*asked)
        assert {answer.status_code for answer in answers} == {200}
        assert looks["rows"] < 10 and looks["warnings"] < 10
        assert waited < MANY * SLOWLY / 4, "who has a token stood behind them"
        before = looks.total()
        assert (await service.call("nobody", "GET", path)).status_code == 200
        assert looks.total() > before, "nothing is kept"


async def test_all_are_told_when_the_database_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a later one is told when it does again."""
    monkeypatch.setattr(health, "PATIENCE", 0.2)
    async with Service(tmp_path) as service:
        read_first, back = service.context.store.read_first, threading.Event()
        monkeypatch.setattr(service.context.store, "read_first", lambda *_: read_first(back.wait, 30))
        asked = [service.call("nobody", "GET", "/health/ready") for _ in range(10)]
        answers = await asyncio.gather(*asked)
        assert {answer.status_code for answer in answers} == {503}
        assert {answer.json()["reason"] for answer in answers} == {"the database does not answer"}
        back.set()
        monkeypatch.setattr(service.context.store, "read_first", read_first)
        assert (await service.call("nobody", "GET", "/health/ready")).status_code == 200
