"""The repository when the disk or the database fails, or the process dies, at any single step.

A `Plug` counts every step that can fail: each of the disk's, and the commit before and after it took place.
One run without faults says how many steps a story has; then the story is told once for each step and each
kind of end: an error that is reported, or the death of the process (nothing after it runs).
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.errors import EngineError
from engine.repository.repository import Repository
from tests.faults.repository_stories import (
    STORIES,
    Story,
    check,
    create,
    delete,
    edit_and_update,
    edit_files,
    prepared,
    state,
    steps_of,
    update,
)
from tests.harness.failing_disk import DatabaseGone, Death, Plug, disk_full
from tests.harness.policy_archive import MemoryArchive
from tests.harness.policy_folder import ADMIN, Folder, document


def tell(
    story: Story, root: Path, at: int, error: Callable[[], BaseException]
) -> tuple[Folder, Repository, Any]:
    """The story with a fault at its step `at`; what it raised, or None."""
    plug = Plug()
    folder, repository = prepared(root, plug)
    before = state(repository)
    plug.left, plug.error = at, error
    try:
        story(folder, repository)
        raised = None
    except BaseException as caught:
        raised = caught
    plug.left = None
    return folder, repository, (raised, before)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_death_at_any_step_ends_before_or_after_the_write_never_between(story: Story, tmp_path: Path) -> None:
    steps = steps_of(story, tmp_path / "whole")
    outcomes = set()
    for at, name in enumerate(steps):
        folder, dead, (raised, before) = tell(story, tmp_path / f"death{at}", at, Death)
        assert isinstance(raised, Death), name
        again = folder.open()
        again.start()
        check(folder, again)
        after = state(again)
        outcomes.add(after == before)
        assert after.keys() >= before.keys() - {("default", "a"), ("default", "b")}
        committed = folder.archive.state.files
        assert {path: record.digest for path, record in committed.items()} == {
            path: record.digest for path, record in again.snapshot.files.items()
        }
        assert dead.snapshot.revision <= again.snapshot.revision
    assert len(steps) >= 2 and outcomes


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_an_error_at_any_step_is_told_and_undone(story: Story, tmp_path: Path) -> None:
    steps = steps_of(story, tmp_path / "whole")
    for at, name in enumerate(steps):
        if name == "after commit":
            continue  # what is committed cannot be undone; the archive never raises then
        error: Callable[[], BaseException] = (
            DatabaseGone if "commit" in name else lambda: OSError(28, "No space left")
        )
        folder, repository, (raised, before) = tell(story, tmp_path / f"error{at}", at, error)
        if name == "sync folder":
            assert raised is None, "the rename has happened; a folder that cannot be synced does not undo it"
            check(folder, repository)
            continue
        assert isinstance(raised, (EngineError, DatabaseGone)), (name, raised)
        if story in (edit_and_update, edit_files):
            repository.apply_files()
        else:
            assert state(repository) == before, name
        check(folder, repository)
        again = folder.open()
        again.start()
        assert state(again) == state(repository)
        story(folder, repository)
        check(folder, repository)


def test_a_commit_that_fails_for_two_writes_of_one_transaction_leaves_nothing(tmp_path: Path) -> None:
    """Group commit: two API writes to one file share a transaction that fails."""
    folder = Folder(tmp_path / "p")
    folder.write("policies/a.yaml", document("a"))

    class GroupArchive(MemoryArchive):
        """Runs both works on one state, then fails the commit for both."""

        def __init__(self) -> None:
            super().__init__()
            self.group: list[tuple[Any, list[Any]]] = []
            self.fail = False

        def transact(self, work: Any) -> Any:
            if not self.fail:
                return super().transact(work)
            box: list[Any] = []
            self.group.append((work, box))
            while not box:
                if len(self.group) == 2 and threading.current_thread().name == "second":
                    state = self.state.copy()
                    from tests.harness.policy_archive import MemoryRecords

                    for each, answer in self.group:
                        each(MemoryRecords(state))
                        answer.append(DatabaseGone())
            raise box[0]

    folder.archive = GroupArchive()
    repository = folder.started()
    folder.archive.fail = True
    names = itertools.count(1)
    failures: list[BaseException] = []

    def write() -> None:
        try:
            repository.update("default", "a", {"name": f"N{next(names)}"}, author=ADMIN)
        except DatabaseGone as error:
            failures.append(error)

    threads = [threading.Thread(target=write, name=name) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    folder.archive.fail = False
    assert len(failures) == 2
    assert folder.read("policies/a.yaml") == document("a")
    assert repository.apply_files().changes == ()
    assert repository.snapshot.revision == 1


def test_what_a_failed_commit_left_behind_is_not_taken_for_an_edit(tmp_path: Path) -> None:
    """Between the rename and the undo, somebody looks at the disk."""
    folder = Folder(tmp_path / "p")
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    looked: list[Any] = []

    def look() -> None:
        folder.archive.before_commit = lambda: None
        state = folder.archive.state
        looked.append(repository.sync.look(None))
        assert folder.archive.state is state
        raise DatabaseGone

    folder.archive.before_commit = look
    with pytest.raises(DatabaseGone):
        update(folder, repository)
    assert looked and folder.read("policies/a.yaml") == document("a")
    assert repository.sync.settle(looked[0]).again or repository.apply_files().changes == ()
    assert [each.version for each in repository.versions("default", "a")] == [1]


@pytest.mark.parametrize("story", [update, create, delete], ids=lambda story: story.__name__)
@pytest.mark.parametrize("restarted", [True, False], ids=["restarted", "beside another process"])
def test_a_write_that_failed_and_could_not_be_undone_never_comes_into_force(
    story: Story, restarted: bool, tmp_path: Path
) -> None:
    """On a full disk there is no room for what the file was before; the admin has heard of no change."""

    class FullPlug(Plug):
        full = False

        def step(self, name: str) -> None:
            if self.full and name in ("before writing", "before unlink"):
                raise disk_full()
            super().step(name)

    plug = FullPlug()
    folder, repository = prepared(tmp_path / "p", plug)
    before = state(repository)
    other = folder.started()

    def fail() -> None:
        folder.archive.before_commit = lambda: None
        plug.full = True
        raise DatabaseGone

    folder.archive.before_commit = fail
    with pytest.raises(DatabaseGone):
        story(folder, repository)
    if restarted:
        other = folder.started()
    else:
        other.apply_files()
    assert state(other) == before
    check(folder, other)
    assert not list(folder.root.glob(".governance/failed-*"))
    assert other.sync.current.replaced() == [], "nobody meant what was there"
    plug.full = False
    check(folder, repository)
    story(folder, repository)
    check(folder, repository)


def test_a_snapshot_of_a_commit_that_never_came_to_be_is_dropped(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "p")
    folder.write("policies/a.yaml", document("a"))
    repository, other = folder.started(), folder.started()

    def fail() -> None:
        folder.archive.before_commit = lambda: None
        raise DatabaseGone

    folder.archive.before_commit = fail
    kept = folder.archive.state
    with pytest.raises(DatabaseGone):
        update(folder, repository)
    assert folder.archive.state is kept
    other.update("default", "a", {"name": "Other"}, author=ADMIN)
    assert repository.follow().of("default")["a"].policy.name == "Other"
