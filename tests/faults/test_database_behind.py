"""A database that holds less than was signed: no start forgets a halt without a word."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from api.audit.checkpoints import Checkpointer
from api.audit.installation_key import installation_key
from api.audit.mark import AuditMark
from api.database.audit_chain import tips
from api.database.connection import Database
from api.settings import SettingsError, load
from tests.faults.disk_faults import DiskFaults
from tests.faults.test_careless_files import events_of, governance, send, until_signed, without_log
from tests.harness.nodes import CLEAN, KEY, serve
from tests.harness.postgres import Postgres

EVENTS = 12


@dataclass(frozen=True)
class Killed:
    """What a service that was killed has left, with all its events signed."""

    folder: Path

    @property
    def database(self) -> Path:
        return self.folder / "data" / "governance.sqlite"

    @property
    def log(self) -> Path:
        return Path(f"{self.database}-wal")

    def copy(self, to: Path) -> Killed:
        shutil.copytree(self.folder, to)
        return Killed(to)

    def refused(self) -> str:
        """What a start says."""
        done = governance(self.folder, "serve", "--port", "0")
        assert done.returncode == 2, done.stdout + done.stderr
        return done.stderr

    def serves(self) -> None:
        with serve(self.folder) as service:
            assert send(service.ready().http, 100) == 200
            assert service.stop() == 0


def killed(folder: Path) -> Killed:
    with serve(folder, GOVERNANCE_API_KEY=KEY) as service:
        http = service.ready().http
        assert governance(folder, "backup", "backup.sqlite").returncode == 0
        assert [send(http, number) for number in range(EVENTS)] == [200] * EVENTS
        until_signed(folder / "data" / "audit-mark", EVENTS)
        service.kill()
    return Killed(folder)


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    yield killed(tmp_path_factory.mktemp("killed"))


def test_a_log_that_was_tidied_away_is_missed(left: Killed, tmp_path: Path) -> None:
    here = left.copy(tmp_path / "here")
    without_log(here.database)
    said = here.refused()
    assert "signed records of `default` are gone" in said and "accept-restored" in said
    checked = governance(here.folder, "audit", "verify")
    assert checked.returncode == 1 and "are gone" in checked.stderr
    assert governance(here.folder, "users", "list").returncode == 2
    shutil.copy(left.log, here.log)
    here.serves()
    assert events_of(here.database) >= set(range(EVENTS))


def test_half_a_log_is_missed_and_changes_nothing(left: Killed, tmp_path: Path) -> None:
    here = left.copy(tmp_path / "here")
    os.truncate(here.log, here.log.stat().st_size // 2)
    before = here.database.read_bytes()
    assert "are gone" in here.refused()
    assert governance(here.folder, "audit", "verify").returncode == 1
    assert here.database.read_bytes() == before


def test_the_log_of_another_installation_is_not_read_into_the_database(left: Killed, tmp_path: Path) -> None:
    other, here = killed(tmp_path / "other"), left.copy(tmp_path / "here")
    shutil.copy(other.log, here.log)
    before = here.database.read_bytes()
    assert "is another one than was signed" in here.refused() or "are gone" in here.refused()
    assert governance(here.folder, "users", "list").returncode == 2
    assert governance(here.folder, "audit", "verify").returncode == 1
    assert here.database.read_bytes() == before
    shutil.copy(left.log, here.log)
    here.serves()
    assert events_of(here.database) >= set(range(EVENTS))


def test_a_backup_is_restored_in_one_step_more(left: Killed, tmp_path: Path) -> None:
    """As the how-to says; what is given up is on record."""
    here = left.copy(tmp_path / "here")
    shutil.copy(here.folder / "backup.sqlite", here.database)
    assert "belong to the file that lay there before" in here.refused()
    without_log(here.database)
    assert "are gone" in here.refused()
    done = governance(here.folder, "audit", "accept-restored")
    assert done.returncode == 0 and "given up: " in done.stdout, done.stderr
    here.serves()
    assert governance(here.folder, "audit", "verify").returncode == 0
    assert '"audit.restored"' in governance(here.folder, "audit", "export").stdout
    assert "nothing to accept" in governance(here.folder, "audit", "accept-restored").stdout
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    mistaken = governance(elsewhere, "audit", "accept-restored")
    assert mistaken.returncode == 2 and "there is no database" in mistaken.stderr


@pytest.mark.parametrize("only", ["audit-mark", "governance.sqlite-wal"])
@pytest.mark.parametrize("kind", ["dies", "full"])
def test_what_is_given_up_is_on_record_whatever_fails(
    left: Killed, tmp_path: Path, only: str, kind: str
) -> None:
    here = left.copy(tmp_path / "here")
    without_log(here.database)
    shutil.copy(here.folder / "backup.sqlite", here.database)
    faults = DiskFaults(tmp_path, here.folder)
    faults.arm(0, kind, stays=True, call="pwrite64" if only.endswith("-wal") else "write", only=only)
    command = [sys.executable, "-m", "api.cli", "audit", "accept-restored"]
    environment = CLEAN | faults.environment
    done = subprocess.run(command, cwd=here.folder, env=environment, capture_output=True, text=True)
    faults.clear()
    assert faults.reached and done.returncode != 0 and "given up" not in done.stdout, done
    assert kind == "dies" or "o space left" in done.stderr or "no room left" in done.stderr, done.stderr
    assert governance(here.folder, "users", "list").returncode == 2
    assert governance(here.folder, "audit", "accept-restored").returncode == 0
    assert '"audit.restored"' in governance(here.folder, "audit", "export").stdout
    here.serves()


def test_a_mark_that_is_gone_is_told(left: Killed, tmp_path: Path) -> None:
    """Without it an older database cannot be told from the right one."""
    here = left.copy(tmp_path / "here")
    without_log(here.database)
    (here.database.parent / "audit-mark").unlink()
    shutil.copy(here.folder / "backup.sqlite", here.database)
    with serve(here.folder) as service:  # what the backup holds was never signed
        service.ready()
        until_signed(here.database.parent / "audit-mark", 1)
        assert service.stop() == 0 and "audit-mark" not in service.output
    (here.database.parent / "audit-mark").unlink()
    told = "audit-mark` that says how far the record was signed"
    assert told in governance(here.folder, "audit", "accept-restored").stdout
    with serve(here.folder) as service:
        assert told in service.ready().output
        assert service.stop() == 0


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_mark_that_is_no_file_is_no_reason_to_go_on(
    left: Killed, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    here = left.copy(tmp_path / "here")
    shutil.copy(here.folder / "backup.sqlite", here.database)
    without_log(here.database)
    mark = here.database.with_name("audit-mark")
    mark.rename(aside := mark.with_name("aside"))
    make(mark)
    assert "audit-mark` is no file; take it away" in here.refused()
    assert governance(here.folder, "users", "list").returncode == 2
    mark.rmdir() if mark.is_dir() else mark.unlink()
    aside.rename(mark)
    assert "are gone" in here.refused()


def test_a_mark_that_cannot_be_read_or_written_is_neither_passed_over_nor_replaced(
    left: Killed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here = left.copy(tmp_path / "here")
    mark = AuditMark(load({"GOVERNANCE_DATA_DIR": str(here.database.parent)}))
    before, read = mark.path.read_bytes(), Path.read_bytes

    def refused(path: Path) -> bytes:
        if path == mark.path:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return read(path)

    def fails(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(SettingsError, match="Permission denied; give it to the user of the service"):
        mark.refuse()
    assert "Permission denied" in (mark.complaint_now() or "")
    with contextlib.closing(Database(f"sqlite:///{here.database}")) as store:
        checkpointer = Checkpointer(installation_key(load({"GOVERNANCE_DATA_DIR": str(mark.path.parent)})))
        checkpointer._signed = store.read_here(tips, store)
        mark.follow(checkpointer, store)
        mark.follow(checkpointer, store)
        monkeypatch.undo()
        monkeypatch.setattr(mark, "_write", fails)
        mark.follow(checkpointer, store)
        mark.follow(checkpointer, store)
        monkeypatch.undo()
        assert mark.path.read_bytes() == before
        unread, unwritten = (each.getMessage() for each in caplog.records)
        assert unread.endswith("it stays as it is") and unwritten.endswith(
            "cannot be written: Read-only file system"
        )
        mark.follow(checkpointer, store)
    assert mark.path.read_bytes() != before


def test_an_older_copy_is_refused_under_another_name_too(left: Killed, tmp_path: Path) -> None:
    """A backup that somebody points to, instead of putting it into its place."""
    here = left.copy(tmp_path / "here")
    with serve(here.folder) as service:
        http = service.ready().http
        assert governance(here.folder, "backup", "older.sqlite").returncode == 0
        mark = here.database.parent / "audit-mark"
        signed = json.loads(mark.read_bytes())["chains"]["default"]["0"][0]
        assert send(http, 200) == 200
        until_signed(mark, signed + 1)
        assert service.stop() == 0
    shutil.copy(here.folder / "older.sqlite", here.database.parent / "older.sqlite")
    place = ("--database-url", "sqlite:///data/older.sqlite")
    done = governance(here.folder, "serve", "--port", "0", *place)
    assert done.returncode == 2 and "signed records of `default` are gone" in done.stderr
    # To look at a copy is no restore: it holds what it holds.
    assert governance(here.folder, "audit", "verify", *place).returncode == 0
    assert governance(here.folder, "users", "list", *place).returncode == 0
    done = governance(here.folder, "audit", "accept-restored", *place)
    assert done.returncode == 0 and "given up: " in done.stdout, done.stderr
    with serve(here.folder, GOVERNANCE_DATABASE_URL=place[1]) as service:
        assert send(service.ready().http, 201) == 200
        assert service.stop() == 0


def test_another_database_in_the_same_folder_is_no_copy(left: Killed, tmp_path: Path) -> None:
    here, other = left.copy(tmp_path / "here"), killed(tmp_path / "other")
    for end in ("", "-wal"):
        shutil.copy(f"{other.database}{end}", f"{here.database.parent / 'other.sqlite'}{end}")
    mark = here.database.parent / "audit-mark"
    of_postgresql = mark.read_bytes().replace(b'"database":"governance.sqlite"', b'"database":""')
    place = ("--database-url", "sqlite:///data/other.sqlite")
    for content, named in ((mark.read_bytes(), "`governance.sqlite`"), (of_postgresql, "one of PostgreSQL")):
        mark.write_bytes(content)
        done = governance(here.folder, "audit", "accept-restored", *place)
        said = f"audit-mark` says how far another database, {named}, was signed, not this one"
        assert done.returncode == 0 and said in done.stdout, done.stdout + done.stderr


@pytest.mark.postgres
def test_an_older_dump_of_postgresql_is_served_and_told_once(tmp_path: Path, postgres: Postgres) -> None:
    database = postgres.create()
    mark = tmp_path / "data" / "audit-mark"

    def serve_events(numbers: range, database: str) -> str:
        with serve(tmp_path, "--database-url", database, GOVERNANCE_API_KEY=KEY) as service:
            http = service.ready().http
            before = mark.stat().st_ino if mark.exists() else 0
            assert [send(http, number) for number in numbers] == [200] * len(numbers)
            deadline = time.monotonic() + 60
            while not mark.exists() or mark.stat().st_ino == before or records(mark) < len(numbers):
                assert time.monotonic() < deadline, "they are not signed"
                time.sleep(0.05)
            assert service.stop() == 0
            return service.errors

    told = "signed records of `default` are gone"
    assert told not in serve_events(range(5), database)
    older = postgres.create(database.partition("@/")[2].partition("?")[0])
    assert told not in serve_events(range(5, 40), database)
    said = serve_events(range(40, 60), older)
    assert told in said and said.count("the database is behind `data/audit-mark`") == 1, said
    assert told not in serve_events(range(60, 80), older)


def records(mark: Path) -> int:
    chains = json.loads(mark.read_bytes())["chains"]["default"]
    return sum(count for count, _ in chains.values())
