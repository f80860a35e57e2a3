"""Two installations in one folder find out about each other, and one that follows another says so once."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.repository.repository import Repository
from engine.worktree.disk import Disk
from engine.worktree.occupancy import Occupancy
from tests.harness.policy_archive import MemoryArchive
from tests.harness.policy_folder import Folder, document

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
