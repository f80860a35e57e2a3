"""Two installations in one folder find out about each other, and one that follows another says so once."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import PolicyFileInvalid, StorageError
from engine.repository.repository import Repository
from engine.worktree import markers
from engine.worktree.disk import Disk
from engine.worktree.markers import Occupant
from engine.worktree.occupancy import Occupancy
from tests.harness.policy_archive import MemoryArchive
from tests.harness.policy_folder import ADMIN, Folder, document

WHOLE = (0, 1)


def shared(repository: Repository) -> list[str]:
    return [str(problem) for problem in repository.warnings if problem.code == "shared_folder"]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path / "policies.d")
    folder.write("policies/a.yaml", document("a"))
    return folder


def test_two_installations_in_one_folder_are_told_of_each_other(folder: Folder) -> None:
    one = folder.started(installation="one")
    folder.archive = MemoryArchive()
    other = folder.started(installation="other")
    assert shared(one) == shared(other) == []  # the other may well be gone
    one.differing(WHOLE)
    assert "another installation of the service, `other` on `" in shared(one)[0]
    other.differing(WHOLE)
    assert "`one` on `" in shared(other)[0] and "GOVERNANCE_POLICIES_DIR" in shared(other)[0]
    # While both run, both go on finding each other.
    one.differing(WHOLE)
    assert shared(one)
    # Once the other is gone, nothing is told any more.
    one.differing(WHOLE)
    assert shared(one) == []


def test_processes_of_one_installation_and_its_successor_are_alone(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    one, sibling = folder.started(installation="one"), folder.started(installation="one")
    for process in (one, sibling, one, sibling):
        process.differing(WHOLE)
        assert shared(process) == []
    assert "another installation" not in caplog.text
    folder.archive = MemoryArchive()
    successor = folder.started(installation="two")
    for _ in range(3):
        successor.differing(WHOLE)
        assert shared(successor) == []
    assert caplog.text.count("was that of another installation, `one` on `") == 1
    assert "is not mounted" in caplog.text


def test_a_note_that_is_none_or_cannot_be_written_harms_nobody(tmp_path: Path) -> None:
    occupancy = Occupancy(Disk(tmp_path / "nowhere"), "one")
    occupancy.look()
    assert occupancy.problems == ()
    (tmp_path / ".governance").mkdir()
    (tmp_path / ".governance/installation.json").write_text("[]")
    occupancy = Occupancy(Disk(tmp_path), "one")
    for _ in range(2):
        occupancy.look()
        assert occupancy.problems == ()


def test_what_another_installation_said_loosens_nothing_here(folder: Folder) -> None:
    """A node of another installation, started with the address of this database."""
    folder.started(installation="here")
    here, folder.archive = folder.archive, MemoryArchive()
    (folder.root / ".governance/installation.json").unlink()
    folder.started(installation="elsewhere")
    off = document("a", extra="enabled: false\n")
    folder.write("policies/a.yaml", off)
    folder.write("policies/b.yaml", document("b"))
    folder.started(installation="elsewhere")

    folder.archive = here
    node = folder.open(installation="here")
    (problem,) = node.start().problems
    assert "that of another installation, `elsewhere` on `" in problem.message
    assert "in `policies/a.yaml`, `policies/b.yaml` is not what is in force here" in problem.message
    assert "remove `.governance/installation.json`" in problem.message
    assert node.policy("default", "a").policy.enabled and node.snapshot.revision == 1
    for _ in range(2):
        node.differing(WHOLE)
        assert node.apply_files().problems == (problem,)
    with pytest.raises(PolicyFileInvalid, match="that of another installation"):
        node.update("default", "a", {"description": "d"}, author=ADMIN)

    # The files go: what is in force is written anew.
    (folder.root / "policies/a.yaml").unlink()
    (folder.root / "policies/b.yaml").unlink()
    assert node.apply_files().problems == ()
    assert folder.read("policies/a.yaml") == document("a")
    node.differing(WHOLE)
    folder.write("policies/a.yaml", off)
    assert node.apply_files().problems == () and node.snapshot.revision == 2


def test_files_of_another_installation_count_once_its_note_is_removed(folder: Folder) -> None:
    folder.started(installation="here")
    here, folder.archive = folder.archive, MemoryArchive()
    folder.started(installation="elsewhere")
    folder.write("policies/a.yaml", document("a", value="transfer"))
    folder.archive = here
    node = folder.open(installation="here")
    assert node.start().problems
    (folder.root / ".governance/installation.json").unlink()
    assert node.apply_files().problems == () and node.snapshot.revision == 2


def test_what_another_installation_writes_counts_where_it_is_only_read(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.started(installation="elsewhere")
    folder.archive = MemoryArchive()
    monkeypatch.setattr(Disk, "is_read_only", lambda disk: True)
    monkeypatch.setattr(markers, "write_occupant", refused)
    here = folder.started(installation="here")
    folder.write("policies/b.yaml", document("b"))
    assert here.apply_files().problems == () and here.snapshot.revision == 2
    folder.write("policies/b.yaml", document("b", value="transfer"))
    assert folder.started(installation="here").snapshot.revision == 3


def refused(disk: Disk, occupant: Occupant) -> None:
    raise StorageError("Read-only file system")
