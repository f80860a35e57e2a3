"""A database on the file system of a network is told of, since a second machine there destroys it."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

import pytest

from api import bootstrap
from api.audit.mark import AuditMark, Lack
from api.database.errors import translated
from api.database.sqlite import network
from api.database.sqlite.network import network_file_system
from api.settings import SettingsError, load


def mounted(
    folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch, place: str = "/srv/all\\040data"
) -> None:
    """The folder is on a file system of that kind."""
    device = folder.stat().st_dev
    of_device = f"{os.major(device)}:{os.minor(device)}"
    mounts = folder / "mountinfo"
    mounts.write_text(
        "22 1 0:0 / /other rw - nfs4 server:/other rw\n"
        f"23 1 {of_device} / {place} rw,noatime shared:7 master:2 - {kind} server:/a - b rw,vers=4.2\n"
    )
    monkeypatch.setattr(network, "MOUNTS", mounts)


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "ceph", "fuse.sshfs"])
def test_a_file_system_of_a_network_is_known(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted(tmp_path, kind, monkeypatch)
    assert network_file_system(tmp_path / "g.sqlite") == kind


@pytest.mark.parametrize("kind", ["ext4", "btrfs", "overlay", "fuse.fuse-overlayfs", "fuseblk", "virtiofs"])
def test_one_of_this_machine_is_none(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounted(tmp_path, kind, monkeypatch)
    assert network_file_system(tmp_path / "g.sqlite") is None
    monkeypatch.setattr(network, "MOUNTS", tmp_path / "nothing")
    assert network_file_system(tmp_path / "g.sqlite") is None
    assert network_file_system(tmp_path / "no" / "folder" / "g.sqlite") is None


def test_a_start_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load({}, data_dir=str(tmp_path / "data"))
    assert bootstrap.prepare(settings).notes == ()
    mounted(tmp_path, "nfs4", monkeypatch)
    (note,) = bootstrap.prepare(settings).notes
    assert "lies on a network file system (nfs4)" in note and "use PostgreSQL" in note


def test_nothing_begins_where_another_machine_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its locks may not reach this one, and to open the database would take its log away."""
    settings = load({}, data_dir=str(tmp_path / "data"))
    bootstrap.prepare(settings)
    log = tmp_path / "data" / "governance.sqlite-wal"
    log.write_bytes(b"x")
    bootstrap.prepare(settings)
    mounted(tmp_path, "nfs4", monkeypatch)
    log.write_bytes(b"x")
    with pytest.raises(SettingsError, match=r"network file system \(nfs4\) and was written less than 60 s"):
        bootstrap.prepare(settings)
    assert log.read_bytes() == b"x"
    minutes_ago = time.time() - 61
    os.utime(log, (minutes_ago, minutes_ago))
    bootstrap.prepare(settings)
    log.write_bytes(b"")  # as one that has ended in order leaves it
    bootstrap.prepare(settings)


def test_what_another_machine_has_open_is_not_called_damaged_or_older_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is told to put in its place or to delete is what the other machine works with."""
    settings = load({}, data_dir=str(tmp_path / "data"))
    bootstrap.prepare(settings)
    error = sqlite3.DatabaseError("database disk image is malformed")

    def told() -> tuple[str, str]:
        damaged = translated(error, settings.database).operator_message
        return damaged, AuditMark(settings).complaint([Lack("default", 43, 3)])

    assert not any("another machine" in each for each in told())
    mounted(tmp_path, "nfs4", monkeypatch)
    assert all("see that none runs there before you put or delete anything" in each for each in told())
