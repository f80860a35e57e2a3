"""A write that died, a person who saves meanwhile, markers and files that fell behind."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.repository_stories import (
    check_at_rest,
    prepared,
    state,
    steps_of,
    update,
)
from tests.harness.failing_disk import DatabaseGone, Death, Plug, failing
from tests.harness.policy_folder import ADMIN, BODY, Folder, document


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
