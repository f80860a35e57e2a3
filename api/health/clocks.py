"""How far the clock of this node is from that of the database (PostgreSQL), which all nodes share.

Nobody here can say which of the two is wrong: all that is decided by it is that nothing is deleted while the
difference is large. People are told, since nodes whose clocks differ end each other's approvals too early or
too late, refuse each other's access tokens, and count calls in other windows.
"""

from __future__ import annotations

import logging
from typing import Final

from api.clock import Clock
from api.database.connection import Database

log = logging.getLogger("governance")

MOST_APART: Final = 10.0
"""Seconds; machines that ask for the time are milliseconds apart."""
_NOW: Final = "SELECT extract(epoch FROM clock_timestamp())::float8"


class ClockCheck:
    """One per process; `look` on a reading thread, the rest from anywhere."""

    def __init__(self, store: Database, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self.ahead = 0.0
        """Seconds that this node's clock is ahead of the database's, or behind it where they are negative."""

    @property
    def is_apart(self) -> bool:
        """Whether that is more than between machines whose clocks are kept."""
        return abs(self.ahead) > MOST_APART

    def look(self) -> None:
        """Compare the clocks. Raises what the database raises."""
        before = self._clock()
        ((theirs,),) = self._store.rows(_NOW)
        after = self._clock()
        ahead = (before + after) / 2 - float(theirs)
        was_apart = self.is_apart
        # What the way to the database and back may account for is no difference.
        self.ahead = ahead if abs(ahead) > (after - before) / 2 else 0.0
        if self.is_apart and not was_apart:
            log.warning(
                "the clock of this node is %.0f seconds %s that of the database: approvals end too early or "
                "too late, access tokens of other nodes are refused, limits may count less; set the wrong "
                "one right, and keep both so, with chrony or ntpd",
                abs(ahead),
                "ahead of" if ahead > 0 else "behind",
            )
        elif was_apart and not self.is_apart:
            log.warning("the clock of this node agrees with that of the database again")
