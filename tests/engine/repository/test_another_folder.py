"""The policies folder becomes another one while the service runs, as where a link leads to a new release."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from engine.errors import StorageError
from engine.repository.repository import Repository
from engine.worktree.disk import Disk
from tests.harness.policy_folder import ADMIN, BODY, Folder, document, messages


def released(folder: Folder, name: str) -> Path:
    release = folder.root.with_name(name)
    (release / "policies").mkdir(parents=True)
    (release / "policies/a.yaml").write_text(document("a"))
    (release / "policies/b.yaml").write_text(document("b"))
    return release


def linked(folder: Folder, release: Path) -> None:
    new = folder.root.with_name("new")
    new.symlink_to(release)
    new.rename(folder.root)


@pytest.fixture
def running(folder: Folder) -> Repository:
    folder.archive.state.shared = False
    shutil.rmtree(folder.root)
    linked(folder, released(folder, "one"))
    return folder.started()


def test_what_the_api_changed_and_what_a_newer_release_lacks_stays_in_force(
    folder: Folder, running: Repository, caplog: pytest.LogCaptureFixture
) -> None:
    running.update("default", "a", {"name": "By the API"}, author=ADMIN)
    running.create(BODY | {"policyId": "c"}, author=ADMIN)
    release = released(folder, "two")
    (release / "policies/b.yaml").unlink()
    (release / "policies/d.yaml").write_text(document("d"))
    linked(folder, release)
    assert running.apply_files().problems == ()
    policies = running.snapshot.of("default")
    assert set(policies) == {"a", "b", "c", "d"} and policies["a"].policy.name == "By the API"
    assert "name: By the API" in folder.read("policies/a.yaml") and folder.disk_has("policies/c.yaml")
    assert sorted(each.path for each in running.sync.current.replaced()) == [
        "policies/a.yaml",
        "policies/b.yaml",
        "policies/c.yaml",
    ]
    assert "took the place of files that are older, missing or deleted" in caplog.text


def test_a_folder_that_is_made_anew_under_the_same_number_is_another_one(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    """As `rm -rf policies.d; cp -r release policies.d` leaves it where the file system uses numbers again."""
    folder.archive.state.shared = False
    folder.write("policies/a.yaml", document("a"))
    running = folder.started()
    running.update("default", "a", {"name": "By the API"}, author=ADMIN)
    running.create(BODY | {"policyId": "c"}, author=ADMIN)
    for each in folder.root.iterdir():
        shutil.rmtree(each)
    folder.write("policies/a.yaml", document("a"))
    running.apply_files()
    running.apply_files()
    policies = running.snapshot.of("default")
    assert set(policies) == {"a", "c"} and policies["a"].policy.name == "By the API"
    assert sorted(each.path for each in running.sync.current.replaced()) == [
        "policies/a.yaml",
        "policies/c.yaml",
    ]
    assert caplog.text.count("took the place of files that are older, missing or deleted") == 1
    (folder.root / "policies/c.yaml").unlink()
    running.apply_files()
    assert set(running.snapshot.of("default")) == {"a"}, "the same folder now, in which a removal counts"


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(("by_api", "line"), [(False, ""), (True, "version: 2\n")])
def test_what_has_moved_in_a_newer_release_has_moved(
    folder: Folder, restarted: bool, shared: bool, by_api: bool, line: str
) -> None:
    folder.archive.state.shared = shared
    shutil.rmtree(folder.root)
    linked(folder, released(folder, "one"))
    running = folder.started()
    if by_api:
        running.update("default", "b", {"name": "By the API"}, author=ADMIN)
    release = released(folder, "two")
    (release / "policies/b.yaml").unlink()
    (release / "policies/team").mkdir()
    (release / "policies/team/b.yaml").write_text(document("b", name="Moved") + line)
    linked(folder, release)
    if restarted:
        running = folder.started()
    assert running.apply_files().problems == ()
    assert running.snapshot.of("default")["b"].policy.name == "Moved"
    assert not folder.disk_has("policies/b.yaml") and running.sync.current.replaced() == []


def test_what_has_moved_and_was_changed_through_the_api_is_told(folder: Folder, running: Repository) -> None:
    running.update("default", "b", {"name": "By the API"}, author=ADMIN)
    release = released(folder, "two")
    (release / "policies/b.yaml").unlink()
    (release / "policies/team").mkdir()
    (release / "policies/team/b.yaml").write_text(document("b", name="Moved"))
    linked(folder, release)
    assert "are the same policy `b`" in str(running.apply_files().problems[0])
    assert running.snapshot.of("default")["b"].policy.name == "By the API"


def test_what_a_newer_release_says_otherwise_is_an_edit(folder: Folder, running: Repository) -> None:
    release = released(folder, "two")
    (release / "policies/a.yaml").write_text(document("a", name="Newer"))
    linked(folder, release)
    running.apply_files()
    assert running.snapshot.of("default")["a"].policy.name == "Newer"
    (release / "policies/b.yaml").unlink()
    running.apply_files()
    assert set(running.snapshot.of("default")) == {"a"}, "the same folder now, in which a removal counts"


def test_a_folder_that_is_copied_with_its_memory_goes_on(folder: Folder, running: Repository) -> None:
    running.apply_files()
    shutil.copytree(folder.root, release := folder.root.with_name("two"))
    (release / "policies/b.yaml").unlink()
    linked(folder, release)
    running.apply_files()
    assert set(running.snapshot.of("default")) == {"a"}


def test_an_empty_folder_in_its_place_is_told_of_and_left_empty(folder: Folder, running: Repository) -> None:
    (empty := folder.root.with_name("empty")).mkdir()
    linked(folder, empty)
    assert running.apply_files().problems and messages(running)
    assert set(running.snapshot.of("default")) == {"a", "b"} and not list(empty.iterdir())


def test_a_link_whose_switch_nobody_saw_is_followed(folder: Folder, running: Repository) -> None:
    release = released(folder, "two")
    (release / "policies/b.yaml").unlink()
    linked(folder, release)
    running.follow()
    running.apply_files(())
    assert folder.disk_has("policies/b.yaml") and set(running.snapshot.of("default")) == {"a", "b"}


@pytest.mark.parametrize("restarted", [False, True])
def test_a_removal_counts_in_a_folder_that_is_only_read(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    """Nobody else writes there, and the file could not be written anew."""

    def refused(disk: Disk, relative: str, *_: object) -> None:
        raise StorageError(f"`{relative}` cannot be written: permission denied")

    for name in ("note", "replace"):
        monkeypatch.setattr(Disk, name, refused)
    monkeypatch.setattr(Disk, "is_read_only", lambda disk: True)
    folder.archive.state.shared = False
    shutil.rmtree(folder.root)
    linked(folder, released(folder, "one"))
    running = folder.started()
    release = released(folder, "two")
    (release / "policies/b.yaml").unlink()
    linked(folder, release)
    if restarted:
        running = folder.started()
    assert running.apply_files().problems == ()
    assert set(running.snapshot.of("default")) == {"a"}
