"""Threads for an event loop where the machine gives no more of them."""

from __future__ import annotations

import threading

import pytest

from api.loops import Threads


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
