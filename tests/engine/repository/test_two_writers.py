"""Files and API write to one history at the same time."""

from __future__ import annotations

import shutil
import threading
from typing import Any

import pytest

from engine.errors import (
    DocumentError,
    PolicyFileInvalid,
    PolicyNotFound,
    PreconditionFailed,
    StorageError,
)
from engine.repository.plan import Planner
from engine.repository.sync import Sync
from engine.worktree import markers
from tests.harness.policy_folder import ADMIN, BODY, Folder, document, told


def test_an_edit_on_disk_is_loaded_first_as_its_own_version(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    folder.write("policies/a.yaml", document("a", value="pay"))
    written = repository.update("default", "a", {"name": "New"}, author=ADMIN)
    assert [(change.source, change.author) for change in written.changes] == [
        ("file", "file"),
        ("api", ADMIN),
    ]
    assert "value: pay" in folder.read("policies/a.yaml") and "name: New" in folder.read("policies/a.yaml")
    assert [each[:3] for each in told(repository, "a")] == [
        (3, "api", ADMIN),
        (2, "file", "file"),
        (1, "file", "file"),
    ]


def test_a_refused_write_still_keeps_the_edit_that_lay_on_disk(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    etag = repository.policy("default", "a").etag
    folder.write("policies/a.yaml", document("a", value="pay"))
    with pytest.raises(PreconditionFailed):
        repository.update("default", "a", {"name": "New"}, author=ADMIN, if_match=etag)
    assert repository.policy("default", "a").policy.version == 2
    (folder.root / "policies/a.yaml").unlink()
    with pytest.raises(PolicyNotFound):
        repository.update("default", "a", {"name": "New"}, author=ADMIN)
    assert repository.snapshot.count == 0


def test_a_write_to_a_policy_whose_file_has_just_moved(folder: Folder) -> None:
    """It must not be out of force for a moment."""
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    (folder.root / "policies/team").mkdir()
    (folder.root / "policies/a.yaml").rename(folder.root / "policies/team/a.yaml")
    stored = repository.update("default", "a", {"name": "New"}, author=ADMIN).stored
    assert stored is not None and (stored.file.path, stored.policy.version) == ("policies/team/a.yaml", 2)
    folder.write("policies/broken.yaml", "half a fi")
    (folder.root / "policies/team/a.yaml").unlink()
    with pytest.raises(PolicyFileInvalid) as caught:
        repository.update("default", "a", {"name": "Newer"}, author=ADMIN)
    assert "is gone, but the folder has problems" in str(caught.value)
    assert repository.policy("default", "a").policy.name == "New"


def test_a_file_that_is_broken_on_disk_is_never_overwritten(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    folder.write("policies/b.yaml", document("b"))
    repository = folder.started()
    folder.write("policies/a.yaml", "half a fi")
    for write in (
        lambda: repository.update("default", "a", {"name": "New"}, author=ADMIN),
        lambda: repository.delete("default", "a", author=ADMIN),
        lambda: repository.rollback("default", "a", 1, author=ADMIN),
    ):
        with pytest.raises(PolicyFileInvalid) as caught:
            write()
        assert caught.value.problems[0].line == 1
    assert folder.read("policies/a.yaml") == "half a fi"
    repository.update("default", "b", {"name": "New"}, author=ADMIN)
    assert repository.policy("default", "b").policy.version == 2
    assert repository.policy("default", "a").policy.name == "Hold"


def test_a_write_does_not_make_a_vanished_folder_again(folder: Folder) -> None:
    """Else all other policies would look deleted."""
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    shutil.rmtree(folder.root)
    with pytest.raises(StorageError):
        repository.create(BODY, author=ADMIN)
    with pytest.raises(StorageError):
        repository.delete("default", "a", author=ADMIN)
    repository.apply_files()
    assert not folder.root.exists() and repository.snapshot.count == 1


def test_a_write_keeps_the_mode_of_the_file(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    (folder.root / "policies/a.yaml").chmod(0o600)
    folder.started().update("default", "a", {"name": "New"}, author=ADMIN)
    assert (folder.root / "policies/a.yaml").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("organisation_id", ["..", "a/b", "", "A", "x\n"])
def test_organisations_that_would_leave_the_folder(folder: Folder, organisation_id: str) -> None:
    repository = folder.started()
    with pytest.raises(DocumentError):
        repository.create(BODY, author=ADMIN, organisation_id=organisation_id)
    assert repository.apply_files().changes == ()


def test_the_api_does_not_replace_links(folder: Folder) -> None:
    folder.write("policies/_shared/a.txt", document("a"))
    (folder.root / "policies/a.yaml").symlink_to("_shared/a.txt")
    repository = folder.started()
    with pytest.raises(PolicyFileInvalid, match=r"policies/a\.yaml: this is a link"):
        repository.update("default", "a", {"name": "New"}, author=ADMIN)
    assert (folder.root / "policies/a.yaml").is_symlink()
    assert repository.apply_files().problems == () and repository.snapshot.count == 1


def test_a_conflict_that_stays_keeps_no_writer(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    other = Folder(folder.root.with_name("other"), folder.archive)
    other.write("policies/a.yaml", document("a"))
    other.started().update("default", "a", {"name": "Two"}, author=ADMIN)
    folder.write("policies/a.yaml", document("a", name="Mine", extra="version: 1\n"))
    written: list[object] = []
    monkeypatch.setattr(folder.archive, "transact", written.append)
    for _ in range(3):
        assert [problem.code for problem in repository.apply_files().problems] == ["conflict"]
    assert written == []


@pytest.mark.parametrize("how", ["look", "write"])
def test_what_two_writes_overtake_finds_no_conflict(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """It sees the archive as before the first and the file as that one left it, and then the second comes."""
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    written, head_read = threading.Event(), threading.Event()
    first = threading.Thread(target=lambda: write("One"))
    owner, name = (Planner, "compare") if how == "look" else (Sync, "load_edit")
    step, is_failed = getattr(owner, name), markers.is_failed

    def write(name: str) -> None:
        repository.update("default", "a", {"name": name}, author=ADMIN)

    def before_commit() -> None:
        folder.archive.before_commit = lambda: None
        written.set()
        assert head_read.wait(30)

    def late(*words: Any) -> Any:
        monkeypatch.undo()
        head_read.set()
        first.join(30)
        if how == "look":
            write("Two")
        else:
            monkeypatch.setattr(markers, "is_failed", overtaken)
        return step(*words)

    def overtaken(*words: Any) -> bool:
        """Asked when the file has been read."""
        monkeypatch.undo()
        write("Two")
        return is_failed(*words)

    folder.archive.before_commit = before_commit
    first.start()
    assert written.wait(30)
    monkeypatch.setattr(owner, name, late)
    if how == "look":
        assert repository.apply_files().problems == ()
    else:
        write("Three")
    assert repository.apply_files().problems == ()
    assert len(told(repository, "a")) == (3 if how == "look" else 4)
