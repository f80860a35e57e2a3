"""What root's commands make belongs to the user of the service."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from api.auth.private_file import create
from api.database.sqlite.copied import note
from api.database.sqlite.write_lock import opened
from engine.worktree.disk import Disk
from engine.worktree.ownership import new_file_like

pytestmark = pytest.mark.skipif(os.name == "nt", reason="files have no owners there")

SERVICE = 4711


@pytest.fixture
def handed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The paths that root hands over, in a folder of the service; whoever runs the tests plays root."""
    found: set[str] = set()

    def fchown(handle: int, user: int, group: int) -> None:
        place = Path(f"/proc/self/fd/{handle}").readlink()
        found.add(str(place.relative_to(tmp_path)))

    if os.geteuid() == 0:
        os.chown(tmp_path, SERVICE, SERVICE)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "fchown", fchown)
    return found


def test_documents_and_their_folders_are_handed_over(tmp_path: Path, handed: set[str]) -> None:
    Disk(tmp_path).replace("settings.yaml", b"x")
    assert handed == {f".settings.yaml.{os.getpid()}.tmp"}
    Disk(tmp_path).note(".governance/base.json", b"{}")
    assert ".governance" in handed
    (tmp_path / "mine").mkdir()
    handed.clear()
    Disk(tmp_path).make_folder(tmp_path / "mine")
    assert not handed, "it was there before"


def test_so_are_locks_keys_and_notes_but_nothing_that_was_there(tmp_path: Path, handed: set[str]) -> None:
    os.close(opened(tmp_path / "x.lock"))
    create(tmp_path / "audit-key", "secret")
    note(tmp_path / "x", "there", "now")
    made = {each.rpartition("-")[0] if each.startswith(".") else each for each in handed}
    assert made == {"x.lock", ".audit-key", "x.copied"}
    handed.clear()
    (tmp_path / "other.lock").symlink_to(tmp_path / "x.lock")
    os.close(opened(tmp_path / "other.lock"))
    assert not handed and (tmp_path / "other.lock").is_symlink()


def test_what_takes_the_place_of_a_file_stays_its_owners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, aside, given = tmp_path / "policy.yaml", tmp_path / "aside", []
    file.write_text("x", encoding="utf-8")
    file.chmod(0o640)
    found = os.stat_result((0o100640, *file.stat()[1:4], SERVICE, SERVICE, *file.stat()[6:]))
    stat_of = Path.stat
    monkeypatch.setattr(
        Path, "stat", lambda self, **options: found if self == file else stat_of(self, **options)
    )
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "fchown", lambda _handle, user, group: given.append((user, group)))
    os.close(new_file_like(aside, file))
    assert given[-1] == (SERVICE, SERVICE)
    assert stat_of(aside).st_mode & 0o777 == 0o640


def test_nobody_else_hands_anything_over(
    tmp_path: Path, handed: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: SERVICE)
    create(tmp_path / "audit-key", "secret")
    Disk(tmp_path).make_folder(tmp_path / "settings")
    assert not handed
