"""The audit chain is verified and exported, the database is backed up."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from api.cli.commands import backup
from tests.harness.command_line import DataShell


def test_the_record_is_verified_and_exported(data_shell: DataShell, tmp_path: Path) -> None:
    data_shell.run("keys", "add", "one")
    result = data_shell.json("audit", "verify")
    assert result[0]["valid"] is True and result[0]["count"] == 4
    code, output, _ = data_shell.run("audit", "export")
    records = [json.loads(line) for line in output.splitlines()]
    assert code == 0 and [record["sequence"] for record in records] == [1, 2, 3, 4]
    target = tmp_path / "audit.jsonl"
    assert data_shell.run("audit", "export", "--output", str(target))[0] == 0
    assert target.read_text() == output
    target.write_text("somebody's")
    assert "--force" in data_shell.refused("audit", "export", "--output", str(target))
    assert "no organisation" in data_shell.refused(
        *("audit", "export", "--output", str(target), "--force", "--organisation", "nosuch")
    )
    assert target.read_text() == "somebody's"
    assert data_shell.run("audit", "export", "--output", str(target), "--force")[0] == 0
    assert target.read_text() == output and stat.S_IMODE(target.stat().st_mode) == 0o600
    assert sorted(file.name for file in tmp_path.iterdir()) == ["audit.jsonl", "data"]
    assert data_shell.run("audit", "export", "--since", "2999-01-01")[1] == ""
    assert "ISO 8601" in data_shell.refused("audit", "export", "--since", "yesterday", code=2)
    backwards = ("audit", "export", "--since", "2027-01-01", "--until", "2026-01-01")
    assert "not before --until" in data_shell.refused(*backwards, code=2)
    with sqlite3.connect(data_shell.data / "governance.sqlite") as database:
        database.execute("UPDATE audit SET record = replace(record, 'one', 'two') WHERE sequence = 4")
    code, output, _ = data_shell.run("audit", "verify", "--format", "json")
    assert code == 1
    broken = json.loads(output)[0]
    assert (broken["valid"], broken["count"], broken["firstBroken"]) == (False, 3, records[3]["auditId"])


def test_a_backup_is_of_the_database_whatever_its_folder_is_called(
    data_shell: DataShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("100%20", "a#1", "a?mode=rwc"):
        data_shell.data = data_shell.data.rename(name)
        assert data_shell.run("backup", "copy.sqlite", "--force")[0] == 0
        with contextlib.closing(sqlite3.connect("copy.sqlite")) as copy:
            assert copy.execute("SELECT COUNT(*) FROM users").fetchone() == (1,)
        assert sorted(each.name for each in tmp_path.iterdir()) == [name, "copy.sqlite"]


def test_a_backup_is_whole_closed_and_never_in_the_way(data_shell: DataShell, tmp_path: Path) -> None:
    target = tmp_path / "copy.sqlite"
    old = os.umask(0)
    try:
        code, output, _ = data_shell.run("backup", str(target))
    finally:
        os.umask(old)
    assert code == 0 and "checked" in output
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    with contextlib.closing(sqlite3.connect(target)) as copy:
        assert copy.execute("SELECT email FROM users").fetchall() == [("admin@localhost",)]
    assert "--force" in data_shell.refused("backup", str(target))
    assert data_shell.run("backup", str(target), "--force")[0] == 0
    assert "cannot be written" in data_shell.refused("backup", str(tmp_path / "no" / "folder"))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["copy.sqlite", "data"]


@pytest.mark.parametrize(
    "name",
    [
        *(f"governance.sqlite{ending}" for ending in ("", "-wal", "-shm", ".lock", ".senders", ".policies")),
        "jwt-secret",
        "audit-key",
        "audit-mark",
    ],
)
@pytest.mark.parametrize("command", [("backup",), ("audit", "export", "--output")])
def test_no_command_replaces_a_file_of_the_service(
    data_shell: DataShell, name: str, command: tuple[str, ...]
) -> None:
    data_shell.run("keys", "add", "one")
    target = data_shell.data / name
    before = target.read_bytes() if target.exists() else None
    said = data_shell.refused(*command, str(target), "--force", code=2)
    assert "is a file of the service itself" in said
    assert (target.read_bytes() if target.exists() else None) == before


@pytest.mark.parametrize("command", [("backup",), ("audit", "export", "--output")])
def test_no_command_writes_among_the_policies(
    data_shell: DataShell, tmp_path: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    data_shell.run("keys", "add", "one")
    policy = tmp_path / "policies.d/policies/hold.yaml"
    policy.parent.mkdir(parents=True)
    policy.write_text("a policy")
    monkeypatch.setenv("GOVERNANCE_POLICIES_DIR", str(tmp_path / "policies.d"))
    assert "policies folder" in data_shell.refused(*command, str(policy), "--force", code=2)
    assert policy.read_text() == "a policy"


def test_a_backup_goes_to_no_pipe_and_an_export_may(data_shell: DataShell, tmp_path: Path) -> None:
    data_shell.run("keys", "add", "one")
    assert "name one" in data_shell.refused("backup", "-", code=2)
    assert data_shell.run("audit", "export", "--output", "-") == data_shell.run("audit", "export")
    assert not (tmp_path / "-").exists()


_WRITES = """
import sqlite3, sys, time
database = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=10)
for number in range(60_000):
    database.execute("UPDATE filler SET n = ? WHERE rowid = 1", (number,))
    time.sleep(0.0005)
