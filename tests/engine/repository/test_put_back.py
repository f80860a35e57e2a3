"""An older copy of the archive takes over, and goes on before all folders have seen that."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from engine.repository.current import Current
from engine.repository.repository import Repository
from tests.harness.policy_folder import ADMIN, BODY, Folder, document, messages, nodes

TOLD = "the database does not know what this file followed, as after a backup was put back, and "


def level(*repositories: Repository) -> None:
    for each in repositories * 2:
        each.follow()
        each.apply_files()


def name(repository: Repository, policy_id: str = "a") -> str:
    return repository.snapshot.of("default")[policy_id].policy.name


@pytest.mark.parametrize("lost", [1, 3])
@pytest.mark.parametrize("running", [True, False])
def test_what_the_api_writes_after_that_is_not_undone_by_a_folder_of_before(
    lost: int, running: bool, folder: Folder, tmp_path: Path
) -> None:
    """The versions are no help: both have gone on from the same one."""
    other, one, two = nodes(tmp_path, folder)
    older = folder.archive.state.copy()
    for number in range(lost):
        two.update("default", "a", {"name": f"Lost {number}"}, author=ADMIN)
    two.create(BODY | {"policyId": "b", "name": "Lost"}, author=ADMIN)
    level(two)
    folder.archive.state = older
    one = one if running else folder.started()
    one.update("default", "a", {"name": "Since"}, author=ADMIN)
    one.create(BODY | {"policyId": "b", "name": "Since"}, author=ADMIN)
    two = two if running else other.open()
    if not running:
        two.start()
    level(two, one)
    assert {name(each, which) for each in (one, two) for which in "ab"} == {"Since"}
    assert one.problems == () and len(two.problems) == 2
    assert all(TOLD + "version " in each for each in messages(two))
    # What is said of the way out is so, one file after the other.
    for which, left in (("a", 1), ("b", 0)):
        (other.root / f"policies/{which}.yaml").unlink()
        level(two)
        assert len(two.problems) == left and "Since" in other.read(f"policies/{which}.yaml")
        mine = other.read(f"policies/{which}.yaml").replace("Since", "Mine")
        other.write(f"policies/{which}.yaml", mine)
        level(two)
        assert len(two.problems) == left
    level(one)
    assert name(one) == name(two) == "Mine" and name(two, "b") == "Mine"


def test_nor_is_what_it_deletes(folder: Folder, tmp_path: Path) -> None:
    folder.write("policies/z.yaml", document("z"))
    other, one, two = nodes(tmp_path, folder)
    older = folder.archive.state.copy()
    two.update("default", "a", {"name": "Lost"}, author=ADMIN)
    level(two)
    folder.archive.state = older
    one.delete("default", "a", author=ADMIN)
    level(two, one)
    assert "a" not in one.snapshot.of("default") and TOLD + "it was deleted there" in messages(two)[0]
    (other.root / "policies/a.yaml").unlink()
    level(two)
    assert two.problems == ()


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("running", [True, False])
def test_of_what_two_folders_have_kept_the_later_version_is_in_force(
    first: int, running: bool, folder: Folder, tmp_path: Path
) -> None:
    """One of them was down when the other one wrote the last versions."""
    other, one, two = nodes(tmp_path, folder)
    older = folder.archive.state.copy()
    one.update("default", "a", {"name": "Earlier"}, author=ADMIN)
    level(one, two)
    for later in ("Later", "Latest"):
        one.update("default", "a", {"name": later}, author=ADMIN)
    folder.archive.state = older
    if not running:
        one, two = folder.open(), other.open()
        for each in (one, two) if first == 0 else (two, one):
            each.start()
    level(*((one, two) if first == 0 else (two, one)))
    assert name(one) == name(two) == "Latest"
    assert [len(each.problems) for each in (one, two)] == ([0, 1] if first == 0 else [0, 0])


@pytest.mark.parametrize("shared", [False, True])
def test_a_clone_of_the_folder_has_no_marker(shared: bool, folder: Folder) -> None:
    """Where others may have gone on with the archive, it is told what is out of force."""
    folder.archive.state.shared = shared
    folder.write("policies/a.yaml", document("a"))
    one = folder.started()
    one.update("default", "a", {"action": "warn"}, author=ADMIN)
    older = folder.archive.state.copy()
    one.update("default", "a", {"action": "block"}, author=ADMIN)
    one.create(BODY | {"policyId": "b"}, author=ADMIN)
    shutil.rmtree(folder.root / ".governance")
    folder.archive.state = older
    one = folder.open()
    one.start()
    policies = one.snapshot.of("default")
    if shared:
        (told,) = messages(one)
        assert "the database is older than this folder" in told and "what they block is allowed" in told
    else:
        assert one.problems == () and policies["a"].policy.action == "block" and "b" in policies


def within_a_look(folder: Folder, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """What happens once the next look has seen the archive, and has not gone on yet."""
    view = folder.archive.view

    def viewed(work: Any) -> Any:
        found = view(work)
        monkeypatch.setattr(folder.archive, "view", view)
        happens()
        return found

    monkeypatch.setattr(folder.archive, "view", viewed)


@pytest.mark.parametrize("hints", [None, ["policies/a.yaml"]])
def test_a_look_that_began_before_that_does_not_take_newer_files_for_old_ones(
    hints: list[str] | None, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write("policies/a.yaml", document("a"))
    one = folder.started()
    older = folder.archive.state.copy()
    one.update("default", "a", {"name": "Newer"}, author=ADMIN)
    one.apply_files()

    def happens() -> None:
        folder.archive.state = older
        one.follow()

    within_a_look(folder, monkeypatch, happens)
    one.apply_files(hints)
    level(one)
    assert name(one) == "Newer" and "Newer" in folder.read("policies/a.yaml")


def test_an_edit_after_that_counts_where_the_numbers_of_revisions_came_again(
    folder: Folder, tmp_path: Path
) -> None:
    other, one, two = nodes(tmp_path, folder)
    older = folder.archive.state.copy()
    for lost in ("Lost", "Lost as well"):
        one.update("default", "a", {"name": lost}, author=ADMIN)
    level(one, two)
    folder.archive.state = older
    one.update("default", "a", {"name": "Since"}, author=ADMIN)
    level(two)
    assert two.problems == () and two.snapshot.revision == 3 and name(two) == "Since"
    other.write("policies/a.yaml", document("a", name="Edited"))
    assert name(other.started()) == "Edited"
    (other.root / "policies/a.yaml").unlink()
    assert "a" not in other.started().snapshot.of("default")


@pytest.mark.parametrize("running", [True, False])
def test_nor_is_what_somebody_edits_after_that(running: bool, folder: Folder, tmp_path: Path) -> None:
    """That names the version which it was made of, and what was lost names a later one."""
    other, one, two = nodes(tmp_path, folder)
    older = folder.archive.state.copy()
    for lost in ("Lost", "Lost as well"):
        two.update("default", "a", {"name": lost}, author=ADMIN)
    level(two)
    folder.archive.state = older
    folder.write("policies/a.yaml", document("a", name="Since", extra="version: 1\n"))
    level(one)
    two = two if running else other.open()
    if not running:
        two.start()
    level(two, one)
    assert name(one) == name(two) == "Since" and TOLD + "version 2 " in messages(two)[0]


def test_nor_are_two_edits_of_what_was_lost(folder: Folder, tmp_path: Path) -> None:
    other, one, two = nodes(tmp_path, folder)
    older = folder.archive.state.copy()
    one.update("default", "a", {"name": "Earlier"}, author=ADMIN)
    level(one)
    two.update("default", "a", {"name": "Later"}, author=ADMIN)
    level(two)
    folder.archive.state = older
    one = folder.started()
    folder.write("policies/a.yaml", folder.read("policies/a.yaml").replace("Earlier", "Since"))
    level(one)
    two = other.open()
    two.start()
    assert name(one) == name(two) == "Since" and TOLD + "version 3 " in messages(two)[0]


@pytest.mark.parametrize("running", [True, False])
def test_nor_by_one_that_is_started_again_and_never_was_level_with_what_was_lost(
    running: bool, folder: Folder, tmp_path: Path
) -> None:
    """It had not seen yet what another node wrote, so that it noted no revision of that."""
    other, one, two = nodes(tmp_path, folder)
    older = folder.archive.state.copy()
    one.create(BODY | {"policyId": "b", "name": "Other"}, author=ADMIN)
    two.update("default", "a", {"name": "Lost"}, author=ADMIN)
    folder.archive.state = older
    one.update("default", "a", {"name": "Since"}, author=ADMIN)
    if running:
        level(two)
    for _ in range(2):
        two = other.open()
        two.start()
        level(two, one)
        assert name(one) == name(two) == "Since" and TOLD + "version 2 " in messages(two)[0]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("running", [True, False])
def test_what_a_file_said_before_counts_where_it_was_put_back_in_a_commit_that_is_lost(
    running: bool, shared: bool, folder: Folder
) -> None:
    """As by `git revert`: who made a policy laxer, and took that back."""
    folder.archive.state.shared = shared
    folder.write("policies/a.yaml", document("a"))
    one = folder.started()
    folder.write("policies/a.yaml", document("a").replace("action: block", "action: warn"))
    level(one)
    older = folder.archive.state.copy()
    folder.write("policies/a.yaml", document("a"))
    level(one)
    folder.archive.state = older
    one = one if running else folder.started()
    level(one)
    assert one.problems == () and one.snapshot.of("default")["a"].policy.action == "block"


def test_a_file_that_was_merely_old_then_is_no_such_one(folder: Folder, tmp_path: Path) -> None:
    """It had not been brought up yet to what the archive still knows."""
    _, one, two = nodes(tmp_path, folder)
    one.update("default", "a", {"name": "Known"}, author=ADMIN)
    older = folder.archive.state.copy()
    one.create(BODY | {"policyId": "b"}, author=ADMIN)
    two.follow()
    folder.archive.state = older
    level(two, one)
    assert name(one) == name(two) == "Known"


@pytest.mark.parametrize("since", ["api", "file"])
def test_nor_by_one_that_was_killed_before_it_noted_what_it_had_written(
    since: str, folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, one, two = nodes(tmp_path, folder)
    older = folder.archive.state.copy()
    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(Current, "_mark", Mock(side_effect=KeyboardInterrupt))
        two.update("default", "a", {"name": "Lost"}, author=ADMIN)
    folder.archive.state = older
    if since == "api":
        one.update("default", "a", {"name": "Since"}, author=ADMIN)
    else:
        folder.write("policies/a.yaml", document("a", name="Since", extra="version: 1\n"))
    level(one)
    two = other.open()
    two.start()
    level(two, one)
    assert name(one) == name(two) == "Since"


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("since", [True, False])
def test_what_it_had_written_counts_where_what_that_was_made_of_is_lost_as_well(
    since: bool, first: int, folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless others have written since: nobody was told that it is in force."""
    _, one, two = nodes(tmp_path, folder)
    older = folder.archive.state.copy()
    (one, two)[first].update("default", "a", {"name": "Lost"}, author=ADMIN)
    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(Current, "_mark", Mock(side_effect=KeyboardInterrupt))
        one.update("default", "a", {"name": "Lost as well"}, author=ADMIN)
    folder.archive.state = older
    level(two)
    if since:
        for written in ("Since", "Since as well"):
            two.update("default", "a", {"name": written}, author=ADMIN)
    one = folder.open()
    one.start()
    level(one, two)
    assert name(one) == name(two) == ("Since as well" if since else "Lost as well")


