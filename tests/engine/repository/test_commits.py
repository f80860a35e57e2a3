"""Commits of what the API wrote, where the machine gives too little for them."""

from __future__ import annotations

import subprocess
import threading

import pytest

from engine.worktree import git
from engine.worktree.commits import CommitQueue
from tests.harness.policy_folder import ADMIN, Folder, commit_first, document, run_git, told


def test_without_a_thread_a_commit_waits_for_the_next_change(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at the limit of `TasksMax=`, which starts neither git nor a thread that tries again."""
    for name in ("a", "b"):
        folder.write(f"policies/{name}.yaml", document(name))
    commit_first(folder.root.parent)
    queue = CommitQueue(folder.root)
    repository = folder.started()
    with monkeypatch.context() as scarce:
        scarce.setattr(threading.Thread, "start", _none_left)
        scarce.setattr(git, "commit_file", _no_process)
        repository.update("default", "a", {"name": "New"}, author=ADMIN)
        queue.add(folder.root, "policies/a.yaml", ADMIN, "policy a: version 2")
    assert "not committed to git yet" in queue.problems[0].message
    repository.update("default", "b", {"name": "New"}, author=ADMIN)
    queue.add(folder.root, "policies/b.yaml", ADMIN, "policy b: version 2")
    for _ in range(100):
        if not queue.problems:
            break
        threading.Event().wait(0.1)
    assert not queue.problems
    queue.close()


def test_a_branch_whose_name_is_no_utf_8_is_committed_to(folder: Folder) -> None:
    """It ended the next start."""
    folder.write("policies/a.yaml", document("a"))
    top = folder.root.parent
    commit_first(top)
    run_git(top, "checkout", "-qb", "entw\udcfcrfe")
    folder.started().update("default", "a", {"name": "New"}, author=ADMIN)
    queue = CommitQueue(folder.root)
    queue.add(folder.root, "policies/a.yaml", ADMIN, "policy a: version 2")
    assert not queue.problems
    run_git(top, "diff", "--quiet", "HEAD", "--", ".")
    queue.close()


def test_a_file_of_a_submodule_is_committed_to_the_submodule(folder: Folder) -> None:
    """And its author is of the submodule's history; what lies outside is not touched."""
    (team := folder.root / "policies/team").mkdir(parents=True)
    folder.write("policies/a.yaml", document("a"))
    folder.write("policies/team/b.yaml", document("b"))
    for top, author in ((team, "Hal <hal@acme.example>"), (folder.root.parent, "Gil <gil@acme.example>")):
        commit_first(top, author)
    repository = folder.started(authors=git.authors, commit=git.commit_file)
    assert [told(repository, name)[0][2] for name in "ab"] == ["gil@acme.example", "hal@acme.example"]
    (team / "pay").mkdir()
    (team / "b.yaml").rename(team / "pay/b.yaml")
    repository.apply_files()
    repository.update("default", "b", {"name": "New"}, author=ADMIN)
    log = ("git", "log", "--format=%ae %s", "--name-status", "--no-renames", "-1")
    said = subprocess.run(log, cwd=team, capture_output=True, text=True).stdout.split("\n")
    assert said[:4] == [f"{ADMIN} policy b: version 2", "", "D\tb.yaml", "A\tpay/b.yaml"]
    repository.delete("default", "b", author=ADMIN)
    assert (
        subprocess.run(log, cwd=team, capture_output=True, text=True).stdout.split("\n")[2] == "D\tpay/b.yaml"
    )


def test_whatever_fails_in_a_commit_ends_no_start(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = CommitQueue(folder.root)
    monkeypatch.setattr(git, "commit_file", _closed)
    queue.add(folder.root, "policies/a.yaml", ADMIN, "policy a: version 2")
    queue.close()
    again = CommitQueue(folder.root)
    again.start()
    assert "Permission denied" in again.problems[0].message
    again.close()


def _closed(*_: object) -> None:
    raise PermissionError(13, "Permission denied")


def _none_left(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def _no_process(*_: object) -> None:
    raise git.GitFailed("[Errno 11] Resource temporarily unavailable")


def test_a_change_that_git_is_told_to_overlook_waits_and_is_told_of(folder: Folder) -> None:
    """Git says that nothing is to be committed, where nothing was."""
    folder.write("policies/a.yaml", document("a"))
    commit_first(folder.root)
    run_git(folder.root, "update-index", "--assume-unchanged", "policies/a.yaml")
    folder.write("policies/a.yaml", document("a", name="New"))
    with pytest.raises(git.GitFailed, match="git update-index --no-assume-unchanged"):
        git.commit_file(folder.root, "policies/a.yaml", ADMIN, "policy a: version 2")
    run_git(folder.root, "update-index", "--no-assume-unchanged", "policies/a.yaml")
    git.commit_file(folder.root, "policies/a.yaml", ADMIN, "policy a: version 2")
    shown = run_git(folder.root, "show", "HEAD")
    assert "+name: New" in shown
