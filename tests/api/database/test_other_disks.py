"""What a database needs of other folders and of the file system that it lies on: as little as may be."""

from __future__ import annotations

import fcntl
import struct
from pathlib import Path
from typing import Any

import peewee
import pytest

from api import bootstrap
from api.database.errors import DatabaseFull, translated
from api.settings import load
from tests.harness.sql_archive import opened

ROWS = 2_000


def open_files() -> list[str]:
    return [str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]


def test_what_undoes_a_part_of_a_transaction_needs_no_folder_for_temporary_files(tmp_path: Path) -> None:
    """A full `/tmp` made policies stale, and refused the next start, as if the database had no room left."""
    store = opened(f"sqlite:///{tmp_path}/governance.db")
    hits = [("b" * 500, float(number), 0.0) for number in range(ROWS)]
    with store.transaction():
        store.insert_many("rate_hits", ("bucket", "at", "expires_at"), hits)
    with store.transaction(), store.peewee.savepoint():
        store.rows("UPDATE rate_hits SET expires_at = 1.0")
        assert [each for each in open_files() if "etilqs" in each] == []
    store.close()


def test_why_a_part_could_not_be_undone_is_what_went_wrong_at_first() -> None:
    try:
        try:
            raise peewee.OperationalError("database or disk is full")
        except peewee.OperationalError:
            raise peewee.OperationalError("no such savepoint: s1") from None
    except peewee.OperationalError as error:
        made = translated(error, "sqlite:///g.sqlite")
    assert isinstance(made, DatabaseFull)
    assert "(`database or disk is full`)" in made.operator_message


@pytest.mark.parametrize("flags", [0x80000, 0x80000 | 0x800000])
def test_the_data_folder_is_written_in_place_on_btrfs(
    flags: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each page that is written gets a new place (copy on write), a full disk ended the service by
    SIGBUS: SQLite maps the index of its log."""
    folder = tmp_path / "data"
    told: list[tuple[str, int]] = []

    def ioctl(descriptor: int, what: int, argument: Any) -> bytes:
        if what == 0x80086601:
            return struct.pack("@l", flags)
        told.append((str(Path(f"/proc/self/fd/{descriptor}").readlink()), struct.unpack("@l", argument)[0]))
        return b""

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    bootstrap.prepare(load({"GOVERNANCE_DATA_DIR": str(folder)}))
    assert told == ([] if flags & 0x800000 else [(str(folder), 0x80000 | 0x800000)])
