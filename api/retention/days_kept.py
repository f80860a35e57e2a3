"""How long the settings say that things are kept, and since when that counts."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from api.clock import DAY, iso
from api.database.table import counter
from api.database.writer import Writer

log = logging.getLogger("governance")

EVENT_DAYS: Final = "GOVERNANCE_EVENT_DAYS"
DELIVERY_DAYS: Final = "GOVERNANCE_DELIVERY_DAYS"
ALERT_DAYS: Final = "GOVERNANCE_ALERT_DAYS"
AUDIT_DAYS: Final = "GOVERNANCE_AUDIT_DAYS"
KEPT: Final = "kept."
"""Before the name of a setting: the counter of one more than the days that count, 0 where none were noted."""
FEWER_SINCE: Final = "fewer."
"""The same of the second since when the setting says fewer; 0: it does not."""
WAITING: Final = "waiting."
"""The same of one more than these fewer days, which count a day after that second; 0: none were noted."""


class DaysKept:
    """How many days things are kept, by the name of the setting; 0: for ever. Fewer than before count a day
    later, so that a mistyped number can be put right before it has cost anything: each number a day after it
    was first said, whatever was waited for before. What counts stands in the database: for all nodes, and
    while none runs.

    INVARIANT: of nodes with different settings the longest counts; any that says more begins the day anew.
    """

    def __init__(self, days: Mapping[str, int]) -> None:
        self._days = days
        self._told: set[tuple[str, int]] = set()
        self.counting: Mapping[str, int] = {}
        """Those that count, by the last look."""

    async def look(self, writer: Writer, now: float) -> None:
        """What counts now; noted, where that is new."""
        names = [prefix + name for name in self._days for prefix in (KEPT, FEWER_SINCE, WAITING)]
        noted = await writer.store.read(lambda: {name: counter(name) for name in names})
        changed: dict[str, int] = {}
        counting: dict[str, int] = {}
        for name, days in self._days.items():
            before, waiting = noted[KEPT + name] - 1, noted[WAITING + name] - 1
            since = noted[FEWER_SINCE + name]
            known = 0 < since <= now
            if known and since <= now - DAY and waiting >= days:
                # What was waited for counts, which may be more than is said here.
                before, known = waiting, False
            waits = _is_fewer(days, before)
            if not (known and waiting >= days):
                since, waiting = int(now), days
            counting[name] = before if waits else days
            changed[KEPT + name] = counting[name] + 1
            changed[FEWER_SINCE + name] = since if waits else 0
            changed[WAITING + name] = waiting + 1 if waits else 0
            if waits and (name, before) not in self._told:
                self._warn(name, days, before, since + DAY)
        if new := {each: value for each, value in changed.items() if value != noted[each]}:
            await writer.write(lambda transaction: transaction.put(new))
        self.counting = counting

    def _warn(self, name: str, days: int, before: int, until: float) -> None:
        self._told.add((name, before))
        log.warning(
            "%s is %d now, and was %s: what it would delete stays until %s, and goes for ever then. If that"
            " is not meant, set it to what it was and start again",
            name,
            days,
            before or "0 (for ever)",
            iso(until),
        )


def _is_fewer(days: int, before: int) -> bool:
    """Less is kept; 0 is for ever, and -1 before anything was noted."""
    return before == 0 < days or 0 < days < before
