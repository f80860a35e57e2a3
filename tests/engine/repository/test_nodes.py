"""Several processes and nodes over one archive follow each other."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.errors import (
    PolicyFileInvalid,
    StorageError,
)
from tests.harness.policy_archive import MemoryArchive, MemoryRecords
from tests.harness.policy_folder import ADMIN, BODY, Folder, document, messages, nodes


def test_workers_on_one_folder_follow_each_other(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    one, two = folder.started(), folder.started()
    one.update("default", "a", {"name": "One"}, author=ADMIN)
    assert two.follow().of("default")["a"].policy.name == "One"
    assert two.apply_files().changes == ()
    two.update("default", "a", {"name": "Two"}, author=ADMIN)
    stored = one.update("default", "a", {"action": "warn"}, author=ADMIN).stored
    assert stored is not None and (stored.policy.name, stored.policy.version) == ("Two", 4)


@pytest.mark.parametrize("remembers", [True, False])
def test_a_worker_that_begins_while_another_one_takes_an_edit_over_tells_of_no_older_database(
    remembers: bool, folder: Folder, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its view of the archive is older than what the other one has noted in the folder meanwhile."""
    folder.write("policies/a.yaml", document("a"))
    folder.started()
    folder.write("policies/a.yaml", document("a", "Newer"))
    if not remembers:
        shutil.rmtree(folder.root / ".governance")
    late, view = folder.open(), folder.archive.view

    def overtaken(work: Callable[[MemoryRecords], Any]) -> Any:
        monkeypatch.setattr(folder.archive, "view", view)
        before = MemoryRecords(folder.archive.state.copy())
        assert folder.started().snapshot.revision == 2
        return work(before)

    monkeypatch.setattr(folder.archive, "view", overtaken)
    caplog.clear()
    assert late.start().problems == ()
    assert late.snapshot.of("default")["a"].policy.name == "Newer" and late.snapshot.revision == 2
    assert not [each.getMessage() for each in caplog.records if each.levelname != "INFO"]
    one = folder.started()
    one.update("default", "a", {"name": "Through the API"}, author=ADMIN)
    assert late.follow().of("default")["a"].policy.name == "Through the API"
    assert late.apply_files().changes == ()


def test_a_node_brings_its_own_files_up_to_date(folder: Folder, tmp_path: Path) -> None:
    other, one, two = nodes(tmp_path, folder)
    one.update("default", "a", {"name": "One"}, author=ADMIN)
    one.create(BODY | {"policyId": "b"}, author=ADMIN)
    assert two.follow().count == 2
    assert "name: One" not in other.read("policies/a.yaml"), "deciding does not wait for the disk"
    assert two.apply_files(()).changes == ()
    assert other.read("policies/a.yaml") == folder.read("policies/a.yaml")
    assert other.read("policies/b.yaml") == folder.read("policies/b.yaml")
    one.delete("default", "b", author=ADMIN)
    two.follow()
    two.apply_files(())
    assert not (other.root / "policies/b.yaml").exists()


def test_a_node_that_was_down_catches_up(folder: Folder, tmp_path: Path) -> None:
    other, one, _ = nodes(tmp_path, folder)
    one.update("default", "a", {"name": "One"}, author=ADMIN)
    one.create(BODY | {"policyId": "b"}, author=ADMIN)
    two = other.started()
    assert two.snapshot == one.snapshot
    assert other.read("policies/a.yaml") == folder.read("policies/a.yaml")


def test_a_new_node_with_an_older_clone_and_no_memory_catches_up(folder: Folder, tmp_path: Path) -> None:
    other, one, _ = nodes(tmp_path, folder)
    one.update("default", "a", {"name": "One"}, author=ADMIN)
    shutil.rmtree(other.root / ".governance")
    two = other.started()
    assert two.snapshot.of("default")["a"].policy.name == "One"
    assert other.read("policies/a.yaml") == folder.read("policies/a.yaml")


