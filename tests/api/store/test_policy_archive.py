"""The database's archive: the same answers as the one in memory, on both databases, and its audit records."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from api.clock import random_ids, system_clock
from api.database.connection import Database
from api.database.writer import Writer
from api.store.policy_archive import SqlArchive, SqlRecords
from tests.harness.policies_machine import OneNode, ThreeNodes, ThreeWorkers, walk
from tests.harness.policy_archive import MemoryArchive
from tests.harness.policy_folder import ADMIN, BODY, Folder, document, pack, preset
from tests.harness.sql_archive import HookedSqlArchive, emptied, opened

POLICIES = (("default", "a"), ("acme", "hold-wires"), ("x", "y"))


@pytest.fixture
def store(database_url: str) -> Iterator[Database]:
    """SQLite, and PostgreSQL where it is asked for."""
    made = opened(database_url)
    yield made
    made.close()


def story(folder: Folder) -> None:
    """Something of everything that a repository may record."""
    folder.write("policies/a.yaml", document("a"))
    folder.write("presets/mail/p.yaml", preset("p"))
    folder.write("packs/q.yaml", pack("q", "p"))
    repository = folder.started()
    repository.update("default", "a", {"name": "Zwei — 二"}, author=ADMIN)
    repository.create_many([BODY, BODY], author=ADMIN, organisation_id="acme")
    repository.delete("acme", "hold-wires", author="bob@acme.example")
    (folder.root / "policies/team").mkdir()
    (folder.root / "policies/a.yaml").rename(folder.root / "policies/team/a.yaml")
    repository.apply_files()
    repository.rollback("default", "a", 1, author=ADMIN)
    (folder.root / "packs/q.yaml").unlink()
    repository.apply_files()
    repository.rollback("acme", "hold-wires", 1, author=ADMIN)


def everything(records: Any) -> dict[str, Any]:
    revision, at = records.head()
    files = records.files()
    paths = ["policies/a.yaml", "policies/team/a.yaml", "packs/q.yaml", "none", *files]
    return {
        "head": (revision, at),
        "times": [records.recorded_at(each) for each in range(-1, revision + 2)],
        "files": files,
        "presets": {each: records.preset_history(each) for each in ("p", "q", "a")},
        "since": [records.changed_since(each) for each in range(revision + 1)],
        "at": [records.files_at(each).keys() for each in range(revision + 1)],
        "moments": [records.revision_at(moment) for moment in ("2025-01-01T00:00:00.000000Z", at, "2027")],
        "history": {path: records.history(path) for path in paths},
        "last": [records.last_version(*key) for key in POLICIES],
        "versions": [records.versions(*key) for key in POLICIES],
        "blobs": {record.digest: records.blob(record.digest) for record in files.values()},
    }


def test_it_answers_as_the_archive_in_memory(store: Database, tmp_path: Path) -> None:
    memory, sql = Folder(tmp_path / "memory"), Folder(tmp_path / "sql")
    sql.archive = SqlArchive(store, system_clock, random_ids)  # type: ignore[assignment]
    story(memory)
    story(sql)
    assert isinstance(memory.archive, MemoryArchive)
    assert sql.archive.view(everything) == memory.archive.view(everything)
    with pytest.raises(KeyError):
        sql.archive.view(lambda records: records.blob("none"))
    restarted = sql.started()
    assert restarted.snapshot.revision == 8


def test_audit_and_counter_change_with_the_policies(store: Database, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "p")
    writer = Writer(store, system_clock, random_ids)
    writer.start()
    folder.archive = SqlArchive(store, system_clock, random_ids, writer)  # type: ignore[assignment]
    story(folder)
    writer.close()
    rows = store.read_here(
        store.rows, "SELECT organisation_id, record FROM audit ORDER BY organisation_id, sequence"
    )
    told = []
    for organisation_id, text in rows:
        record = json.loads(text)
        details = [record["details"][key] for key in ("policyId", "change", "version", "source")]
        told.append((organisation_id, record["actor"], record["policyRevision"], *details))
    assert told == [
        ("acme", ADMIN, 3, "hold-wires", "created", 1, "api"),
        ("acme", ADMIN, 3, "hold-wires-2", "created", 1, "api"),
        ("acme", "bob@acme.example", 4, "hold-wires", "deleted", 1, "api"),
        ("acme", ADMIN, 8, "hold-wires", "created", 2, "api"),
        ("default", "file", 1, "a", "created", 1, "file"),
        ("default", ADMIN, 2, "a", "updated", 2, "api"),
        ("default", ADMIN, 6, "a", "updated", 3, "api"),
    ]
    assert store.read_here(store.rows, "SELECT value FROM counters WHERE name = 'policies'") == [(8,)]


def test_a_view_cannot_record(store: Database) -> None:
    with pytest.raises(RuntimeError):
        SqlRecords(store, None).record(1, "", [], {})


@pytest.mark.parametrize("machine", [OneNode, ThreeWorkers, ThreeNodes], ids=lambda machine: machine.__name__)
def test_random_interleavings(machine: Any, store: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model test of the repository over the real archive."""
    if machine is ThreeNodes:  # each with a folder of its own, as nodes on PostgreSQL have
        monkeypatch.setattr(SqlRecords, "shared", True)

    class OverSql(machine):  # type: ignore[misc]
        def new_archive(self) -> HookedSqlArchive:
            return HookedSqlArchive(emptied(store))

    run_state_machine_as_test(
        OverSql,
        settings=settings(
            max_examples=8,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    for seed in range(4):
        walk(OverSql, seed, 40)


def test_a_file_name_that_is_no_text_is_named_as_a_problem(store: Database, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "p")
    folder.archive = HookedSqlArchive(store)  # type: ignore[assignment]
    folder.write("policies/a.yaml", document("a"))
    folder.started()
    (folder.root / os.fsdecode(b"policies/\xff.yaml")).write_text(document("x"))
    again = folder.open()
    assert [problem.file for problem in again.start().problems] == ["policies/\\xff.yaml"]
    assert again.snapshot.count == 1
