"""A database that is gone, empty or somebody else's is a refusal to start, and nothing of it is touched."""

from __future__ import annotations

import argparse
import shutil
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from api import bootstrap
from api.audit.installation_key import installation_key
from api.cli.local_store import opened
from api.database.connection import Database
from api.database.errors import DatabaseUnavailable
from api.database.sqlite import other_name
from api.policies.opening import open_policies
from api.service import open_service
from api.settings import Settings, SettingsError, load
from api.store import accounts


def started(tmp_path: Path) -> Settings:
    """A data folder of a service that has run."""
    settings = load({}, data_dir=str(tmp_path / "data"))
    bootstrap.prepare(settings)
    installation_key(settings)
    return settings


@pytest.mark.parametrize("empty", [False, True])
def test_a_lost_database_is_not_made_anew(tmp_path: Path, empty: bool) -> None:
    settings = started(tmp_path)
    for path in settings.data_dir.glob("governance.sqlite*"):
        path.unlink()
    if empty:
        (settings.data_dir / "governance.sqlite").touch()
    with pytest.raises(SettingsError, match="empty, but" if empty else "gone, but") as refused:
        bootstrap.prepare(settings)
    assert "a backup of it" in str(refused.value)
    # The signing secret is sign enough.
    (settings.data_dir / "audit-key").unlink()
    with pytest.raises(SettingsError, match="jwt-secret"):
        bootstrap.prepare(settings)
    (settings.data_dir / "jwt-secret").unlink()
    bootstrap.prepare(settings)


def test_a_key_that_lies_elsewhere_is_a_sign_too(tmp_path: Path) -> None:
    key = tmp_path / "keys" / "audit"
    settings = load(
        {}, data_dir=str(tmp_path / "data"), audit_key_file=str(key), jwt_secret="0123456789abcdef" * 3
    )
    bootstrap.prepare(settings)
    installation_key(settings)
    shutil.rmtree(settings.data_dir)
    with pytest.raises(
        SettingsError, match=f"gone, but `{key}`.*start once without GOVERNANCE_AUDIT_KEY_FILE"
    ):
        bootstrap.prepare(settings)
    assert not (settings.data_dir / "governance.sqlite").exists()


def test_a_folder_in_the_place_of_the_key_is_called_so(tmp_path: Path) -> None:
    settings = load({}, data_dir=str(tmp_path / "data"), audit_key_file=str(tmp_path))
    with pytest.raises(SettingsError, match=r"the key of the audit log .* cannot be used"):
        bootstrap.prepare(settings)
        installation_key(settings)


def test_a_first_start_that_fails_is_no_lost_database(tmp_path: Path) -> None:
    """Nothing that would be a sign is made before the database."""
    settings = load({}, data_dir=str(tmp_path / "data"))
    (tmp_path / "data" / "governance.sqlite").mkdir(parents=True)
    with pytest.raises(DatabaseUnavailable, match="is a folder"):
        bootstrap.prepare(settings)
    (tmp_path / "data" / "governance.sqlite").rmdir()
    bootstrap.prepare(settings)


def test_a_stopped_service_leaves_one_file(tmp_path: Path) -> None:
    settings = started(tmp_path)
    wal = settings.data_dir / "governance.sqlite-wal"
    assert not wal.exists() or wal.stat().st_size == 0


def test_another_programs_database_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE users (id INTEGER)")
    other.close()
    path.chmod(0o644)
    before = path.read_bytes()
    store = Database(f"sqlite:///{path}")
    with pytest.raises(DatabaseUnavailable, match="of another program"):
        store.migrate()
    store.close()
    assert path.read_bytes() == before and stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_newer_database_is_refused(tmp_path: Path) -> None:
    settings = started(tmp_path)
    with sqlite3.connect(settings.data_dir / "governance.sqlite") as newer:
        newer.execute("INSERT INTO schema_migration (name, applied) VALUES ('9999_later', '2030-01-01')")
    newer.close()
    with pytest.raises(DatabaseUnavailable) as refused:
        bootstrap.prepare(settings)
    assert (
        "a newer version of the service has taken it along (`9999_later`)" in refused.value.operator_message
    )