def test_the_same_git_pull_on_two_nodes_is_one_version(folder: Folder, tmp_path: Path) -> None:
    other, one, two = nodes(tmp_path, folder)
    for each in (folder, other):
        each.write("policies/a.yaml", document("a", name="Pulled"))
    one.apply_files()
    assert two.apply_files().changes == ()
    assert two.snapshot.of("default")["a"].policy.version == 2


def test_a_divergence_is_reported_and_nothing_is_overwritten(folder: Folder, tmp_path: Path) -> None:
    other, one, two = nodes(tmp_path, folder)
    one.update("default", "a", {"name": "One"}, author=ADMIN)
    theirs = document("a", name="Mine")
    other.write("policies/a.yaml", theirs)
    two.follow()
    assert two.apply_files().problems
    assert messages(two) == [
        "policies/a.yaml: this file was changed here, but the policy is at version 2 through the API since; "
        "take over what you need and write `version: 2` into the file, or undo your changes"
    ]
    assert other.read("policies/a.yaml") == theirs
    assert two.snapshot.of("default")["a"].policy.name == "One", "what was acknowledged is in force"
    with pytest.raises(PolicyFileInvalid):
        two.update("default", "a", {"name": "Two"}, author=ADMIN)
    other.write("policies/a.yaml", document("a", name="Merged", extra="version: 2\n"))
    assert two.apply_files().problems == ()
    one.follow()
    one.apply_files(())
    assert one.snapshot.of("default")["a"].policy.version == 3
    assert "Merged" in folder.read("policies/a.yaml")


def test_undoing_a_divergent_change_settles_it(folder: Folder, tmp_path: Path) -> None:
    other, one, two = nodes(tmp_path, folder)
    one.update("default", "a", {"name": "One"}, author=ADMIN)
    other.write("policies/a.yaml", document("a", name="Mine"))
    two.follow()
    assert two.apply_files().problems
    other.write("policies/a.yaml", document("a"))
    assert two.apply_files().problems == ()
    assert other.read("policies/a.yaml") == folder.read("policies/a.yaml")


def test_a_file_edited_here_but_deleted_there_is_a_conflict(folder: Folder, tmp_path: Path) -> None:
    other, one, two = nodes(tmp_path, folder)
    one.delete("default", "a", author=ADMIN)
    other.write("policies/a.yaml", document("a", name="Mine"))
    two.follow()
    two.apply_files()
    assert "was deleted through the API" in messages(two)[0]
    assert two.snapshot.count == 0
    (other.root / "policies/a.yaml").unlink()
    assert two.apply_files().problems == ()


