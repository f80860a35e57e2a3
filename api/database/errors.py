"""What goes wrong with a database, in our words: drivers' errors become one of three.

Callers of the API learn that it cannot be used now; the operator learns which database it is, and why.
"""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from api.database.sqlite.network import perhaps_another_machine
from engine.errors import ArchiveUnavailable

AT_LIMIT: Final = 64 * 2**10
"""Bytes below the limit for the size of a file from which a write may have met it."""


PROBE_BYTES: Final = 64 * 2**10
"""As much as a quota that is used up has no room for."""
_DISK_FULL: Final = "53100"
ANOTHER: Final = (
    "it is that of another installation, and not the one that this process has worked with; put right where "
    "its address leads, or start the service anew if it is meant"
)
_HIDING: Final = ("cannot rollback", "no such savepoint")
"""What is said of a roll-back where SQLite has rolled back by itself."""


class DatabaseUnavailable(ArchiveUnavailable):
    """The database cannot be reached or written now; nothing of the transaction was kept. Its
    `operator_message` is never for callers of the API."""


class DatabaseDamaged(DatabaseUnavailable):
    """The file is no database, or what it holds cannot be read."""


class DatabaseFull(DatabaseUnavailable):
    """The disk or the database has no room left; nothing of the transaction was kept."""


class Conflict(Exception):
    """Another transaction stood in the way; made again, this one finds what that one has left. `state` is the
    SQLSTATE."""

    def __init__(self, state: str) -> None:
        super().__init__(state)
        self.state = state


class NeedsAnswer(Exception):
    """Something was asked of the database where nobody can wait for it."""


class NewerDatabase(Exception):
    """A newer version has changed the tables in ways that this one does not know."""

    def __init__(self, step: str) -> None:
        super().__init__(
            f"a newer version of the service has taken it along (`{step}`), and this one would record "
            "wrongly; start that version, or put back the copy that was made before"
        )


class OlderDatabase(DatabaseUnavailable):
    """A worker that was started anew is of a newer version than the service that it belongs to."""

    def __init__(self, step: str) -> None:
        super().__init__("the tables are those of an older version of the service")
        self.operator_message = (
            "the code below this service was updated while it runs, and a worker that begins anew would "
            f"change the tables of the database (`{step}`) under those of the older version; so all of them "
            "stop. Start the service again, as the guide says of an upgrade"
        )


def translated(error: BaseException, url: str = "") -> DatabaseUnavailable:
    """The error to raise for a driver's failure."""
    path = url.removeprefix("sqlite:///") if urlsplit(url).scheme == "sqlite" else ""
    if path and "disk i/o error" in _first_line(error).lower() and (met := _grown(path) or _over_quota(path)):
        bound, message = met
        full = DatabaseFull(f"the database has no room left: {bound}; raise it")
        full.operator_message = message
        return full
    made = _translated(error)
    made.operator_message = operator_message(made, error, url)
    return made


def _most_bytes() -> int | None:
    """The limit for the size of a file, if there is any."""
    if os.name == "nt":
        return None
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return None if limit == resource.RLIM_INFINITY else limit


def _grown(path: str) -> tuple[str, str] | None:
    """What to say, to callers and to the operator, where a file of a database is as large as this process may
    make one."""
    limit = _most_bytes()
    for each in (Path(f"{path}-wal"), Path(path)):
        if limit is not None and each.exists() and each.stat().st_size > limit - AT_LIMIT:
            return (
                "its file has met the limit for the size of one",
                f"`{each}` is as large as this process may make a file, {limit} bytes; raise that limit, "
                "`LimitFSIZE=` of systemd or `ulimit -f` of a shell, and start the service again",
            )
    return None


def _over_quota(path: str) -> tuple[str, str] | None:
    """The same where a quota is used up. SQLite calls that a fault of the disk, so whether there is room is
    tried with another file."""
    try:
        with tempfile.TemporaryFile(dir=Path(path).parent, buffering=0) as probe:
            probe.write(bytes(PROBE_BYTES))
            os.fsync(probe.fileno())
    except OSError as failed:
        if failed.errno == errno.EDQUOT:
            return (
                "a disk quota is used up",
                f"there is no room left for the database `{path}`: the disk quota of this user, group or "
                "folder is used up, which `quota` shows and `df` does not; raise it, or remove what else "
                "counts in it; a service that runs goes on by itself then",
            )
    return None


def _translated(error: BaseException) -> DatabaseUnavailable:
    cause: BaseException | None = error
    while cause is not None:
        # What was wrong at first may be hidden by a roll-back that found itself rolled back already.
        text = str(cause).lower()
        full = any(each in text for each in ("disk is full", "no space left", "quota exceeded"))
        if full or sqlstate(cause) == _DISK_FULL:  # in whatever language, and of half a page in other words
            return DatabaseFull("the database has no room left; free disk space and try again")
        if ANOTHER in str(cause):
            return DatabaseUnavailable(f"the database cannot be used: {ANOTHER}")
        if "not a database" in text or "malformed" in text:
            return DatabaseDamaged("the database cannot be reached; try again shortly")
        cause = cause.__context__
    return DatabaseUnavailable("the database cannot be reached; try again shortly")


