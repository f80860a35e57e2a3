"""Between which records of the one chain of SQLite times only go on.

A clock that is set back makes later records older than those before, and a search by halves over all of them
then looks in the wrong place. Whoever does not find a record that way looks in each of these. What was read
once is remembered, so that only the first one who misses a record reads the times of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from api.database.audit_chain import FIRST_CHAIN
from api.database.models import Audit

SECOND: Final = len("2026-01-31T09:30:00")
"""Characters of a time up to its second; processes that write in turns differ by less."""


class Stretch(NamedTuple):
    first: int
    last: int
    """Its records, by `sequence`."""
    since: str
    until: str


_SET_BACK: Final = (
    "SELECT sequence, at, earlier FROM"
    " (SELECT sequence, at, LAG(at) OVER (ORDER BY sequence) AS earlier FROM audit"
    f" WHERE organisation_id = ? AND chain = {FIRST_CHAIN} AND sequence BETWEEN ? AND ?)"
    f" WHERE earlier IS NULL OR SUBSTR(at, 1, {SECOND}) < SUBSTR(earlier, 1, {SECOND}) ORDER BY sequence"
)
_NEWEST: Final = (
    f"SELECT sequence, at FROM audit WHERE organisation_id = ? AND chain = {FIRST_CHAIN}"
    " ORDER BY sequence DESC LIMIT 1"
)
_known: WeakKeyDictionary[Any, dict[str, tuple[Stretch, ...]]] = WeakKeyDictionary()
"""Of each database, by organisation."""


def around(organisation_id: str, low: str, high: str) -> Iterator[Stretch]:
    """Those that have times from `low` to `high`, the newest first."""
    for stretch in reversed(_all(organisation_id)):
        if stretch.since[:SECOND] <= high and low[:SECOND] <= stretch.until:
            yield stretch


def _all(organisation_id: str) -> tuple[Stretch, ...]:
    database = Audit._meta.database.obj
    of_database = _known.setdefault(database, {})
    found = list(of_database.get(organisation_id, ()))
    newest = database.execute_sql(_NEWEST, (organisation_id,)).fetchone()
    if newest is None:
        return ()
    last, until = newest
    if found and found[-1].last > last:  # another database has taken the place of the one that was read
        found.clear()
    seen = found[-1].last if found else 0
    for sequence, at, earlier in database.execute_sql(_SET_BACK, (organisation_id, seen, last)).fetchall():
        if earlier is not None:
            found[-1] = found[-1]._replace(last=sequence - 1, until=earlier)
        if earlier is not None or not found:
            found.append(Stretch(sequence, sequence, at, at))
    found[-1] = found[-1]._replace(last=last, until=until)
    of_database[organisation_id] = tuple(found)
    return of_database[organisation_id]