def test_so_it_does_where_another_process_of_that_folder_brings_it_in(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, one, _ = nodes(tmp_path, folder)
    one.update("default", "a", {"name": "Known"}, author=ADMIN)
    beside = folder.started()
    older = folder.archive.state.copy()
    beside.update("default", "a", {"name": "Lost"}, author=ADMIN)
    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(Current, "_mark", Mock(side_effect=KeyboardInterrupt))
        one.update("default", "a", {"name": "Lost as well"}, author=ADMIN)
    folder.archive.state = older
    level(beside)
    assert name(beside) == "Lost as well" and beside.problems == ()


@pytest.mark.parametrize("late", [True, False])
def test_nor_by_another_process_of_that_folder_which_had_not_seen_what_was_lost(
    late: bool, folder: Folder, tmp_path: Path
) -> None:
    """It knows the newest revision of the older copy, so that to it nothing is lost."""
    other, one, two = nodes(tmp_path, folder)
    beside = other.started()
    older = folder.archive.state.copy()
    if late:
        one.create(BODY | {"policyId": "b"}, author=ADMIN)  # two is not level with it when it writes
    two.update("default", "a", {"name": "Lost"}, author=ADMIN)
    folder.archive.state = older
    one.update("default", "a", {"name": "Since"}, author=ADMIN)
    level(beside, one)
    assert name(one) == name(beside) == "Since" and TOLD + "version 2 " in messages(beside)[0]
    (other.root / "policies/a.yaml").unlink()
    level(beside, two, one)
    assert beside.problems == two.problems == () and "Since" in other.read("policies/a.yaml")


def test_a_look_that_began_before_a_write_does_not_put_it_out_of_force(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write("policies/a.yaml", document("a"))
    one = folder.started()
    for look in (one.apply_files, one.follow):
        within_a_look(
            folder, monkeypatch, lambda: one.update("default", "a", {"name": "Newer"}, author=ADMIN)
        )
        look()
        assert name(one) == "Newer"
        one.update("default", "a", {"name": "Before"}, author=ADMIN)


@pytest.mark.parametrize("hints", [None, ["policies/a.yaml"]])
def test_nor_does_one_that_began_before_others_went_on_in_the_older_copy(
    hints: list[str] | None, folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, one, two = nodes(tmp_path, folder)
    older = folder.archive.state.copy()
    one.update("default", "a", {"name": "Newer"}, author=ADMIN)
    one.apply_files()

    def happens() -> None:
        folder.archive.state = older
        for number in range(2):
            two.create(BODY | {"policyId": f"b{number}"}, author=ADMIN)
        one.follow()

    within_a_look(folder, monkeypatch, happens)
    one.apply_files(hints)
    level(one)
    assert name(one) == "Newer" and "Newer" in folder.read("policies/a.yaml")


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("since", ["api", "file"])
def test_nor_by_a_file_that_had_moved(since: str, running: bool, folder: Folder, tmp_path: Path) -> None:
    """Where it lies now the older copy knows no file, and its version came again."""
    other, one, two = nodes(tmp_path, folder)
    older = folder.archive.state.copy()
    two.update("default", "a", {"name": "Lost"}, author=ADMIN)
    other.write("policies/sub/a.yaml", other.read("policies/a.yaml"))
    (other.root / "policies/a.yaml").unlink()
    level(two)
    folder.archive.state = older
    if since == "api":
        one.update("default", "a", {"name": "Since"}, author=ADMIN)
    else:
        folder.write("policies/a.yaml", document("a", name="Since"))
    level(one)
    if not running:
        two = other.open()
        two.start()
    level(two, one)
    assert name(one) == name(two) == "Since" and "keep one of them" in messages(two)[0]
    (other.root / "policies/sub/a.yaml").unlink()
    level(two)
    assert two.problems == () and "Since" in other.read("policies/a.yaml")
