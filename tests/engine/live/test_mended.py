"""A problem between files is over as soon as it is mended, also where nothing tells of it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import live as live_module
from engine.errors import StorageError
from engine.worktree.disk import Disk
from tests.harness.policy_folder import ADMIN, Folder, document, pack, preset
from tests.harness.watched_folder import Watched, watching


def a_copy(folder: Folder) -> Iterator[None]:
    folder.write("policies/team/a.yaml", document("a"))
    yield
    (folder.root / "policies/team/a.yaml").unlink()


def a_copy_that_is_to_stay(folder: Folder) -> Iterator[None]:
    folder.write("policies/team/a.yaml", document("a"))
    yield
    (folder.root / "policies/a.yaml").unlink()


def two_copies_in_folders(folder: Folder) -> Iterator[None]:
    folder.write("policies/one/a.yaml", document("a"))
    folder.write("policies/two/a.yaml", document("a"))
    yield
    shutil.rmtree(folder.root / "policies/one")
    (folder.root / "policies/two").rename(folder.root / "policies/_two")


def another_case(folder: Folder) -> Iterator[None]:
    folder.write("policies/A.yaml", document("a"))
    yield
    (folder.root / "policies/A.yaml").unlink()


def a_folder_named_like_a_document(folder: Folder) -> Iterator[None]:
    folder.write("policies/x.yaml/b.yaml", document("b"))
    yield
    (folder.root / "policies/x.yaml").rename(folder.root / "policies/x")


def a_linked_folder(folder: Folder) -> Iterator[None]:
    (folder.root / "policies/link").symlink_to("../../elsewhere")
    folder.root.with_name("elsewhere").mkdir()
    yield
    (folder.root / "policies/link").unlink()


def a_misplaced_folder(folder: Folder) -> Iterator[None]:
    folder.write("team/b.yaml", document("b"))
    yield
    (folder.root / "team").rename(folder.root / "policies/team")


def a_pack_before_its_preset(folder: Folder) -> Iterator[None]:
    folder.write("packs/q.yaml", pack("q", "p"))
    yield
    folder.write("presets/mail/p.yaml", preset("p"))


PROBLEMS = [
    *(a_copy, a_copy_that_is_to_stay, two_copies_in_folders, another_case, a_folder_named_like_a_document),
    *(a_linked_folder, a_misplaced_folder, a_pack_before_its_preset),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.__name__)
def test_a_problem_between_files_is_over_as_soon_as_it_is_mended(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, problem: Callable[[Folder], Iterator[None]]
) -> None:
    monkeypatch.setattr(live_module, "RESCAN_SECONDS", 1000.0)
    with watching(folder) as watched:
        told = problem(folder)
        next(told)
        watched.until(lambda: bool(watched.live.health()["stale"]), 3)
        assert watched.blocks("wire")
        assert list(told) == []
        watched.until(lambda: not watched.live.health()["stale"], 3)
        assert watched.blocks("wire")


def test_a_folder_that_cannot_be_read_is_tried_again_though_nothing_tells_of_it(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "RESCAN_SECONDS", 1000.0)
    monkeypatch.setattr(live_module, "FOLLOW_SECONDS", 0.2)
    folder.write("policies/team/b.yaml", document("b", value="pay"))
    scandir, closed = os.scandir, [True]

    def refuse(path: Any) -> Any:
        if str(path).endswith("team") and closed:
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    with watching(folder) as watched:
        monkeypatch.setattr(os, "scandir", refuse)
        watched.live.reload()
        assert watched.live.health()["errors"] == [
            {
                "file": "policies/team",
                "message": "the folder `policies/team` cannot be read: permission denied",
            }
        ]
        closed.clear()
        watched.until(lambda: not watched.live.health()["stale"], 3)
        assert watched.blocks("pay")


def test_notes_that_cannot_be_listed_hold_nothing_up(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """`.governance` may belong to another user, who started the service once."""

    def refuse(path: Path, *arguments: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    watched = Watched(folder)
    monkeypatch.setattr(Path, "iterdir", refuse)
    monkeypatch.setattr(Path, "glob", refuse)
    folder.write("policies/a.yaml", document("a", value="pay"))
    watched.live.reload()
    assert watched.blocks("pay")


def test_a_file_that_became_a_link_to_nothing_stays_in_force(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "FOLLOW_SECONDS", 0.2)
    with watching(folder) as watched:
        (folder.root / "policies/a.yaml").unlink()
        (folder.root / "policies/a.yaml").symlink_to("nowhere")
        watched.until(lambda: bool(watched.live.health()["stale"]))
        time.sleep(1)
        assert watched.live.health()["stale"] and watched.blocks("wire")
        assert watched.live.health()["errors"] == [
            {
                "file": "policies/a.yaml",
                "message": "this is a link to `nowhere`, where nothing is; put that back, or remove the link",
            }
        ], "a line that is not known is not told"


def test_a_folder_of_notes_that_cannot_be_written_is_told_of(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    """By an old marker an edit would be taken for an old file: no API write goes on top of it."""
    folder.write("policies/a.yaml", document("a", value="pay"))
    (folder.root / ".governance").write_text("a file in its place")
    watched = Watched(folder)
    (warning,) = watched.live.health()["warnings"]
    assert warning["file"] == ".governance" and "cannot be written: " in warning["message"]
    assert caplog.text.count(warning["message"]) == 1 and watched.blocks("pay")
    before = folder.read("policies/a.yaml")
    with pytest.raises(StorageError, match=r"\.governance/.* cannot be written"):
        watched.live.write(lambda writes: writes.update("default", "a", {"enabled": False}, author=ADMIN))
    assert folder.read("policies/a.yaml") == before and watched.blocks("pay")
    (folder.root / ".governance").unlink()
    watched.live.reload()
    assert watched.live.health()["warnings"] == []
    watched.live.write(lambda writes: writes.update("default", "a", {"enabled": False}, author=ADMIN))
    assert not watched.blocks("pay")


def test_a_folder_that_is_read_only_needs_no_notes(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Disk, "is_read_only", lambda disk: True)
    (folder.root / ".governance").write_text("a file in its place")
    folder.write("policies/a.yaml", document("a", value="pay"))
    assert Watched(folder).live.health()["warnings"] == []
