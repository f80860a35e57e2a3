"""Looks at the database of which one does for all who ask for the same before it begins.

Who asks and whether all is well is read on threads of its own. Whoever keeps hundreds of requests at work
that all need the same of it would have everybody else stand behind as many looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from api.loops import shared_task

T = TypeVar("T")


class SharedLooks:
    """Used on one event loop."""

    def __init__(self) -> None:
        self._next: dict[Hashable, asyncio.Task[Any]] = {}
        """By name: looks that have not begun."""
        self._looking: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()

    async def of(self, name: Hashable, look: Callable[[], Awaitable[T]]) -> T:
        """What a look finds that begins after this is called; one of a name is under way at a time."""
        found = self._next.get(name)
        if found is None:
            lock = self._looking.setdefault(name, asyncio.Lock())
            found = self._next[name] = shared_task(self._look(name, look, lock))
        result: T = await asyncio.shield(found)
        return result

    async def _look(self, name: Hashable, look: Callable[[], Awaitable[T]], lock: asyncio.Lock) -> T:
        async with lock:
            del self._next[name]  # INVARIANT: who asks from now on waits for the one after this
            return await look()
