"""Looks - at the database, or for news - of which one does for all who ask for the same.

Whoever keeps hundreds of requests at work that all need the same would have everybody else stand behind as
many looks. `of` is for who must not be told what was found before they asked, as whether a key still counts;
`together` for who may be, and for looks that last until there is something to be told.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from api.loops import shared_task

T = TypeVar("T")


@dataclass(slots=True)
class _Look:
    """What some look for together, and how many they are."""

    task: asyncio.Task[Any]
    count: int = 0


class SharedLooks:
    """Used on one event loop."""

    def __init__(self) -> None:
        self._next: dict[Hashable, asyncio.Task[Any]] = {}
        """By name: looks that have not begun."""
        self._looking: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()
        self._under_way: dict[Hashable, _Look] = {}

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

    @contextlib.contextmanager
    def together(
        self, name: Hashable, look: Callable[[], Coroutine[Any, Any, T]]
    ) -> Iterator[asyncio.Task[T]]:
        """The look that is under way, or a new one. It ends with what it finds, or with the last who waits
        for it."""
        shared = self._under_way.get(name)
        if shared is None or shared.task.done():
            shared = self._under_way[name] = _Look(shared_task(look()))
        shared.count += 1
        try:
            yield shared.task
        finally:
            shared.count -= 1
            if not shared.count:
                shared.task.cancel()
                if self._under_way.get(name) is shared:
                    del self._under_way[name]
