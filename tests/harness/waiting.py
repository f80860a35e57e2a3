"""Waiting for what comes by itself, but not for ever."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(probe: Callable[[], T], seconds: float = 60, why: str = "it did not come to pass") -> T:
    """What the probe finds, once it finds something."""
    deadline = time.monotonic() + seconds
    while not (found := probe()):
        assert time.monotonic() < deadline, why
        time.sleep(0.02)
    return found


def busy(seconds: float) -> None:
    """Take as much of the processor's time, as what is dear does."""
    begun = time.thread_time()
    while time.thread_time() - begun < seconds:
        pass
