"""Who is let in when tries to log in have to wait for one another: drawn by lot, not who comes first.

Whoever guesses without a pause would otherwise be the first whenever a wait is over, and keep the right
password of the same place out for as long as that goes on. Each password has one lot, however often it comes.
"""

from __future__ import annotations

import asyncio
import secrets
from hashlib import blake2b
from typing import Final

SECONDS = 2.0
"""After a wait, for tries to come together."""
MOST_LOTS: Final = 64
"""In one draw; one more takes the place of one drawn by lot, or none."""
MOST_DRAWS: Final = 1_000
"""At once; beyond, whoever would begin another one is not let in."""


class _Draw:
    def __init__(self) -> None:
        self.lots: dict[bytes, list[asyncio.Future[bool]]] = {}
        self.came = 0
        """How many lots there would be."""


class LoginDraw:
    """One per process, used on its event loop."""

    def __init__(self) -> None:
        self._draws: dict[str, _Draw] = {}
        self._salt = secrets.token_bytes(16)

    async def drawn(self, bucket: str, password: str) -> bool:
        """Whether this try is let in, of all that come for the same bucket within some seconds."""
        loop = asyncio.get_running_loop()
        draw = self._draws.get(bucket)
        if draw is None:
            if len(self._draws) >= MOST_DRAWS:
                return False
            draw = self._draws[bucket] = _Draw()
            loop.call_later(SECONDS, self._end, bucket)
        lot = blake2b(password.encode(errors="replace"), key=self._salt).digest()
        future: asyncio.Future[bool] = loop.create_future()
        if lot not in draw.lots and not _finds_room(draw):
            return False
        draw.lots.setdefault(lot, []).append(future)
        return await future

    def _end(self, bucket: str) -> None:
        draw = self._draws.pop(bucket)
        chosen = secrets.choice(list(draw.lots))
        winner = next((future for future in draw.lots[chosen] if not future.done()), None)
        for futures in draw.lots.values():
            _settle(futures, winner)


def _finds_room(draw: _Draw) -> bool:
    """Room for one more lot. Each that came is among those kept with the same probability."""
    draw.came += 1
    if len(draw.lots) < MOST_LOTS:
        return True
    if secrets.randbelow(draw.came) >= MOST_LOTS:
        return False
    _settle(draw.lots.pop(secrets.choice(list(draw.lots))), None)
    return True


def _settle(futures: list[asyncio.Future[bool]], winner: asyncio.Future[bool] | None) -> None:
    for future in futures:
        if not future.done():
            future.set_result(future is winner)