"""


def test_a_backup_ends_while_another_process_writes_without_a_pause(
    data_shell: DataShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_shell.run("users", "list")
    source = next((tmp_path / "data").glob("*.sqlite"))
    with contextlib.closing(sqlite3.connect(source)) as database, database:
        database.execute("CREATE TABLE filler (n, text)")
        database.executemany("INSERT INTO filler VALUES (0, ?)", [("x" * 8_000,)] * 3_000)
    monkeypatch.setattr(backup, "PAGES_AT_ONCE", 20)
    steps: list[int] = []
    monkeypatch.setattr(
        "rich.progress.Progress.update", lambda self, task, **told: steps.append(told["total"])
    )
    writes = subprocess.Popen([sys.executable, "-c", _WRITES, str(source)])
    try:
        code, _, _ = data_shell.run("backup", str(tmp_path / "copy.sqlite"))
        assert writes.poll() is None, "it wrote all the time"
    finally:
        writes.kill()
        writes.wait()
    assert code == 0
    assert len(steps) <= max(steps) / 20 + 2, "it never began again"


def test_backup_of_postgres_says_what_to_use(data_shell: DataShell, tmp_path: Path) -> None:
    words = ["backup", str(tmp_path / "x"), "--database-url", "postgresql://db/x"]
    assert "pg_dump" in data_shell.refused(*words, code=2)


@pytest.mark.parametrize(
    "words", ["users list", "audit verify", "audit accept-restored", "audit rekey --lost", "backup"]
)
def test_no_command_makes_a_database_of_an_empty_file(
    data_shell: DataShell, tmp_path: Path, words: str
) -> None:
    """As a copy leaves behind that failed: with tables in it the next start would take it for a first one."""
    database = data_shell.data / "governance.sqlite"
    for each in data_shell.data.glob("governance.sqlite*"):
        each.unlink()
    database.touch()
    file = [str(tmp_path / "copy.sqlite")] if words == "backup" else []
    assert "is empty" in data_shell.refused(*words.split(), *file, code=2)
    assert database.stat().st_size == 0 and not (tmp_path / "copy.sqlite").exists()


def test_a_copy_that_was_looked_at_is_still_known_as_one(data_shell: DataShell, tmp_path: Path) -> None:
    copy, database = tmp_path / "copy.sqlite", data_shell.data / "governance.sqlite"
    assert data_shell.run("backup", str(copy))[0] == 0
    assert data_shell.run("audit", "verify", "--database-url", f"sqlite:///{copy}")[0] == 0
    database.write_bytes(copy.read_bytes())
    log_file = database.with_name("governance.sqlite-wal")
    log_file.write_bytes(b"what the file of before wrote last")
    assert "never had a log" in data_shell.refused("users", "list", code=2)
    for each in (log_file, database.with_name("governance.sqlite-shm")):
        each.unlink(missing_ok=True)
    code, _, error = data_shell.run("users", "list")
    assert code == 0, error


def test_a_backup_that_fails_leaves_nothing_behind(
    data_shell: DataShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the disk is full SQLite leaves a journal beside the copy, which would take room for ever."""

    def fails(_: Path, target: Path) -> None:
        target.with_name(f"{target.name}-journal").write_bytes(b"x")
        raise sqlite3.OperationalError("database or disk is full")

    data_shell.run("users", "list")
    monkeypatch.setattr(backup, "_copy", fails)
    assert "disk is full" in data_shell.refused("backup", str(tmp_path / "copy.sqlite"))
    assert [each.name for each in tmp_path.iterdir()] == ["data"]


def test_a_copy_that_an_older_version_made_stays_the_way_back_to_it(
    data_shell: DataShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks into it with a newer version leaves its tables as they are."""
    copy, scratch = tmp_path / "before.sqlite", tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    assert data_shell.run("backup", str(copy))[0] == 0
    with contextlib.closing(sqlite3.connect(copy)) as database, database:
        database.execute("DELETE FROM schema_migration WHERE name LIKE '0021%'")
    url = f"sqlite:///{copy}"
    (result,) = data_shell.json("audit", "verify", "--database-url", url)
    assert result["valid"] and result["count"] > 0
    assert str(scratch) not in data_shell.run("audit", "verify", "--database-url", url)[2]
    code, lines, _ = data_shell.run("audit", "export", "--database-url", url)
    assert code == 0 and len(lines.splitlines()) == result["count"]
    with contextlib.closing(sqlite3.connect(copy)) as database:
        assert not database.execute("SELECT 1 FROM schema_migration WHERE name LIKE '0021%'").fetchall()
    assert list(scratch.iterdir()) == []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    said = data_shell.refused("audit", "verify", "--database-url", url)
    assert "which an older version made" in said and "TMPDIR" in said
