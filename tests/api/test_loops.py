"""Threads for an event loop where the machine gives no more of them, and turns on a loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from api.loops import FairPlaces, Threads, TooManyWait


def test_work_goes_on_with_the_threads_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """As at the limit of `TasksMax=` or `--pids-limit`, which others may have used up."""
    threads, held = Threads(4, "few"), threading.Event()
    assert threads.submit(int).result(5) == 0
    monkeypatch.setattr(threading.Thread, "start", _none_left)
    first, second = threads.submit(held.wait, 5), threads.submit(threading.get_ident)
    held.set()
    assert first.result(5) and second.result(5)
    threads.shutdown()


def test_where_there_is_none_at_all_the_start_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", _none_left)
    with pytest.raises(RuntimeError, match="new thread"):
        Threads(4, "none")


def _none_left(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_nobody_stands_behind_all_that_another_one_has_asked_for() -> None:
    done: list[str] = []

    async def work(places: FairPlaces, holder: str) -> None:
        async with places.place(holder):
            await asyncio.sleep(0)
            done.append(holder)

    async def play() -> None:
        places = FairPlaces(1)
        many = [asyncio.create_task(work(places, "many")) for _ in range(10)]
        await asyncio.sleep(0)
        await asyncio.gather(*many, work(places, "few"), work(places, "other"))
        async with places.place("many"):  # it is free again
            pass

    asyncio.run(play())
    assert {"few", "other"} < set(done[:6]) and done.count("many") == 10


async def test_of_one_caller_a_bounded_number_waits() -> None:
    places = FairPlaces(1, 2)
    async with places.place("many"):
        waiting = [asyncio.create_task(places.place("many").__aenter__()) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(TooManyWait, match="try again"):
            await places.place("many").__aenter__()
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    async with asyncio.timeout(5), places.place("few"):  # who went away keeps no place
        pass


async def test_whoever_goes_just_when_it_is_their_turn_hands_it_on() -> None:
    places = FairPlaces(1)
    async with places.place("first"):
        gone = asyncio.create_task(places.place("second").__aenter__())
        await asyncio.sleep(0)
    gone.cancel()  # the place was given, and nobody has taken it
    await asyncio.gather(gone, return_exceptions=True)
    async with asyncio.timeout(5), places.place("third"):
        pass
