"""How far the audit log was signed, noted outside the database: in the data folder, with each checkpoint.

A database that holds less than this has lost records - its log (`-wal`) was tidied away or cut short, or an
older copy lies in its place - and with them perhaps halts and decisions, though all that it still says is
right. So a start and the commands refuse it, until somebody says that it is meant (`accept`).

With PostgreSQL it refuses nothing: after a failover to a copy that lacks the last commits the nodes go on,
and each of them has a data folder of its own that may have missed the last checkpoints of others. What is
gone of those that it saw is said in the log, once, and the note goes back to what is there.

INVARIANT: of SQLite it never goes back by itself: it is written anew only while the database holds all of it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from api.audit.checkpoints import Body, Checkpointer, by_chain, newest
from api.database.audit_chain import tips
from api.database.connection import Database
from api.database.sqlite.files import beside_database, resolved
from api.database.sqlite.network import perhaps_another_machine
from api.database.sqlite.write_lock import is_served
from api.database.table import INSTALLATION
from api.settings import Settings, SettingsError
from engine.worktree.ownership import new_file

log = logging.getLogger("governance")

FILE: Final = "audit-mark"
_HASH: Final = "SELECT hash FROM audit WHERE organisation_id = ? AND chain = ? AND sequence = ?"
_GONE: Final = "SELECT body FROM checkpoints WHERE number = (SELECT MAX(number) FROM audit_carried)"
_ID: Final = f"SELECT value FROM counters WHERE name = '{INSTALLATION}'"
_COUNT: Final = "SELECT COALESCE(MAX(sequence), 0) FROM audit WHERE organisation_id = ? AND chain = ?"

_OLDER: Final = (
    "the database is behind `%s`: %s, and with them perhaps halts, decisions and approvals. An older dump, "
    "or a copy that lacks the last commits, lies in its place; if that is meant, halt what was halted since, "
    "and revoke the API keys and grants that were revoked"
)

Rows = Callable[[str, Sequence[Any]], Sequence[Sequence[Any]]]


class _Mark(msgspec.Struct, frozen=True):
    """`database` is its place relative to the data folder, so that both may be moved together;
    `installation` its id, which copies of it have as well; 0: not known."""

    at: str
    chains: dict[str, dict[str, tuple[int, str]]]
    database: str
    installation: int = 0


@dataclass(frozen=True, slots=True)
class Lack:
    """A chain that the database does not hold as far as it was signed."""

    organisation_id: str
    signed: int
    found: int

    @property
    def text(self) -> str:
        if self.found >= self.signed:
            return f"record {self.signed} of `{self.organisation_id}` is another one than was signed"
        return (
            f"{self.signed - self.found} of {self.signed} signed records of `{self.organisation_id}` are gone"
        )


class AuditMark:
    """Of the database of these settings."""

    def __init__(self, settings: Settings) -> None:
        self.path = settings.data_dir / FILE
        url = settings.database
        self._database = (
            resolved(Path(url.removeprefix("sqlite:///"))) if url.startswith("sqlite:///") else None
        )
        self._name = ""
        if self._database is not None:
            self._name = os.path.relpath(self._database.absolute(), settings.data_dir.absolute())
        self.behind = False
        """The database of the running service does not hold what was signed."""
        self._lost: int | None = None
        """How many connections to PostgreSQL were lost when it was held against this; None: it was not."""
        self._told = ""
        """Why it could not be read or written, while that is so."""
        self._installation = 0

    # Asked before the database is used ------------------------------------------------------------

    @property
    def names_this(self) -> bool:
        """Whether there is one, of this database. Raises SettingsError."""
        return self._read() is not None

    @property
    def beside_log(self) -> bool:
        """Whether a log that is not empty lies beside the database."""
        if self._database is None:
            return False
        log_file, _ = beside_database(self._database)
        return log_file.is_file() and log_file.stat().st_size > 0

    def lacks(self, *, as_copy: bool = False) -> list[Lack]:
        """What the database, which nobody has to have open, does not hold of what was signed; `as_copy`: also
        of what was signed in another one of which it is a copy. It is only read: what lies beside it may not
        be its own. Raises SettingsError."""
        mark = self._noted()
        if mark is None or self._database is None or not self._database.is_file():
            return []
        if mark.database != self._name and not as_copy:
            return []
        # Without a log there is no need to make one, which might be in the way of the right one.
        how = "mode=ro" if self.beside_log else "immutable=1"
        place = f"{self._database.absolute().as_uri()}?{how}"
        with (
            contextlib.suppress(sqlite3.Error),  # who opens it next says why
            contextlib.closing(sqlite3.connect(place, uri=True)) as connection,
        ):

            def rows(*asked: Any) -> list[Any]:
                return connection.execute(*asked).fetchall()

            if mark.database == self._name or (mark.installation and mark.installation == _id(rows)):
                return list(_lacks(mark, rows))
        return []

    @property
    def is_served(self) -> bool:
        """Whether a service runs on the database, which would go on with what it remembers of another one."""
        with contextlib.suppress(OSError):  # who writes to it next says why
            return self._database is not None and is_served(self._database)
        return False

    def refuse(self, *, as_copy: bool = False) -> None:
        """Raises SettingsError when the database lacks something; see `lacks`."""
        if found := self.lacks(as_copy=as_copy):
            raise SettingsError(self.complaint(found))

    def complaint_now(self) -> str | None:
        try:
            found = self.lacks()
        except SettingsError as error:
            return str(error)
        return self.complaint(found) if found else None

    def complaint(self, found: Sequence[Lack]) -> str:
        """What it lacks, and both ways on."""
        log_file, log_index = beside_database(self._database or Path())
        both = f"`{log_file}` and `{log_index}`"
        foreign = f"delete {both} if they are of the file of before, " if self.beside_log else ""
        elsewhere = perhaps_another_machine(self._database or Path())
        return (
            f"the database `{self._database}` is behind `{self.path}`: "
            + "; ".join(each.text for each in found)
            + ", and with them perhaps halts, decisions and approvals. Stop the service and put the right "
            f"file back, with the `{log_file.name}` that lay beside it. If you have put an older one there "
            f"on purpose, {foreign}run `governance audit accept-restored`, and start again{elsewhere}"
        )

    def missed(self, store: Database) -> str | None:
        """What to say when there is none although this database is signed: whoever puts an older one in its
        place may have taken the mark away, too."""
        if self._database is None or self.names_this or newest(store) is None:
            return None
        mark = self._noted()
        known = f"There is no `{self.path}` that says how far the record was signed"
        if mark is not None:
            other = f"`{mark.database}`" if mark.database else "one of PostgreSQL"
            known = f"`{self.path}` says how far another database, {other}, was signed, not this one"
        return (
            f"{known}, so nobody can tell whether "
            "an older database lies here than before; if you did not restore it, hold it against what was "
            "noted last: `governance audit verify --expect noted.json`"
        )

    # Written --------------------------------------------------------------------------------------

    def follow(self, checkpointer: Checkpointer, store: Database) -> None:
        """Note what is signed by now. Raises DatabaseUnavailable."""
        if not checkpointer.signed:
            return
        try:
            before = self._noted()
        except SettingsError as error:
            self._warn(f"{error}; until then it stays as it is")
            return
        self._installation = self._installation or store.read_here(_id, store.rows)
        found: list[Lack] = []
        if before is not None and self._asks(before, store):
            found = list(store.read_here(lambda: list(_lacks(before, store.rows))))
        self._lost = store.lost
        if found and self._database is not None:
            if not self.behind:
                log.error("%s", self.complaint(found))
            self.behind = True
            return
        if found:
            log.error(_OLDER, self.path, "; ".join(each.text for each in found))
        self.behind = False
        signed = by_chain(checkpointer.signed)
        try:
            self._write(_Mark(checkpointer.signed_at or "", signed, self._name, self._installation))
        except OSError as error:
            self._warn(f"`{self.path}` cannot be written: {error.strerror}")
        else:
            self._told = ""

    def _warn(self, why: str) -> None:
        """Once, though it is tried again each second."""
        if why != self._told:
            log.warning("%s", why)
        self._told = why

    def _asks(self, before: _Mark, store: Database) -> bool:
        """Whether the database is held against that. One of PostgreSQL may be named in many ways, and is
        another one only after its connections were lost."""
        if self._database is not None:
            return before.database == self._name
        return before.installation == self._installation and self._lost != store.lost

    def accept(self, store: Database, at: str) -> None:
        """From now on what the database holds is all there is. Raises OSError."""
        self._write(_Mark(at, by_chain(tips(store)), self._name, _id(store.rows)))

    def _read(self) -> _Mark | None:
        """None where there is none of this database. Raises SettingsError."""
        mark = self._noted()
        return mark if mark is not None and mark.database == self._name else None

    def _noted(self) -> _Mark | None:
        """None where there is none, or it is not whole, as after a power cut. Raises SettingsError where it
        cannot be read: it may say that records are gone."""
        try:
            # To read a pipe would wait for somebody who writes.
            if not stat.S_ISREG(self.path.stat().st_mode):
                raise SettingsError(f"`{self.path}` is no file; take it away")
            return msgspec.json.decode(self.path.read_bytes(), type=_Mark)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SettingsError(
                f"`{self.path}`, which says how far the record was signed, cannot be read: {error.strerror}"
                + ("; give it to the user of the service" if isinstance(error, PermissionError) else "")
            ) from None
        except msgspec.MsgspecError as error:
            log.warning("`%s` cannot be read and is written anew: %s", self.path, error)
            return None

    def _write(self, mark: _Mark) -> None:
        """In one step. It need not be flushed: what it says is on the disk before it. Raises OSError."""
        aside = self.path.with_name(f".{self.path.name}-{os.getpid()}")
        aside.unlink(missing_ok=True)
        try:
            with os.fdopen(new_file(aside), "wb") as file:
                file.write(msgspec.json.encode(mark))
            aside.replace(self.path)
        except OSError:
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)
            raise


def _id(rows: Rows) -> int:
    """The id of the database; 0: it has none yet."""
    with contextlib.suppress(sqlite3.OperationalError):
        for (value,) in rows(_ID, ()):
            return int(value)
    return 0


def _gone(rows: Rows) -> dict[str, dict[str, tuple[int, str, str]]]:
    """Organisation and chain to the last record that retention lets go."""
    with contextlib.suppress(sqlite3.OperationalError, msgspec.MsgspecError):
        for (body,) in rows(_GONE, ()):
            said = msgspec.json.decode(body, type=Body)
            return said.dropped.chains if said.dropped is not None else {}
    return {}


def _lacks(mark: _Mark, rows: Rows) -> Iterator[Lack]:
    gone = _gone(rows)
    for organisation_id, chains in mark.chains.items():
        for chain, (count, digest) in chains.items():
            try:
                last, last_hash, _ = gone.get(organisation_id, {}).get(chain, (0, "", ""))
                same = (
                    count < last
                    or (count, digest) == (last, last_hash)
                    or [tuple(row) for row in rows(_HASH, (organisation_id, int(chain), count))]
                    == [(digest,)]
                )
                found = 0 if same else int(rows(_COUNT, (organisation_id, int(chain)))[0][0])
            except sqlite3.OperationalError as error:
                if "no such" not in str(error):
                    raise
                same, found = False, 0  # it is older than these tables
            if not same:
                yield Lack(organisation_id, count, found)
