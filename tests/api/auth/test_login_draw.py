"""After a wait the next try to log in is drawn by lot: who guesses without a pause keeps nobody out."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from api.auth import login_draw
from api.auth.login_draw import LoginDraw
from api.auth.passwords import MOST_WAITING
from api.store import login_limits
from tests.harness.application import PASSWORD, Service
from tests.harness.running_service import Served


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_draw, "SECONDS", 0.1)


def draw(*lots: tuple[str, str]) -> list[bool]:
    async def play() -> list[bool]:
        made = LoginDraw()
        found = await asyncio.gather(*(made.drawn(bucket, password) for bucket, password in lots))
        assert not made._draws
        return found

    return asyncio.run(play())


def test_one_of_those_who_come_together_is_let_in() -> None:
    assert draw(("a", "x")) == [True]
    found = draw(*[("a", "x")] * 50, *[("b", "y")] * 50)
    assert sum(found[:50]) == sum(found[50:]) == 1


def test_each_password_has_one_lot() -> None:
    """Whoever sends the same guess two hundred times, and before the others, wins about half of the draws."""

    async def play() -> int:
        made = LoginDraw()
        buckets = [str(number) for number in range(200)]
        tries = [made.drawn(bucket, "guess") for bucket in buckets for _ in range(20)]
        right = [made.drawn(bucket, "right") for bucket in buckets]
        return sum((await asyncio.gather(*tries, *right))[-200:])

    assert 40 < asyncio.run(play()) < 160


def test_late_lots_have_the_same_chance_and_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_draw, "MOST_LOTS", 2)

    async def play() -> int:
        made = LoginDraw()
        tries = [made.drawn(str(bucket), f"p{lot}") for bucket in range(200) for lot in range(4)]
        found = await asyncio.gather(*tries)
        assert sum(found) == 200
        return sum(found[3::4])

    assert 15 < asyncio.run(play()) < 110
    monkeypatch.setattr(login_draw, "MOST_DRAWS", 3)
    assert draw(*((str(bucket), "x") for bucket in range(5))) == [True] * 3 + [False] * 2


def test_who_guesses_from_the_same_place_without_a_pause_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_draw, "SECONDS", 0.3)
    monkeypatch.setattr(login_limits, "FIRST_WAIT", 1)
    monkeypatch.setattr(login_limits, "PAIR", login_limits.Limit(5, 900, 1))
    with Served(tmp_path) as service:
        user = service.user("admin")
        over = threading.Event()

        def guess() -> None:
            while not over.is_set():
                service.log_in(user["email"], "not the password")

        threads = [threading.Thread(target=guess) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            time.sleep(0.5)
            deadline = time.monotonic() + 60
            while (status := service.log_in(user["email"], PASSWORD).status_code) != 200:
                assert status == 429 and time.monotonic() < deadline
                time.sleep(0.05)
        finally:
            over.set()
            for thread in threads:
                thread.join()


async def test_a_crowd_that_fills_the_queue_keeps_nobody_out_who_is_known(tmp_path: Path) -> None:
    async with Service(tmp_path) as service:
        hasher = service.context.credentials.passwords

        async def login(email: str) -> int:
            answer = await service.call({}, "POST", "/auth/login", {"email": email, "password": PASSWORD})
            return answer.status_code

        admin = "admin@acme.example"
        assert await login(admin) == 200
        hasher._waiting["of a crowd"] = MOST_WAITING
        assert await login(admin) == 200
        assert await login("nobody@acme.example") == 429
        hasher._waiting["of a crowd"] = 2 * MOST_WAITING
        assert await login(admin) == 429
