"""What careless and hostile people make of a policies folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.errors import StorageError
from engine.worktree.disk import Disk
from tests.harness.policy_folder import ADMIN, Folder, document, messages


def unlike(folder: Folder, path: str, make: Callable[[Path], object], message: str) -> None:
    """A thing that is no file of ours is reported, and everything stays in force."""
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    make(folder.root / path)
    repository.apply_files()
    assert messages(repository) == [message]
    assert repository.snapshot.count == 1


def test_a_folder_named_like_a_document(folder: Folder) -> None:
    unlike(
        folder,
        "policies/b.yaml",
        Path.mkdir,
        "policies/b.yaml: this is a folder, but named like a document; rename it",
    )


def test_a_pipe_named_like_a_document(folder: Folder) -> None:
    unlike(folder, "policies/b.yaml", os.mkfifo, "policies/b.yaml: this is not a regular file; remove it")


def test_a_link_to_nothing(folder: Folder) -> None:
    unlike(
        folder,
        "policies/b.yaml",
        lambda path: path.symlink_to("nothing"),
        "policies/b.yaml: this is a link to `nothing`, where nothing is; put that back, or remove the link",
    )


@pytest.mark.parametrize("name", ["b.yaml ", "b .yaml", " b.yaml"])
def test_a_name_with_blanks_at_its_ends(folder: Folder, name: str) -> None:
    unlike(
        folder,
        f"policies/{name}",
        lambda path: path.write_text(document("b")),
        f"policies/{name}: the name `{name}` has blanks at its ends; rename the file",
    )


def test_a_link_to_itself(folder: Folder) -> None:
    unlike(
        folder,
        "policies/b.yaml",
        lambda path: path.symlink_to("b.yaml"),
        "policies/b.yaml: this cannot be read: too many levels of symbolic links",
    )


def test_a_link_out_of_the_folder(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text("password: x")
    unlike(
        folder,
        "policies/b.yaml",
        lambda path: path.symlink_to(tmp_path / "secret.yaml"),
        "policies/b.yaml: this link leads out of the policies folder; put the file itself here",
    )


def test_a_linked_folder_even_to_its_own_parent(folder: Folder) -> None:
    unlike(
        folder,
        "policies/loop",
        lambda path: path.symlink_to(".."),
        "policies/loop: linked folders are not followed; put the files themselves here",
    )


def test_a_link_within_the_folder_is_a_file(folder: Folder) -> None:
    """As Kubernetes mounts configuration."""
    (folder.root / "..data").mkdir()
    folder.write("..data/a.yaml", document("a"))
    (folder.root / "policies/a.yaml").symlink_to("../..data/a.yaml")
    assert folder.started().snapshot.count == 1


def test_a_huge_file(folder: Folder) -> None:
    unlike(
        folder,
        "policies/b.yaml",
        lambda path: path.write_bytes(b"x" * 10_000_000),
        "policies/b.yaml: the file is too big; a document may have at most 1048576 bytes",
    )


@pytest.mark.parametrize(("name", "shown"), [(b"b\nc", "b\\nc"), (b"\xff", "\\xff")])
def test_a_name_with_a_line_break_or_that_is_no_text(folder: Folder, name: bytes, shown: str) -> None:
    told = f"policies/{shown}.yaml: the name of a file or folder has unprintable characters; rename it"
    unlike(folder, f"policies/{os.fsdecode(name)}.yaml", Path.touch, told)


def test_a_name_that_is_no_text_keeps_no_start_and_no_other_file_back_for_ever(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    folder.started()
    odd = folder.root / os.fsdecode(b"policies/\xff.yaml")
    odd.write_text(document("x"))
    folder.write("policies/a.yaml", document("a", name="Edited"))
    again = folder.open()
    assert [problem.file for problem in again.start().problems] == ["policies/\\xff.yaml"]
    assert again.policy("default", "a").policy.name == "Hold", "one batch: the last good set stays"
    again.update("default", "a", {"action": "warn"}, author=ADMIN)
    assert again.policy("default", "a").policy.name == "Edited"
    odd.unlink()
    assert again.apply_files().problems == ()


def test_a_policy_that_is_named_like_tests_is_told_of(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    folder.write("policies/a_test.yaml", "apiVersion: governance/v1\nkind: 'PolicyTest'\n")
    folder.write("policies/load_test.yaml", document("load_test"))
    repository = folder.started()
    told = (
        "policies/load_test.yaml: this is not in force: a name that ends in `_test.yaml` is that of tests, "
        "and it is no `PolicyTest`; rename it so that it ends in another way, or remove it"
    )
    assert [str(each) for each in repository.warnings] == [told]
    folder.write("policies/a_test.yaml", document("a_test"))
    repository.apply_files()
    assert len(repository.warnings) == 2
    for name in ("a_test", "load_test"):
        (folder.root / f"policies/{name}.yaml").unlink()
    repository.apply_files()
    assert repository.warnings == []


def test_a_name_in_capitals(folder: Folder) -> None:
    """On a disk that ignores case, `A.yaml` would be `a.yaml`."""
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    folder.write("policies/A.yaml", document("A"))
    repository.apply_files()
    assert repository.problems[0].message.startswith("`policyId` must start and end with a lower-case letter")


def test_a_file_that_cannot_be_read(folder: Folder) -> None:
    class Unreadable(Disk):
        def read(self, relative: str) -> bytes | None:
            if relative == "policies/b.yaml":
                raise PermissionError(13, "Permission denied")
            return super().read(relative)

    folder.write("policies/a.yaml", document("a"))
    repository = folder.started(disk=Unreadable(folder.root))
    folder.write("policies/b.yaml", document("b"))
    repository.apply_files()
    assert messages(repository) == ["policies/b.yaml: this cannot be read: permission denied"]


def test_a_folder_that_cannot_be_read_deletes_nothing(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write("policies/team/a.yaml", document("a"))
    repository = folder.started()
    scandir = os.scandir

    def refuse(path: Any) -> Any:
        if str(path).endswith("team"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    repository.apply_files()
    assert messages(repository) == [
        "policies/team: the folder `policies/team` cannot be read: permission denied"
    ]
    assert repository.snapshot.count == 1


def test_temporary_files_of_a_crash_are_cleared_away(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    folder.write("policies/.a.yaml.123.tmp", "half")
    folder.started()
    assert not (folder.root / "policies/.a.yaml.123.tmp").exists()


@pytest.mark.parametrize("anew", [False, True])
def test_a_policies_folder_that_leads_to_itself_is_told_of_and_the_last_good_set_stays(
    folder: Folder, anew: bool
) -> None:
    """Also for a process that begins meanwhile; `ln -s policies.d policies.d` makes such a one."""
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    aside = folder.root.with_name("aside")
    folder.root.rename(aside)
    folder.root.symlink_to(folder.root.name)
    if anew:
        repository = folder.open()
        repository.start()
    else:
        repository.apply_files()
    assert any("too many levels of symbolic links" in each for each in messages(repository))
    assert repository.snapshot.count == 1
    folder.root.unlink()
    aside.rename(folder.root)
    repository.apply_files()
    assert messages(repository) == [] and repository.snapshot.count == 1


def test_a_policies_folder_that_is_gone_is_not_made_anew(folder: Folder) -> None:
    """Else `mv` back would put it into the one that was made, or a mount would hide that."""
    folder.root.rename(folder.root.with_name("aside"))
    with pytest.raises(StorageError, match="cannot be written: no such file or directory"):
        Disk(folder.root).note(".governance/installation.json", b"{}")
    assert not folder.root.exists()
