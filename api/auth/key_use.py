"""When API keys were last used, to the minute: one write a minute for all that were used in it, if any."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Final

from api.database.errors import DatabaseUnavailable
from api.database.outage import Outage
from api.database.writer import Writer
from api.store import accounts

EVERY_SECONDS: Final = 60.0


class KeyUse:
    """One per process; `used` gives the ids of the keys that were used since it was last asked."""

    def __init__(self, used: Callable[[], list[str]], writer: Writer) -> None:
        self._used, self._writer = used, writer

    async def write_down(self) -> None:
        """Raises what the database raises; the next use is written down again."""
        if used := self._used():
            await self._writer.write(partial(accounts.keys_were_used, key_ids=used))

    async def close(self) -> None:
        """What was used in the last minute."""
        with contextlib.suppress(DatabaseUnavailable, TimeoutError):
            await asyncio.wait_for(self.write_down(), 1)


async def keep_key_use(key_use: KeyUse) -> None:
    """For ever."""
    outage = Outage("the last use of API keys")
    while True:
        await asyncio.sleep(EVERY_SECONDS)
        try:
            await key_use.write_down()
        except Exception as error:
            outage.met(error)
        else:
            outage.over()
