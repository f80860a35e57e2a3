"""A system that has no thread to give for a moment keeps nobody waiting for ever."""

from __future__ import annotations

import asyncio
import threading

import pytest

from api.ingestion.quotas import ProcessorTime
from api.ingestion.turns import Turns


@pytest.mark.parametrize("threads", [1, 2])
async def test_work_goes_on_once_there_are_threads_again(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    turns = Turns("test", threads, ProcessorTime())
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        with pytest.raises(RuntimeError):
            await turns.run("key", lambda: 1)
    assert await asyncio.wait_for(turns.run("key", lambda: 2), 60) == 2
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        assert await asyncio.wait_for(turns.run("other", lambda: 3), 60) == 3
    turns.close()
