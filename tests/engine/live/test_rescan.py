"""The rescan finds what no event told, and gives way to changes and to git."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from engine import live as live_module
from engine.worktree import watcher as watch_module
from engine.worktree.disk import Disk, Listing, Pause
from engine.worktree.watcher import Watcher
from tests.harness.policy_folder import Folder, document
from tests.harness.watched_folder import Watched, watching


def test_the_rescan_finds_what_no_event_told(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "RESCAN_SECONDS", 0.3)
    monkeypatch.setattr(Watcher, "_listen", lambda self: None)
    with watching(folder) as watched:
        folder.write("policies/a.yaml", document("a", value="pay"))
        watched.until(lambda: watched.blocks("pay"))


def test_a_change_right_after_the_start_is_heard(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "RESCAN_SECONDS", 1000.0)
    monkeypatch.setattr(live_module, "FOLLOW_SECONDS", 1000.0)
    for number in range(5):
        with watching(folder) as watched:
            folder.write("policies/a.yaml", document("a", value=f"tool{number}"))
            watched.until(lambda watched=watched, number=number: watched.blocks(f"tool{number}"), 3)  # type: ignore[misc]


def test_a_change_between_the_start_and_the_watching_is_found(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "RESCAN_SECONDS", 1000.0)
    monkeypatch.setattr(live_module, "FOLLOW_SECONDS", 1000.0)
    watched = Watched(folder)
    folder.write("policies/a.yaml", document("a", value="pay"))
    watched.live.watch()
    try:
        watched.until(lambda: watched.blocks("pay"), 3)
    finally:
        watched.live.close()


def test_a_rescan_gives_way_to_a_change_and_is_done_later(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan, begun, done = Disk.scan, threading.Event(), threading.Event()

    def slowly(self: Disk, pause: Pause = lambda: None) -> Listing:
        for _ in range(30):
            begun.set()
            pause()
            time.sleep(0.1)
        done.set()
        return scan(self)

    monkeypatch.setattr(live_module, "RESCAN_SECONDS", 0.5)
    with watching(folder) as watched:
        watched.until(lambda: watched.live.repository.apply_files().changes == ())
        monkeypatch.setattr(Disk, "scan", slowly)
        assert begun.wait(5)
        folder.write("policies/a.yaml", document("a", value="pay"))
        watched.until(lambda: watched.blocks("pay"), 2)
        assert not done.is_set()
        assert done.wait(15)


def test_a_rescan_waits_until_git_is_done(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "RESCAN_SECONDS", 0.2)
    monkeypatch.setattr(Watcher, "_listen", lambda self: None)
    monkeypatch.setattr(watch_module, "SETUP_SECONDS", 0.0)
    git = folder.root.parent / ".git"
    git.mkdir()
    with watching(folder) as watched:
        watched.until(lambda: watched.live.revision == 1)
        (git / "index.lock").touch()
        time.sleep(0.5)
        folder.write("policies/b.yaml", document("b"))
        time.sleep(1)
        assert watched.live.snapshot.count == 1
        (git / "index.lock").unlink()
        watched.until(lambda: watched.live.snapshot.count == 2)


def test_a_database_that_is_away_is_asked_again(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "FOLLOW_SECONDS", 0.2)
    with watching(folder) as watched:
        transact = folder.archive.transact

        def away(work: Any) -> Any:
            raise RuntimeError("the database is away")

        folder.archive.transact = away  # type: ignore[method-assign]
        folder.write("policies/a.yaml", document("a", value="pay"))
        time.sleep(1)
        assert watched.blocks("wire")
        folder.archive.transact = transact  # type: ignore[method-assign]
        watched.until(lambda: watched.blocks("pay"))


def test_whoever_asks_for_it_has_the_files_read_at_once(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "RESCAN_SECONDS", 1000.0)
    monkeypatch.setattr(Watcher, "_listen", lambda self: None)
    reread: list[Any] = []
    with watching(folder) as watched:
        watched.until(lambda: watched.live._rescans == 1)
        differing = watched.live.repository.differing
        monkeypatch.setattr(
            watched.live.repository,
            "differing",
            lambda part, pause: (reread.append(part), differing(part))[1],
        )
        folder.write("policies/a.yaml", document("a", value="pay"))
        watched.live.look_again()
        watched.until(lambda: watched.blocks("pay"))
        watched.until(lambda: reread == [(0, 1)])


def test_a_folder_that_does_not_answer_is_told_of(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where it lies on a network file system that hangs."""
    identity, asked, answers = Disk.identity, threading.Event(), threading.Event()

    def hanging(disk: Disk) -> tuple[int, int] | None:
        asked.set()
        assert answers.wait(20)
        return identity(disk)

    monkeypatch.setattr(live_module, "FOLLOW_SECONDS", 0.1)
    with watching(folder) as watched:
        watched.until(lambda: not watched.live.health()["stale"])
        monkeypatch.setattr(Disk, "identity", hanging)
        watched.live._watcher.tell({""})
        assert asked.wait(20)
        monkeypatch.setattr(watch_module, "SILENT_SECONDS", 0.5)
        watched.until(lambda: watched.live.health()["stale"])
        assert "does not answer" in watched.live.health()["errors"][0]["message"]
        answers.set()
        monkeypatch.setattr(watch_module, "SILENT_SECONDS", 120.0)
        watched.until(lambda: not watched.live.health()["stale"])
