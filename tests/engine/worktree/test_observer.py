"""What stands at a policy's path: a hint and a look at the whole folder say the same, and neither forgets."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.errors import PolicyFileInvalid, Problem
from engine.worktree.disk import Disk
from tests.harness.policy_folder import ADMIN, BODY, Folder, document, messages

A = "policies/a.yaml"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "policies.d")
    made.write(A, document("a"))
    made.write("policies/b.yaml", document("b"))
    return made


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def outside(path: Path) -> None:
    secret = path.parents[2] / "outside.yaml"
    secret.write_text(document("a", value="other"), encoding="utf-8")
    path.symlink_to(secret)


def down_a_file(path: Path) -> None:
    path.symlink_to("b.yaml/c")


REPLACEMENTS: dict[Callable[[Path], Any], str] = {
    dangling: "this is a link to `nowhere`, where nothing is; put that back, or remove the link",
    loop: "this cannot be read: too many levels of symbolic links",
    down_a_file: "this cannot be read: not a directory",
    outside: "this link leads out of the policies folder; put the file itself here",
    Path.mkdir: "this is a folder, but named like a document; rename it",
    os.mkfifo: "this is not a regular file; remove it",
}


@pytest.mark.parametrize("hinted", [True, False])
@pytest.mark.parametrize("replace", REPLACEMENTS, ids=lambda each: each.__name__)
def test_a_policy_whose_file_became_something_else_stays(
    folder: Folder, replace: Callable[[Path], Any], hinted: bool
) -> None:
    repository = folder.started()
    (folder.root / A).unlink()
    replace(folder.root / A)
    repository.apply_files([A] if hinted else None)
    expected = [f"{A}: {REPLACEMENTS[replace]}"]
    assert messages(repository) == expected
    for hints in ([], ["policies/b.yaml"], [A], None, []):  # looking elsewhere makes nothing good
        repository.apply_files(hints)
        assert messages(repository) == expected
        assert repository.snapshot.of("default").keys() == {"a", "b"} and repository.snapshot.revision == 1
    with pytest.raises(PolicyFileInvalid):
        repository.update("default", "a", {"name": "New"}, author=ADMIN)
    again = folder.open()
    assert [str(problem) for problem in again.start().problems] == expected
    assert again.snapshot.count == 2


@pytest.mark.parametrize("replace", REPLACEMENTS, ids=lambda each: each.__name__)
def test_a_look_at_that_path_clears_its_problem(folder: Folder, replace: Callable[[Path], Any]) -> None:
    repository = folder.started()
    path = folder.root / A
    path.unlink()
    replace(path)
    repository.apply_files()
    assert messages(repository)
    path.rmdir() if path.is_dir() else path.unlink()
    folder.write(A, document("a", name="Mended"))
    repository.apply_files([A])
    assert messages(repository) == []
    assert repository.policy("default", "a").policy.name == "Mended"
    (folder.root / A).unlink()
    repository.apply_files([A])
    assert repository.snapshot.of("default").keys() == {"b"}, "what is really gone is gone"


def test_other_edits_wait_while_a_problem_stands(folder: Folder) -> None:
    repository = folder.started()
    dangling(folder.root / "policies/c.yaml")
    repository.apply_files()
    folder.write("policies/b.yaml", document("b", name="New"))
    assert repository.apply_files(["policies/b.yaml"]).changes == ()
    (folder.root / "policies/c.yaml").unlink()
    assert len(repository.apply_files(["policies/c.yaml"]).changes) == 1


@pytest.mark.parametrize("target", ["../moved", "nowhere"])
@pytest.mark.parametrize("hinted", [True, False])
def test_a_folder_that_became_a_link_deletes_nothing(folder: Folder, hinted: bool, target: str) -> None:
    folder.write("policies/team/c.yaml", document("c"))
    repository = folder.started()
    shutil.move(folder.root / "policies/team", folder.root.parent / "moved")
    (folder.root / "policies/team").symlink_to(target)
    repository.apply_files(["policies/team/c.yaml"] if hinted else None)
    assert messages(repository) == [
        "policies/team: linked folders are not followed; put the files themselves here"
    ]
    assert repository.snapshot.count == 3
    again = folder.open()
    assert again.start().problems and again.snapshot.count == 3


def test_a_folder_that_became_a_file_has_no_policies(folder: Folder) -> None:
    folder.write("policies/team/c.yaml", document("c"))
    repository = folder.started()
    shutil.rmtree(folder.root / "policies/team")
    (folder.root / "policies/team").write_text("a file")
    repository.apply_files(["policies/team/c.yaml"])
    assert messages(repository) == [] and repository.snapshot.count == 2


def test_a_folder_that_may_not_be_entered_deletes_nothing(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write("policies/team/c.yaml", document("c"))
    repository = folder.started()
    statted, scandir = Path.stat, os.scandir

    def refuse(path: Path, **options: Any) -> Any:
        if "/team/" in f"{path}":
            raise PermissionError(13, "Permission denied")
        return statted(path, **options)

    def refuse_to_list(path: Any) -> Any:
        if f"{path}".endswith("/team"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(Path, "stat", refuse)
    monkeypatch.setattr(Path, "lstat", lambda path: refuse(path, follow_symlinks=False))
    repository.apply_files(["policies/team/c.yaml"])
    assert messages(repository) == ["policies/team/c.yaml: this cannot be read: permission denied"]
    monkeypatch.setattr(os, "scandir", refuse_to_list)
    repository.apply_files()
    repository.apply_files(["policies/b.yaml"])
    assert messages(repository) == [
        "policies/team: the folder `policies/team` cannot be read: permission denied"
    ]
    assert repository.snapshot.count == 3
    monkeypatch.undo()
    assert repository.apply_files().problems == ()


def test_a_file_that_turns_into_a_link_while_we_look_is_not_deleted(folder: Folder) -> None:
    class Racing(Disk):
        armed = False

        def look(self, relative: str) -> Any:
            found = super().look(relative)
            if self.armed and relative == A:
                self.armed = False
                self.path(A).unlink()
                dangling(self.path(A))
            return found

    disk = Racing(folder.root)
    repository = folder.started(disk=disk)
    disk.armed = True
    applied = repository.apply_files([A])
    assert applied.again and repository.snapshot.count == 2
    repository.apply_files([A])
    assert messages(repository) == [f"{A}: {REPLACEMENTS[dangling]}"] and repository.snapshot.count == 2


def test_a_root_that_goes_while_we_look_deletes_nothing(folder: Folder) -> None:
    class Vanishing(Disk):
        armed = False

        def look(self, relative: str) -> Any:
            if self.armed:
                self.armed = False
                shutil.move(self.root / "policies", self.root / "_away")
            return super().look(relative)

    disk = Vanishing(folder.root)
    repository = folder.started(disk=disk)
    disk.armed = True
    assert [each.code for each in repository.apply_files([A, "policies/b.yaml"]).problems] == ["no_folder"]
    assert repository.snapshot.count == 2


def test_a_new_policy_takes_no_path_where_something_stands(folder: Folder) -> None:
    repository = folder.started()
    dangling(folder.root / "policies/hold-wires.yaml")
    assert repository.create(BODY, author=ADMIN).stored is not None
    assert (folder.root / "policies/hold-wires.yaml").is_symlink()
    assert repository.snapshot.of("default").keys() == {"a", "b", "hold-wires-2"}


def test_a_look_agrees_with_a_scan(folder: Folder) -> None:
    for number, replace in enumerate(REPLACEMENTS):
        replace(folder.root / f"policies/x{number}.yaml")
    disk = Disk(folder.root)
    listing = disk.scan()
    found = {path: disk.look(path) for path in [*listing.refused, *listing.files]}
    assert found == listing.refused | listing.files
    assert sum(isinstance(each, Problem) for each in found.values()) == len(REPLACEMENTS)
