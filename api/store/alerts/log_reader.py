"""How far the log was read for alerts, by whom, and what detectors have counted until then.

INVARIANT: position, tallies, agents and alerts change in one transaction, and only for the one whose version
is the newest, so whatever dies or overtakes, nothing in the log counts twice or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from api.database.audit_chain import ChainName
from api.database.connection import Database
from api.database.transaction import Transaction
from engine.detectors.tally import Tally
from engine.detectors.watch import TallyName

_COLUMNS: Final = ("organisation_id", "name", "subject", "tally", "expires_at")
_POSITION: Final = ("organisation_id", "chain", "sequence", "silent_until")
_FORGET: Final = "DELETE FROM detector_tallies WHERE organisation_id = ? AND name = ? AND subject = ?"
_BEHIND_SECONDS: Final = 86_400.0
_AT_ONCE: Final = 1_000
_EXPIRED: Final = "SELECT organisation_id, name, subject FROM detector_tallies WHERE expires_at < ? LIMIT ?"


class Overtaken(Exception):
    """Somebody else has read on; what was counted here does not count."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The lease on reading the audit log: one node at a time reads it for detectors."""

    version: int
    owner: str
    leased_until: float


def turn(store: Database) -> Turn:
    (row,) = store.rows("SELECT version, owner, leased_until FROM log_readers WHERE reader_no = 1")
    return Turn(int(row[0]), str(row[1]), float(row[2]))


def take_turn(transaction: Transaction, version: int, owner: str, seconds: float) -> None:
    """Take the lease, or keep it, by compare-and-swap on its version. Raises Overtaken when somebody else has
    it by now."""
    changed = transaction.store.rows_changed(
        "UPDATE log_readers SET version = ?, owner = ?, leased_until = ? WHERE reader_no = 1 AND version = ?",
        (version + 1, owner, transaction.now + seconds, version),
    )
    if changed != 1:
        raise Overtaken


def positions(store: Database) -> dict[ChainName, tuple[int, int]]:
    """For each chain: the sequence of the last record that was read, and the one up to which detectors count
    but raise no alerts."""
    rows = store.rows("SELECT organisation_id, chain, sequence, silent_until FROM log_positions")
    return {(row[0], int(row[1])): (int(row[2]), int(row[3])) for row in rows}


def keep_positions(transaction: Transaction, moved: Mapping[ChainName, tuple[int, int]]) -> None:
    rows = [(*name, *position) for name, position in sorted(moved.items())]
    transaction.store.insert_many("log_positions", _POSITION, rows, key=_POSITION[:2])


def tallies(store: Database, organisation_id: str, names: Iterable[TallyName]) -> dict[TallyName, Tally]:
    """The stored tallies among these names; a name without one is left out."""
    found = {}
    keys = [(organisation_id, name, subject) for name, subject in names]
    for start in range(0, len(keys), _AT_ONCE):
        for _, name, subject, tally in store.found(_TALLIES, keys[start : start + _AT_ONCE]):
            found[name, subject] = msgspec.json.decode(tally, type=Tally)
    return found


_TALLIES: Final = (
    "SELECT t.organisation_id, t.name, t.subject, t.tally FROM {keys} CROSS JOIN detector_tallies t"
    " WHERE t.organisation_id = w.column1 AND t.name = w.column2 AND t.subject = w.column3"
)


def keep_tallies(
    transaction: Transaction, organisation_id: str, changed: Mapping[TallyName, tuple[Tally, int]]
) -> None:
    """Each with the minute (since the epoch) after which it is of no use."""
    rows = [
        (organisation_id, *name, msgspec.json.encode(tally).decode(), minute * 60.0)
        for name, (tally, minute) in sorted(changed.items(), key=lambda item: item[0])
    ]
    transaction.store.insert_many("detector_tallies", _COLUMNS, rows, key=_COLUMNS[:3])


def count_subjects(store: Database, organisation_id: str) -> dict[str, int]:
    """Name of a counting to the subjects that are being counted."""
    rows = store.rows(
        "SELECT name, COUNT(*) FROM detector_tallies WHERE organisation_id = ? GROUP BY name",
        (organisation_id,),
    )
    return {name: int(count) for name, count in rows}


def expired(store: Database, now: float, most: int) -> list[tuple[str, str, str]]:
    """Tallies that have been of no use for a day; until then whoever is behind in the log may need them."""
    return [(row[0], row[1], row[2]) for row in store.rows(_EXPIRED, (now - _BEHIND_SECONDS, most))]


def forget_expired(transaction: Transaction, now: float, most: int) -> int:
    """Delete some of them; returns how many."""
    found = expired(transaction.store, now, most)
    for name in found:
        transaction.store.rows_changed(_FORGET, name)
    return len(found)
