"""Deleting old rows, oldest first and few at a time.

What is kept for ever is not here: audit, approvals, runs, decisions. Events and deliveries are numbered as
they came, so the oldest are found by number, without an index on times that every event would pay for.

What says that it came at a time that is still to come was written while the clock was ahead: it came before
the next one that does not. So it does not hide what is behind it, and goes with that, if any is in its lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product, takewhile
from typing import Any

from api.clock import APART_SECONDS, iso, seconds
from api.database.connection import Database, marks
from api.database.id_index import EVENTS, IdIndex
from api.database.lanes.lease import spans
from api.database.partitions import catalog
from api.database.transaction import Transaction
from api.store.alerts import alerts, log_reader

_OLD_EVENTS = (
    'SELECT event_no, received_at, id_hash, organisation_id, event_id FROM "{table}"'
    " WHERE event_no > ? ORDER BY event_no LIMIT ?"
)
"""Of one lane, from its first number on."""
_OLD_DELIVERIES = "SELECT delivery_no, created_at, status FROM deliveries ORDER BY delivery_no LIMIT ?"
_NEXT_ROW = 'SELECT {key}, {time} FROM "{table}" WHERE {key} > ? AND {key} <= ? ORDER BY {key}{order} LIMIT 1'
_PASSED_OVER = 500
"""So many that are still pending may stand before finished ones."""
_BEFORE = (
    "SELECT MAX(last) FROM (SELECT (SELECT MAX(a.at) FROM audit a WHERE a.organisation_id = o.organisation_id"
    " AND a.at <= ?) AS last FROM organisations o) records"
)
_NEXT = (
    "SELECT MIN(next) FROM (SELECT (SELECT MIN(a.at) FROM audit a WHERE a.organisation_id = o.organisation_id"
    " AND a.at > ? AND a.at <= ?) AS next FROM organisations o) records"
)
LAST_NUMBER = (1 << 63) - 1
OUTPUTS = "outputs.cleared"
"""The counter of the seconds up to which calls were decided whose outputs are gone."""
_OLD_CALLS = (
    "SELECT call_no, decided_at, output IS NOT NULL FROM tool_calls WHERE call_no > ? AND call_no <= ?"
    " ORDER BY call_no LIMIT ?"
)
_SPENT = "SELECT hit_no FROM rate_hits WHERE expires_at <= ? ORDER BY expires_at LIMIT ?"


def anything(
    store: Database,
    now: float,
    events_before: str,
    deliveries_before: str,
    alerts_before: str = "",
    days_together: int = 0,
) -> bool:
    """Whether there is anything to delete: a cheap read. An empty time: nothing is too old."""
    if store.rows(_SPENT, (now, 1)) or log_reader.expired(store, now, 1):
        return True
    if alerts_before and alerts.old(store, alerts_before, 1):
        return True
    if events_before and _any_old_event(store, now, events_before, days_together):
        return True
    return bool(deliveries_before and _finished(store, now, deliveries_before, 1))


def pause(store: Database, now: float, lately: float) -> float:
    """For how many seconds nothing was recorded, up to the first record of the last `lately` seconds, or to
    now. So long the service was off or idle, or by so much the clock has leapt ahead."""
    since = iso(now - lately)
    ((before,),) = store.rows(_BEFORE, (since,))
    if before is None:
        return 0.0
    ((after,),) = store.rows(_NEXT, (since, iso(now)))
    return (now if after is None else seconds(after)) - seconds(before)


def events(
    transaction: Transaction, id_index: IdIndex, before: str, most: int, days_together: int = 0
) -> int:
    """Events received before a time (ISO 8601 UTC), but for those in partitions of so many days or less: they
    go together. On SQLite the newest event stays, since it holds the numbering.

    INVARIANT: what goes is filed, and goes from the directory, too: no id leads to nothing.
    """
    store = transaction.store
    catalog.stay(store)
    rows = _old_events(store, transaction.now, before, most, days_together)
    if store.is_sqlite:
        newest = transaction.highest("events")
        rows = [row for row in rows if row[0] != newest]
        if rows and rows[-1][0] > id_index.flushed(transaction):
            id_index.flush(transaction)
        rows = [row for row in rows if row[0] <= id_index.flushed(transaction)]
        hashes = [row[2] for row in rows]
        if hashes:
            store.rows_changed(
                f"DELETE FROM directory WHERE owner = {EVENTS} AND hash IN ({marks(hashes)})", hashes
            )
    else:
        id_index.keys.forget_events(transaction, [(row[3], row[4]) for row in rows])
    return _delete(store, "events", "event_no", [row[0] for row in rows])


def _any_old_event(store: Database, now: float, before: str, days_together: int) -> bool:
    if store.is_sqlite:
        return bool(_old_events(store, now, before, 1, days_together))
    with store.peewee.atomic():
        catalog.stay(store)
        return bool(catalog.past(store, before) or _old_events(store, now, before, 1, days_together))


def _old_events(
    store: Database, now: float, before: str, most: int, days_together: int
) -> list[tuple[Any, ...]]:
    """The oldest events, if they were received before that time: of each lane the first ones."""
    found: list[tuple[Any, ...]] = []
    for table, (first, last) in product(catalog.mixed(store, days_together, before), spans(store)):
        rows = store.rows(_OLD_EVENTS.format(table=table), (first - 1, most - len(found)))
        rows = [row for row in rows if row[0] <= last]
        times = _times(
            store, now, [row[:2] for row in rows], last, (catalog.EVENTS.name, "event_no", "received_at")
        )
        found += [row for row, time in zip(rows, times, strict=True) if time < before]
        if len(found) >= most:
            break
    return found


def old_calls(
    store: Database, now: float, after: int, last: int, before: str, most: int
) -> list[tuple[int, bool]]:
    """The calls of one lane behind a number that were decided before a time: each with its number, and
    whether it has an output."""
    rows = store.rows(_OLD_CALLS, (after, last, most))
    where = ("tool_calls", "call_no", "decided_at")
    times = _times(store, now, [row[:2] for row in rows], last, where)
    old = takewhile(lambda pair: pair[1] < before, zip(rows, times, strict=True))
    return [(int(row[0]), bool(row[2])) for row, _ in old]


def first_call_since(store: Database, first: int, last: int, since: str) -> int:
    """A number of a lane before which all calls were decided before a time, by halves."""
    while first < last:
        middle = (first + last) // 2
        rows = store.rows(_OLD_CALLS, (middle - 1, last, 1))
        if rows and rows[0][1] < since:
            first = int(rows[0][0]) + 1
        else:
            last = middle
    return first


def clear_outputs(transaction: Transaction, numbers: Sequence[int]) -> int:
    """What these calls gave back is not kept any more; that they were decided is."""
    return transaction.store.rows_changed(
        f"UPDATE tool_calls SET output = NULL WHERE call_no IN ({marks(numbers)})", numbers
    )


def deliveries(transaction: Transaction, before: str, most: int) -> int:
    """Deliveries made before a time that are not pending any more."""
    numbers = _finished(transaction.store, transaction.now, before, most)
    return _delete(transaction.store, "deliveries", "delivery_no", numbers)


def rate_hits(transaction: Transaction, now: float, most: int) -> int:
    """Counted calls whose window is over."""
    numbers = [row[0] for row in transaction.store.rows(_SPENT, (now, most))]
    return _delete(transaction.store, "rate_hits", "hit_no", numbers)


def ahead(store: Database, after: float, most: int) -> list[int]:
    """Counted calls of after a time, which is still to come. Goes through all of them."""
    return [row[0] for row in store.rows("SELECT hit_no FROM rate_hits WHERE at > ? LIMIT ?", (after, most))]


def pull_back(transaction: Transaction, after: float, most: int) -> int:
    """Have them count as made now. INVARIANT: each counts for a whole window from now on."""
    numbers, now = ahead(transaction.store, after, most), transaction.now
    if not numbers:
        return 0
    return transaction.store.rows_changed(
        f"UPDATE rate_hits SET expires_at = expires_at - at + ?, at = ? WHERE hit_no IN ({marks(numbers)})",
        (now, now, *numbers),
    )


def _finished(store: Database, now: float, before: str, most: int) -> list[Any]:
    rows = store.rows(_OLD_DELIVERIES, (most + _PASSED_OVER,))
    where = ("deliveries", "delivery_no", "created_at")
    times = _times(store, now, [row[:2] for row in rows], LAST_NUMBER, where)
    numbers = [
        number
        for (number, _, status), time in zip(rows, times, strict=True)
        if time < before and status != "pending"
    ]
    return numbers[:most]


def _times(
    store: Database, now: float, rows: Sequence[tuple[int, str]], last: int, where: tuple[str, str, str]
) -> list[str]:
    """When each of these rows came at the latest, in their order; see the module. `where`: the table, its
    numbers and its times; they go on up to the number `last`."""
    ahead, times, following = iso(now + APART_SECONDS), [], ""
    for number, time in reversed(rows):
        if time <= ahead:
            following = time
        elif not following:
            following = _behind(store, ahead, number, last, where) or time
        times.append(following)
    return times[::-1]


def _behind(store: Database, ahead: str, number: int, last: int, where: tuple[str, str, str]) -> str:
    """The time of the first row behind a number that is not ahead, by halves; empty: the newest is ahead."""
    table, key, time = where

    def row(after: int, order: str = "") -> Sequence[Any]:
        asked = _NEXT_ROW.format(table=table, key=key, time=time, order=order)
        return next(iter(store.rows(asked, (after, last))), (last, ""))

    until, found = row(number, " DESC")
    if not found or found > ahead:
        return ""
    while until - number > 1:
        middle = (number + until) // 2
        here, its_time = row(middle - 1)
        if its_time > ahead:
            number = here
        else:
            until, found = middle, its_time
    return str(found)


def _delete(store: Database, table: str, key: str, numbers: list[Any]) -> int:
    if not numbers:
        return 0
    return store.rows_changed(f'DELETE FROM "{table}" WHERE {key} IN ({marks(numbers)})', numbers)
