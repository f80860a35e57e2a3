"""The repository when the disk or the database fails, or the process dies, at any single step.

A `Plug` counts every step that can fail: each of the disk's, and the commit before and after it took place.
One run without faults says how many steps a story has; then the story is told once for each step and each
kind of end: an error that is reported, or the death of the process (nothing after it runs).
"""

from __future__ import annotations

import itertools
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.errors import EngineError
from engine.repository.repository import Repository
from engine.worktree.disk import Disk
from tests.harness.policy_archive import MemoryArchive
from tests.harness.policy_folder import ADMIN, BODY, Folder, document

Story = Callable[[Folder, Repository], object]


class Death(BaseException):
    """The process is gone: no handler of ours runs."""


class DatabaseGone(Exception):
    """What an archive raises when a transaction could not be committed."""


def disk_full() -> BaseException:
    return OSError(28, "No space left on device")


class Plug:
    """Lets `left` steps pass, then pulls the plug."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.error: Callable[[], BaseException] = Death
        self.steps: list[str] = []

    def step(self, name: str) -> None:
        self.steps.append(name)
        if self.left is not None:
            if self.left == 0:
                self.left = None
                raise self.error()
            self.left -= 1


class FailingDisk(Disk):
    """Every step may fail, before it had any effect and after it had."""

    def __init__(self, root: Path, plug: Plug) -> None:
        super().__init__(root)
        self.plug = plug

    def make_folder(self, folder: Path) -> None:
        self.plug.step("make folder")
        super().make_folder(folder)

    def write_temporary(self, path: Path, content: bytes) -> None:
        self.plug.step("before writing")
        path.write_bytes(content[: len(content) // 2])
        self.plug.step("half written")
        super().write_temporary(path, content)

    def sync_file(self, handle: int) -> None:
        self.plug.step("sync file")

    def rename(self, source: Path, target: Path) -> None:
        self.plug.step("before rename")
        super().rename(source, target)
        self.plug.step("after rename")

    def unlink(self, target: Path) -> None:
        self.plug.step("before unlink")
        super().unlink(target)
        self.plug.step("after unlink")

    def sync_folder(self, folder: Path) -> None:
        self.plug.step("sync folder")


def failing(folder: Folder, plug: Plug) -> Repository:
    folder.archive.before_commit = lambda: plug.step("before commit")
    folder.archive.after_commit = lambda: plug.step("after commit")
    return folder.open(disk=FailingDisk(folder.root, plug))


def update(folder: Folder, repository: Repository) -> object:
    return repository.update("default", "a", {"name": "New"}, author=ADMIN)


def create(folder: Folder, repository: Repository) -> object:
    return repository.create(BODY, author=ADMIN, organisation_id="acme")


def create_many(folder: Folder, repository: Repository) -> object:
    return repository.create_many([BODY, BODY], author=ADMIN)


def delete(folder: Folder, repository: Repository) -> object:
    return repository.delete("default", "a", author=ADMIN)


def rollback(folder: Folder, repository: Repository) -> object:
    return repository.rollback("default", "b", 1, author=ADMIN)


def edit_and_update(folder: Folder, repository: Repository) -> object:
    folder.write("policies/a.yaml", document("a", value="pay"))
    return repository.update("default", "a", {"name": "New"}, author=ADMIN)


def edit_files(folder: Folder, repository: Repository) -> object:
    folder.write("policies/a.yaml", document("a", name="New"))
    (folder.root / "policies/b.yaml").unlink(missing_ok=True)
    return repository.apply_files()


STORIES: list[Story] = [update, create, create_many, delete, rollback, edit_and_update, edit_files]


def prepared(root: Path, plug: Plug) -> tuple[Folder, Repository]:
    """Policies `a` (version 1), `b` (version 2) and `c`, which nobody touches."""
    folder = Folder(root)
    for name in ("a", "b", "c"):
        folder.write(f"policies/{name}.yaml", document(name))
    repository = failing(folder, plug)
    repository.start()
    repository.update("default", "b", {"name": "Newer"}, author=ADMIN)
    repository.apply_files()
    return folder, repository


def test_a_write_that_died_between_rename_and_commit_is_completed_as_the_admins(tmp_path: Path) -> None:
    plug = Plug()
    folder, repository = prepared(tmp_path / "p", plug)
    plug.left = steps_of(update, tmp_path / "whole").index("after rename")
    with pytest.raises(Death):
        update(folder, repository)
    again = folder.started()
    newest = again.versions("default", "a")[0]
    assert (newest.version, newest.source, newest.created_by) == (2, "api", ADMIN)
    assert not list((folder.root / ".governance").glob("write-*"))


def test_a_write_that_died_gives_way_to_one_that_was_acknowledged(tmp_path: Path) -> None:
    plug = Plug()
    folder, repository = prepared(tmp_path / "p", plug)
    other = Folder(tmp_path / "node2", folder.archive)
    other.times = folder.times
    shutil.copytree(folder.root, other.root, dirs_exist_ok=True)
    plug.left = steps_of(update, tmp_path / "whole").index("after rename")
    with pytest.raises(Death):
        update(folder, repository)
    folder.archive.before_commit = folder.archive.after_commit = lambda: None
    other.started().update("default", "a", {"name": "Acknowledged"}, author="bob")
    again = folder.started()
    assert [each.created_by for each in again.versions("default", "a")] == ["bob", "file"]
    assert folder.read("policies/a.yaml") == other.read("policies/a.yaml")


def test_a_write_that_died_is_the_admins_also_when_it_could_not_be_completed_at_once(tmp_path: Path) -> None:
    plug = Plug()
    folder, repository = prepared(tmp_path / "p", plug)
    plug.left = steps_of(update, tmp_path / "whole").index("after rename")
    with pytest.raises(Death):
        update(folder, repository)
    folder.write("policies/c.yaml", "half a fi")
    again = folder.open()
    assert again.start().problems, "the broken file keeps the whole batch back"
    again.update("default", "a", {"name": "Newest"}, author="bob")
    versions = again.versions("default", "a")
    assert [(each.version, each.source, each.created_by) for each in versions] == [
        (3, "api", "bob"),
        (2, "api", ADMIN),
        (1, "file", "file"),
    ]
    assert not list((folder.root / ".governance").glob("write-*"))


class Meanwhile(Plug):
    """Somebody does something at one step."""

    def __init__(self, at: str, act: Callable[[], object]) -> None:
        super().__init__()
        self.at, self.act = at, act

    def step(self, name: str) -> None:
        if name == self.at:
            self.at = ""
            self.act()


@pytest.mark.parametrize("at", ["before writing", "half written", "sync file"])
def test_what_a_person_saves_while_a_write_takes_its_time_is_a_version_before_it(
    tmp_path: Path, at: str
) -> None:
    folder = Folder(tmp_path / "p")
    folder.write("policies/a.yaml", document("a"))
    saved = document("a", value="pay")
    repository = failing(folder, Meanwhile(at, lambda: folder.write("policies/a.yaml", saved)))
    repository.start()
    update(folder, repository)
    newest, theirs, _ = repository.versions("default", "a")
    assert (newest.state["name"], newest.state["matchConditions"][0]["value"]) == ("New", "pay")
    assert (theirs.source, folder.archive.state.blobs[theirs.digest].decode()) == ("file", saved)
    check_at_rest(repository)


def test_what_a_person_saves_is_not_undone_with_a_write_that_failed(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "p")
    folder.write("policies/a.yaml", document("a"))
    saved = document("a", value="pay")
    repository = failing(folder, Meanwhile("after rename", lambda: folder.write("policies/a.yaml", saved)))
    repository.start()

    def fail() -> None:
        folder.archive.before_commit = lambda: None
        raise DatabaseGone

    folder.archive.before_commit = fail
    with pytest.raises(DatabaseGone):
        update(folder, repository)
    assert folder.read("policies/a.yaml") == saved
    repository.apply_files()
    assert [each.source for each in repository.versions("default", "a")] == ["file", "file"]
    check_at_rest(repository)


def test_what_a_person_saves_is_not_replaced_by_the_file_of_another_node(tmp_path: Path) -> None:
    one = Folder(tmp_path / "one")
    one.write("policies/a.yaml", document("a"))
    one.started()
    two = Folder(tmp_path / "two", one.archive)
    two.times = one.times
    two.write("policies/a.yaml", document("a"))
    saved = document("a", value="pay")
    plug = Meanwhile("sync file", lambda: two.write("policies/a.yaml", saved))
    behind = failing(two, plug)
    behind.start()
    two.archive.before_commit = two.archive.after_commit = lambda: None
    one.started().update("default", "a", {"name": "New"}, author=ADMIN)
    assert behind.apply_files().again
    assert two.read("policies/a.yaml") == saved
    assert [problem.code for problem in behind.apply_files().problems] == ["conflict"]


def test_a_file_that_another_worker_wrote_is_no_edit_when_the_policy_is_gone_since(tmp_path: Path) -> None:
    """Two workers of one folder and another node, which deletes what the first has made."""
    folder = Folder(tmp_path / "p")
    folder.write("policies/a.yaml", document("a"))
    one, two = folder.started(), folder.started()
    node = Folder(tmp_path / "node", folder.archive)
    node.times = folder.times
    node.write("policies/a.yaml", document("a"))
    elsewhere = node.started()
    created = one.create(BODY, author=ADMIN).stored
    assert created is not None
    elsewhere.delete("default", created.policy.policy_id, author="bob")
    for each in (two, one, elsewhere):
        each.apply_files()
    assert [state(each) for each in (one, two, elsewhere)] == 3 * [{("default", "a"): (1, "Hold")}]
    assert not folder.disk_has(created.file.path)


def test_a_restart_after_a_marker_that_fell_behind_brings_nothing_back(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "p")
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    node = Folder(tmp_path / "node", folder.archive)
    node.times = folder.times
    node.write("policies/a.yaml", document("a"))
    elsewhere = node.started()
    folder.write("policies/b.yaml", "half a fi")
    assert repository.apply_files().problems, "as long as there are problems the marker stays"
    created = repository.create(BODY, author=ADMIN).stored
    assert created is not None
    elsewhere.delete("default", created.policy.policy_id, author="bob")
    (folder.root / "policies/b.yaml").unlink()
    again = folder.started()
    assert state(again) == {("default", "a"): (1, "Hold")}
    assert not folder.disk_has(created.file.path)


def check_at_rest(repository: Repository) -> None:
    assert repository.apply_files().changes == () and repository.problems == ()


def state(repository: Repository) -> dict[tuple[str, str], tuple[int, str]]:
    return {
        (organisation_id, policy_id): (stored.policy.version, stored.policy.name)
        for organisation_id, policies in repository.snapshot.policies.items()
        for policy_id, stored in policies.items()
    }


def check(folder: Folder, repository: Repository) -> None:
    """What must be true of any repository that has come to rest."""
    assert repository.problems == ()
    assert repository.apply_files().changes == (), "disk and archive agree"
    on_disk = {
        path.relative_to(folder.root).as_posix()
        for path in folder.root.rglob("*.yaml")
        if not path.name.startswith(".")
    }
    assert on_disk == set(repository.snapshot.files)
    assert not [path for path in folder.root.rglob("*.tmp") if path.parent.name != ".governance"]
    for (organisation_id, policy_id), versions in folder.archive.state.versions.items():
        assert [each.version for each in versions] == list(range(1, len(versions) + 1))
        stored = repository.snapshot.of(organisation_id).get(policy_id)
        assert [each.version for each in versions if each.archived_at is None] == (
            [stored.policy.version] if stored else []
        )
        if stored is not None:
            content = (folder.root / stored.file.path).read_bytes()
            assert folder.archive.state.blobs[stored.file.digest] == content
    assert repository.snapshot.of("default")["c"].policy.version == 1, "nobody touched it"


def steps_of(story: Story, root: Path) -> list[str]:
    plug = Plug()
    folder, repository = prepared(root, plug)
    plug.steps.clear()
    story(folder, repository)
    steps = list(plug.steps)
    check(folder, repository)
    return steps


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
        looked.append(repository._look(None, None))
        assert folder.archive.state is state
        raise DatabaseGone

    folder.archive.before_commit = look
    with pytest.raises(DatabaseGone):
        update(folder, repository)
    assert looked and folder.read("policies/a.yaml") == document("a")
    assert repository._settle(looked[0]).again or repository.apply_files().changes == ()
    assert [each.version for each in repository.versions("default", "a")] == [1]


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