def test_a_database_that_was_replaced_is_not_mistaken_for_the_old_one(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    repository.update("default", "a", {"name": "New"}, author=ADMIN)
    repository.apply_files()
    folder.archive = MemoryArchive()
    fresh = folder.started()
    assert fresh.snapshot.revision == 1 and fresh.snapshot.of("default")["a"].policy.name == "New"


def test_a_deployment_without_memory_that_is_put_back_is_an_edit(folder: Folder) -> None:
    """Its folder comes with it, each time anew; what it says now is what it said two deployments ago."""
    folder.archive.state.shared = False
    folder.write("policies/a.yaml", document("a"))
    folder.write("policies/b.yaml", document("b"))
    folder.started()
    before = {name: folder.read(name) for name in ("policies/a.yaml", "policies/b.yaml")}
    folder.write("policies/a.yaml", document("a", name="Weaker"))
    (folder.root / "policies/b.yaml").unlink()
    folder.started()
    shutil.rmtree(folder.root / ".governance")
    for name, text in before.items():
        folder.write(name, text)
    policies = folder.started().snapshot.of("default")
    assert policies["a"].policy.name != "Weaker" and "b" in policies
    assert {name: folder.read(name) for name in before} == before


def test_a_copy_of_the_folder_with_its_memory_that_is_put_back_is_an_edit_as_well(folder: Folder) -> None:
    folder.archive.state.shared = False
    folder.write("policies/a.yaml", document("a"))
    folder.write("policies/b.yaml", document("b"))
    folder.started()
    copy = folder.root.with_name("copy")
    shutil.copytree(folder.root, copy)
    before = folder.read("policies/a.yaml")
    folder.write("policies/a.yaml", document("a", name="Weaker"))
    folder.started()
    shutil.rmtree(folder.root)
    shutil.copytree(copy, folder.root)
    policies = folder.started().snapshot.of("default")
    assert policies["a"].policy.name != "Weaker" and folder.read("policies/a.yaml") == before


@pytest.mark.parametrize("remembered", [False, True])
def test_what_the_api_changed_outlives_a_deployment_that_is_put_back_and_is_told(
    folder: Folder, caplog: pytest.LogCaptureFixture, remembered: bool
) -> None:
    folder.archive.state.shared = False
    folder.write("policies/a.yaml", document("a"))
    folder.write("policies/b.yaml", document("b"))
    one = folder.started()
    before = {name: folder.read(name) for name in ("policies/a.yaml", "policies/b.yaml")}
    memory = folder.root.with_name("memory")
    shutil.copytree(folder.root / ".governance", memory)
    one.update("default", "a", {"name": "One"}, author=ADMIN)
    one.delete("default", "b", author=ADMIN)
    shutil.rmtree(folder.root / ".governance")
    if remembered:
        shutil.copytree(memory, folder.root / ".governance")
    for name, text in before.items():
        folder.write(name, text)
    caplog.clear()
    again = folder.started()
    policies = again.snapshot.of("default")
    assert policies["a"].policy.name == "One" and "b" not in policies
    (told,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert "what revision 3 says took the place of files" in told
    assert ": `policies/a.yaml`, `policies/b.yaml`; if you mean" in told
    # It stays known, also to the next process, until the file is changed.
    for process in (again, folder.started()):
        found = process.sync.current.replaced()
        assert [each.path for each in found] == ["policies/a.yaml", "policies/b.yaml"]
    again.update("default", "a", {"name": "Two"}, author=ADMIN)
    assert [each.path for each in again.sync.current.replaced()] == ["policies/b.yaml"]


def test_a_copy_of_the_database_that_lacks_the_last_revisions_takes_nothing_out_of_force(
    folder: Folder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It takes over while the nodes run: what was acknowledged is in their folders still."""
    other, one, two = nodes(tmp_path, folder)
    older = folder.archive.state.copy()
    one.create(BODY | {"policyId": "b"}, author=ADMIN)
    one.update("default", "a", {"name": "Newer"}, author=ADMIN)
    for each in (one, two):
        each.follow()
        each.apply_files(())
    assert other.read("policies/a.yaml") == folder.read("policies/a.yaml")
    folder.archive.state = older
    caplog.clear()
    for each in (one, two, one):
        each.follow()
        each.apply_files(())
        each.follow()
        assert each.problems == ()
        policies = each.snapshot.of("default")
        assert policies["a"].policy.name == "Newer" and policies["b"].policy.name == BODY["name"]
    assert folder.disk_has("policies/b.yaml") and other.disk_has("policies/b.yaml")
    told = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert len(told) == 2 and "does not know revision 3 of the policies" in told[0]


def test_nor_does_it_where_the_api_had_made_the_policy(folder: Folder, tmp_path: Path) -> None:
    """Its file says which version it is, of which the archive knows nothing any more."""
    other, one, two = nodes(tmp_path, folder)
    one.update("default", "a", {"name": "Through the API"}, author=ADMIN)
    older = folder.archive.state.copy()
    for name in ("Newer", "Newest"):
        one.update("default", "a", {"name": name}, author=ADMIN)
    one.create(BODY | {"policyId": "b"}, author=ADMIN)
    for each in (one, two):
        each.follow()
        each.apply_files()
    folder.archive.state = older
    for each in (one, two, one):
        each.follow()
        each.apply_files()
        assert each.problems == ()
        policies = each.snapshot.of("default")
        assert policies["a"].policy.name == "Newest" and "b" in policies
    assert other.read("policies/a.yaml") == folder.read("policies/a.yaml")
    # What the nodes disagree about later has nothing to do with it.
    one.update("default", "a", {"name": "One"}, author=ADMIN)
    other.write("policies/a.yaml", document("a", name="Mine"))
    two.follow()
    two.apply_files()
    (told,) = messages(two)
    assert "was changed here" in told and "the database is older" not in told


def test_a_start_on_an_older_copy_takes_what_the_api_wrote_since(folder: Folder) -> None:
    folder.archive.state.shared = False
    folder.write("policies/a.yaml", document("a"))
    one = folder.started()
    one.update("default", "a", {"action": "warn"}, author=ADMIN)
    older = folder.archive.state.copy()
    one.update("default", "a", {"action": "block"}, author=ADMIN)
    one.create(BODY | {"policyId": "b"}, author=ADMIN)
    folder.archive.state = older
    policies = folder.started().snapshot.of("default")
    assert policies["a"].policy.action == "block" and "b" in policies


def test_the_same_holds_where_the_first_to_see_it_is_a_change_through_the_api(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    one = folder.started()
    older = folder.archive.state.copy()
    one.create(BODY | {"policyId": "b"}, author=ADMIN)
    one.create(BODY | {"policyId": "c"}, author=ADMIN)
    folder.archive.state = older
    one.update("default", "a", {"name": "Newer"}, author=ADMIN)
    one.apply_files(())
    assert set(one.snapshot.of("default")) == {"a", "b", "c"} and one.problems == ()


def test_what_a_worker_has_seen_alone_is_no_matter_where_another_one_has_made_the_folder_level(
    folder: Folder, tmp_path: Path
) -> None:
    """What it writes then is noted, so that it undoes nothing that comes after a second one took over."""
    other, one, two = nodes(tmp_path, folder)
    beside = other.started()
    older = folder.archive.state.copy()
    one.create(BODY | {"policyId": "b"}, author=ADMIN)
    two.follow()
    folder.archive.state = older
    beside.create(BODY | {"policyId": "c"}, author=ADMIN)
    older = folder.archive.state.copy()
    two.update("default", "a", {"name": "Lost"}, author=ADMIN)
    folder.archive.state = older
    one.update("default", "a", {"name": "Since"}, author=ADMIN)
    for each in (beside, two, one):
        each.follow()
        each.apply_files()
    assert {each.snapshot.of("default")["a"].policy.name for each in (one, two, beside)} == {"Since"}
    assert "and version 2 was written there since" in messages(beside)[0]


def test_the_database_of_another_installation_under_a_running_process_changes_no_file(
    folder: Folder, tmp_path: Path
) -> None:
    folder.write("policies/a.yaml", document("a"))
    one = folder.started()
    one.follow()
    other = Folder(tmp_path / "other")
    other.times = folder.times
    other.write("policies/b.yaml", document("b"))
    other.started().update("default", "b", {"name": "Two"}, author=ADMIN)
    folder.archive.state = other.archive.state
    for operation in (one.follow, one.apply_files, lambda: one.create(BODY, author=ADMIN)):
        with pytest.raises(StorageError, match="is not the one that this process has worked with"):
            operation()
    assert set(one.snapshot.of("default")) == {"a"} and folder.disk_has("policies/a.yaml")
    assert not folder.disk_has("policies/b.yaml") and len(other.archive.state.revisions) == 2


def test_a_start_on_an_older_copy_of_the_database_says_so(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    folder.write("policies/a.yaml", document("a"))
    one = folder.started()
    older = folder.archive.state.copy()
    one.create(BODY | {"policyId": "b"}, author=ADMIN)
    assert not caplog.records
    folder.archive.state = older
    assert set(folder.started().snapshot.of("default")) == {"a", "b"}
    assert "does not know revision 2 of the policies" in caplog.text and "it is at revision 1" in caplog.text
