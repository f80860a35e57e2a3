"""A lock that is free in a forked process, whoever held it when that began: no other thread goes on there."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Final

_all: Final[weakref.WeakSet[ForkLock]] = weakref.WeakSet()


class ForkLock:
    """Used by `with`; the thread that has it may take it again, as what a signal interrupts may be this."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _all.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def after_fork(self) -> None:
        """In the child: what this thread holds it still holds."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = threading.RLock()


def _after_fork() -> None:
    for lock in list(_all):
        lock.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
