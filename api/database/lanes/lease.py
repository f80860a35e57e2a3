"""A lane: the right to write under a number of its own, leased by one connection at a time.

A lane has its own chain for each organisation and its own numbers, so nobody who writes waits for another.
What is known of it in memory moves only with a commit that the database has confirmed; and each transaction
moves its row under a comparison of `epoch` and `version`, which is fence, renewal and proof that memory and
database agree, all at once. After an unknown outcome a lane is leased again, which waits for what was under
way and tells what has become of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from api.database.audit_chain import Tip
from api.database.connection import Database
from api.database.lacking import count_on_server, refuse_unkeyed_server
from api.database.lanes.session import Rows, Statement
from api.database.models import numbers_of

LEASE_SECONDS: Final = 30
"""From the last commit on; longer than a server leaves a silent transaction open (`locks.SILENT_SECONDS`)."""
LANE: Final = "GV001"
"""The SQLSTATE of a lane that is somebody else's by now."""

_NOW = "extract(epoch FROM clock_timestamp())"
_END = f"expires_at = {_NOW} + {LEASE_SECONDS}"
_TAKE = (
    f"UPDATE lanes SET epoch = epoch + 1, version = version + 1, owner = ?, {_END}"
    f" WHERE lane_no = (SELECT lane_no FROM lanes WHERE owner = ? OR expires_at < {_NOW}"
    " ORDER BY owner = ? DESC, lane_no LIMIT 1 FOR UPDATE SKIP LOCKED)"
    " RETURNING lane_no, epoch, version, next_no"
)
_MAKE = (
    "INSERT INTO lanes (lane_no, epoch, version, next_no, owner, expires_at)"
    f" SELECT COALESCE(MAX(lane_no), 0) + 1, 1, 1, 1, ?, {_NOW} + {LEASE_SECONDS} FROM lanes"
    " ON CONFLICT DO NOTHING RETURNING lane_no, epoch, version, next_no"
)
_TIPS = "SELECT organisation_id, sequence, hash FROM chains WHERE chain = ?"
_RELEASE = "UPDATE lanes SET expires_at = 0 WHERE owner LIKE ?"
MOVE: Final = (
    f"UPDATE lanes SET version = version + 1, next_no = next_no + ?::bigint, {_END}"
    " WHERE lane_no = ?::bigint AND epoch = ?::bigint AND version = ?::bigint RETURNING 1"
)
_ADVANCE = f"WITH moved AS ({MOVE}) SELECT governance_guard((SELECT COUNT(*) FROM moved) = 1, '{LANE}')"

Ask = Callable[[str, Sequence[Any]], Rows]


@dataclass(slots=True)
class Lane:
    """As it was leased, or after the last confirmed commit."""

    number: int
    epoch: int
    version: int
    next_no: int
    tips: dict[str, Tip]
    """Organisation to where its chain ends."""

    @property
    def first(self) -> int:
        """The next number that is free."""
        return numbers_of(self.number) + self.next_no

    def moving(self, numbers: int) -> list[str]:
        """The values of `MOVE`, for a transaction that may use so many numbers."""
        return [str(numbers), str(self.number), str(self.epoch), str(self.version)]

    def advance(self, numbers: int) -> Statement:
        return _ADVANCE, self.moving(numbers)

    def moved(self, numbers: int, tips: Mapping[str, Tip]) -> None:
        """That transaction is committed."""
        self.version += 1
        self.next_no += numbers
        self.tips.update(tips)


def lease(ask: Ask, owner: str) -> Lane:
    """Part of a transaction: a lane that is free, the owner's own before others, or a new one. Raises
    DatabaseUnavailable for a database that is being restored under the service: the unique indexes come last,
    and what is written before they are there keeps them from being made."""
    refuse_unkeyed_server(ask)
    count_on_server(ask)
    found = ask(_TAKE, (owner, owner, owner))
    while not found:
        found = ask(_MAKE, (owner,))
    number, epoch, version, next_no = found[0]
    tips = {name: (int(sequence), digest) for name, sequence, digest in ask(_TIPS, (number,))}
    return Lane(int(number), int(epoch), int(version), int(next_no), tips)


def spans(store: Database) -> list[tuple[int, int]]:
    """The first and the last number of each lane, 0 being that of SQLite and of databases of before: rows are
    in order of time within each."""
    lanes = [] if store.is_sqlite else [int(row[0]) for row in store.rows("SELECT lane_no FROM lanes")]
    return [(numbers_of(lane), numbers_of(lane + 1) - 1) for lane in [0, *sorted(lanes)]]


def release(ask: Callable[[str, Sequence[Any]], Any], process: str) -> None:
    """Let go of all lanes of a process, whose owners begin with its name."""
    ask(_RELEASE, (f"{process}%",))