def operator_message(made: DatabaseUnavailable, error: BaseException, url: str) -> str:
    """Which database it is and what the driver said. INVARIANT: never the password."""
    if urlsplit(url).scheme == "sqlite":
        path = url.removeprefix("sqlite:///")
        if isinstance(made, DatabaseDamaged):
            return (
                f"`{path}` is no database or is damaged; stop the service and put a copy that "
                f"`governance backup FILE` made in its place, and delete `{path}-wal` and `{path}-shm`; "
                "if the path is wrong, mend --database-url or GOVERNANCE_DATABASE_URL"
                f"{perhaps_another_machine(Path(path))}"
            )
        if isinstance(made, DatabaseFull):
            return (
                f"there is no room left for the database `{path}`; free disk space; a service that "
                f"runs goes on by itself then (`{_first_line(error)}`)"
            )
        reason = _first_line(error)
        if "disk i/o error" in reason.lower():
            reason += (
                f"; if `{path}-shm` was removed or replaced while the service ran, stop the service, leave "
                f"`{path}-wal` where it is, and start it again; else look at the disk"
            )
            if (limit := _most_bytes()) is not None:
                reason += f", and whether {limit} bytes are too few for a file (`LimitFSIZE=`, `ulimit -f`)"
        if "locked" in reason.lower():
            reason += (
                "; another program writes to it and does not go on, such as `sqlite3` in a transaction that "
                "was left open: end that"
            )
        if "readonly" in reason.lower() and _takes_no_writes(Path(path).parent):
            reason += (
                "; its file system has become read-only, as after a fault of the disk: see the log of the "
                "system, check it, and mount it for writing"
            )
        elif any(each in reason.lower() for each in ("unable to open", "readonly")) and (
            closed := _closed(path)
        ):
            reason += (
                f"; this user may not read and write {closed}: give it to the user of the service, mode 0600"
            )
        if "permission denied" in reason.lower():
            reason += "; give it to the user of the service"
        return f"the database `{path}` cannot be used: {reason}"
    place, secrets = postgres_place(url)
    reason = _first_line(error)
    for secret in secrets:
        reason = reason.replace(secret, "***")
    if "out of shared memory" in reason:
        reason += (
            "; each rate limit that a call meets is locked while it is counted: raise"
            " `max_locks_per_transaction` of the server"
        )
    return f"the database {place} cannot be used: {reason}"


def _takes_no_writes(folder: Path) -> bool:
    """Whether the file system of a folder is read-only. No file of a database is opened to see that: to close
    it would end the locks of this process."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return False
    except OSError as error:
        return error.errno == errno.EROFS


def _closed(path: str) -> str:
    """Which of the files of a database this user may not use."""
    files = (path, f"{path}-wal", f"{path}-shm")
    closed = (each for each in files if os.access(each, os.F_OK) and not os.access(each, os.R_OK | os.W_OK))
    return ", ".join(f"`{each}`" for each in closed)


def sqlstate(error: BaseException) -> str:
    """What PostgreSQL says is wrong, in five characters; empty: it has said nothing."""
    return getattr(getattr(error, "orig", error), "sqlstate", None) or ""


def said_of(error: BaseException, what: str) -> str:
    """What PostgreSQL names beside its message, such as the `table_name`; empty: nothing. The message itself
    is in the language of the server (`lc_messages`)."""
    return getattr(getattr(getattr(error, "orig", error), "diag", None), what, None) or ""


def _first_line(error: BaseException) -> str:
    # What SQLite has rolled back by itself cannot be rolled back again, which hides what was wrong at first.
    while error.__context__ is not None and any(each in str(error) for each in _HIDING):
        error = error.__context__
    # A failed start of a transaction does so, too.
    text = str(error) or str(error.__context__ or "") or type(error).__name__
    name = getattr(getattr(error, "orig", error), "sqlite_errorname", "")
    return text.strip().splitlines()[0] + (f" ({name})" if "i/o" in text.lower() and name else "")


def postgres_place(url: str) -> tuple[str, list[str]]:
    """`host:port/name`, and what must not be shown."""
    from urllib.parse import unquote

    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    rough = urlsplit(url).netloc.rpartition("@")[0].partition(":")[2]
    secrets = [rough, unquote(rough)]
    try:
        parts = conninfo_to_dict(url)
    except ProgrammingError:
        return "address", [each for each in secrets if each]
    secrets.append(str(parts.get("password") or ""))
    hosts = str(parts.get("host") or "localhost").split(",")
    ports = str(parts.get("port") or "5432").split(",")
    places = [f"{host}:{ports[min(number, len(ports) - 1)]}" for number, host in enumerate(hosts)]
    return f"`{','.join(places)}/{parts.get('dbname') or ''}`", [each for each in secrets if each]