def test_a_data_folder_that_leads_nowhere_is_named_so(tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to(tmp_path / "gone")
    with pytest.raises(SettingsError, match=r"is a link to `.*gone`, which is not there"):
        bootstrap.prepare(load({}, data_dir=str(tmp_path / "data")))
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="is no folder"):
        bootstrap.prepare(load({}, data_dir=str(tmp_path / "file")))


def test_a_folder_is_no_database_and_keeps_its_mode(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o755)
    store = Database(f"sqlite:///{folder}")
    with pytest.raises(DatabaseUnavailable, match="is a folder; name the file"):
        store.migrate()
    store.close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_the_log_stays_beside_a_database_that_a_command_has_open(tmp_path: Path) -> None:
    """Another process that ends is not the last one, so it must not remove the log."""
    path = started(tmp_path).data_dir / "governance.sqlite"
    ends = (
        "import sqlite3, sys; made = sqlite3.connect(sys.argv[1]); "
        "made.execute('SELECT COUNT(*) FROM organisations').fetchone(); made.close()"
    )
    with opened(argparse.Namespace(data_dir=str(path.parent), database_url=None)) as store:
        store.write(lambda transaction: accounts.add_organisation(transaction, "acme", "Acme", "test"))
        log = path.with_name(path.name + "-wal").stat().st_ino
        subprocess.run([sys.executable, "-c", ends, path], check=True, timeout=60)
        assert path.with_name(path.name + "-wal").stat().st_ino == log
        store.need_organisation("acme")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who has a file open")
def test_a_database_that_is_open_under_another_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each name has a log of its own, so the two would write over one another."""
    path = started(tmp_path).data_dir / "governance.sqlite"
    linked = tmp_path / "linked.sqlite"
    linked.hardlink_to(path)
    monkeypatch.setattr(other_name, "PATIENCE", 0.0)
    holds = (
        "import sqlite3, sys; made = sqlite3.connect(sys.argv[1]); "
        "made.execute('SELECT COUNT(*) FROM organisations').fetchone(); print('open', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holds, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "open\n"
        with pytest.raises(
            DatabaseUnavailable, match=f"process {process.pid} has the database .* open under another name"
        ):
            migrated(linked)
        assert not list(tmp_path.glob("linked.sqlite-*"))
        migrated(path)
        process.communicate("\n", timeout=60)
    migrated(linked)
    (note,) = bootstrap.prepare(load({}, data_dir=str(path.parent))).notes
    assert f"`{path}` has 2 names" in note
    linked.unlink()
    assert bootstrap.prepare(load({}, data_dir=str(path.parent))).notes == ()


def migrated(path: Path) -> None:
    store = Database(f"sqlite:///{path}")
    try:
        store.migrate()
    finally:
        store.close()


@pytest.mark.parametrize("left", ["nothing", "folder", "empty", "closed"])
async def test_a_worker_that_begins_anew_makes_no_database_in_the_place_of_one_that_is_gone(
    tmp_path: Path, left: str
) -> None:
    """Such as where the data folder was moved, or its volume is not mounted any more, and a worker died."""
    settings = started(tmp_path)
    settings.data_dir.rename(tmp_path / "aside")
    if left != "nothing":
        settings.data_dir.mkdir()
    if left == "empty":
        (settings.data_dir / "governance.sqlite").touch()
    if left == "closed":
        settings.data_dir.rmdir()
        settings.data_dir.symlink_to(settings.data_dir.name)  # root may look everywhere else
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DatabaseUnavailable) as refused:
        async with open_service(settings, open_policies, prepared=True):
            pass
    wanted = "too many levels" if left == "closed" else "is gone, or empty, while the service runs"
    assert wanted in refused.value.operator_message.lower()
    assert sorted(tmp_path.rglob("*")) == before
