"""What was refused or done leaves no garbage: its collector counts objects, and a thousand refused bodies of
a megabyte are few."""

from __future__ import annotations

import contextlib
import gc
from functools import partial
from pathlib import Path
from weakref import WeakSet

import pytest

from api.http.problems import ApiError
from api.ingestion.quotas import ProcessorTime
from api.ingestion.turns import Turns
from tests.harness.application import Service
from tests.harness.uncollected import uncollected


class Large:
    """Stands for a body of a megabyte."""


@pytest.mark.parametrize("fails", [False, True])
async def test_nothing_stays_of_what_was_done_in_its_turn(fails: bool) -> None:
    turns, left = Turns("test", 1, ProcessorTime()), WeakSet[Large]()

    def work(large: Large) -> Large:
        if fails:
            raise ZeroDivisionError
        return large

    async def ask() -> None:
        large = Large()
        left.add(large)
        with contextlib.suppress(ZeroDivisionError):
            await turns.run("key", partial(work, large))

    with uncollected():
        for _ in range(10):
            await ask()
        await turns.run("key", lambda: None)  # the thread knows what it has done last
        assert not left
    turns.close()


async def test_nothing_stays_of_the_refused_events_of_a_batch(tmp_path: Path) -> None:
    async with Service(tmp_path) as service:
        with uncollected():
            answer = await service.call("agent", "POST", "/v1/events/batch", {"events": [{}] * 300})
            left = [each for each in gc.get_objects() if isinstance(each, ApiError)]
    assert {each["status"] for each in answer.json()["results"]} == {422}
    assert len(left) < 3
