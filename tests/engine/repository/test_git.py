"""Git names the authors of files, and is told of what the API writes."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from pathlib import Path

import pytest

from engine.worktree import commits, git, git_state
from engine.worktree.commits import CommitQueue
from tests.harness.policy_folder import ADMIN, BODY, Folder, commit_first, document, run_git, told
from tests.harness.waiting import until


def test_committed_files_are_of_their_author_others_of_file(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    folder.write("policies/b.yaml", document("b"))
    commit_first(folder.root.parent)
    repository = folder.started(authors=git.authors)
    folder.write("policies/a.yaml", document("a", name="Two"))
    folder.write("policies/b.yaml", document("b", name="Two"))
    run_git(folder.root, "commit", "-qm", "second", "policies/a.yaml", author="Hal <hal@acme.example>")
    repository.apply_files()
    assert [each[2:4] for each in told(repository, "a")] == [
        ("hal@acme.example", None),
        ("gil@acme.example", "hal@acme.example"),
    ]
    assert [each[2:4] for each in told(repository, "b")] == [("file", None), ("gil@acme.example", "file")]


def test_no_more_of_a_history_is_read_than_it_takes_to_name_the_authors(folder: Folder) -> None:
    """One that goes back for long keeps no edit waiting."""
    for name in "abc":
        folder.write(f"policies/{name}.yaml", document(name))
    commit_first(folder.root.parent)
    first = run_git(folder.root, "rev-parse", "HEAD").strip()
    folder.write("policies/c.yaml", document("c", name="Two"))
    run_git(folder.root, "commit", "-qam", "before")
    folder.write("policies/a.yaml", document("a", name="Two"))
    run_git(folder.root, "commit", "-qam", "second", author="Hal <hal@acme.example>")
    folder.write("policies/b.yaml", document("b", name="Two"))
    run_git(folder.root, "commit", "-qam", "third", author="Ida <ida@acme.example>")
    (folder.root.parent / ".git" / "objects" / first[:2] / first[2:]).unlink()
    paths = [f"policies/{name}.yaml" for name in "ab"]
    assert git.authors(folder.root, paths) == {
        "policies/a.yaml": "hal@acme.example",
        "policies/b.yaml": "ida@acme.example",
    }


def test_a_person_whose_name_git_refuses_commits_all_the_same(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    commit_first(folder.root.parent)
    repository = folder.started(commit=git.commit_file)
    repository.update("default", "a", {"name": "New"}, author=".@acme.example")
    assert run_git(folder.root, "log", "-1", "--format=%an %s").strip() == "governance policy a: version 2"


def test_an_api_write_commits_just_its_file_as_the_caller(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    folder.write("policies/b.yaml", document("b"))
    commit_first(folder.root.parent)
    repository = folder.started(commit=git.commit)
    folder.write("policies/b.yaml", document("b", name="Not yet"))
    repository.update("default", "a", {"name": "New"}, author=ADMIN)
    repository.create(BODY, author=ADMIN)
    repository.delete("default", "a", author=ADMIN)
    log = run_git(folder.root, "log", "--format=%ae %s", "--name-status")
    lines = [line for line in log.splitlines() if line]
    assert lines[:6] == [
        f"{ADMIN} policy a: deleted",
        "D\tpolicies.d/policies/a.yaml",
        f"{ADMIN} policy hold-wires: version 1",
        "A\tpolicies.d/policies/hold-wires.yaml",
        f"{ADMIN} policy a: version 2",
        "M\tpolicies.d/policies/a.yaml",
    ]
    status = run_git(folder.root, "status", "--short")
    assert status.split() == ["M", "policies/b.yaml"], "our own notes are not in the way of git"


def test_a_file_that_git_has_is_committed_though_it_is_ignored(folder: Folder) -> None:
    """A new one is not, in one line without git's hints, and nothing stays staged."""
    folder.write("policies/a.yaml", document("a"))
    commit_first(folder.root.parent)
    (folder.root.parent / ".gitignore").write_text("policies.d\n")
    repository = folder.started(commit=git.commit_file)
    repository.update("default", "a", {"name": "New"}, author=ADMIN)
    folder.write("policies/new.yaml", document("new"))
    with pytest.raises(git.GitFailed) as caught:
        git.commit_file(folder.root, "policies/new.yaml", ADMIN, "policy new: version 1")
    assert "ignored" in str(caught.value) and "hint:" not in str(caught.value)
    status = run_git(folder.root.parent, "status", "--short")
    assert status.split() == ["??", ".gitignore"]
    shown = run_git(folder.root, "show", "HEAD")
    assert "+name: New" in shown


@pytest.mark.parametrize("place, owner", [("policies", "default"), ("organisations/acme", "acme")])
@pytest.mark.parametrize("staged", [True, False])
def test_the_commit_of_a_moved_policy_takes_its_old_place_away(
    folder: Folder, staged: bool, place: str, owner: str
) -> None:
    """A commit that held it in both places would not load."""
    for name in ("a", "b"):
        folder.write(f"{place}/{name}.yaml", document(name))
    commit_first(folder.root.parent)
    repository = folder.started(commit=git.commit)
    (folder.root / place / "pay").mkdir()
    (folder.root / place / "b.yaml").unlink()
    if staged:
        run_git(folder.root, "mv", f"{place}/a.yaml", f"{place}/pay/a.yaml")
    else:
        (folder.root / place / "a.yaml").rename(folder.root / place / "pay/a.yaml")
    repository.apply_files()
    repository.update(owner, "a", {"name": "New"}, author=ADMIN)
    names = run_git(folder.root, "ls-tree", "-r", "--name-only", "HEAD")
    assert names.split() == [f"{place}/b.yaml", f"{place}/pay/a.yaml"], "and only its own"


def test_what_git_does_not_commit_is_logged_with_the_reason(
    folder: Folder, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git, "PATIENCE", 0.1)
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started(commit=git.commit)
    repository.update("default", "a", {"name": "Two"}, author=ADMIN)
    assert "did not commit `policies/a.yaml`: the folder is in no git work tree" in caplog.text
    commit_first(folder.root.parent)
    lock = folder.root.parent / ".git/index.lock"
    lock.touch()
    caplog.clear()
    repository.update("default", "a", {"name": "Three"}, author=ADMIN)
    assert "index.lock" in caplog.text
    lock.unlink()
    (folder.root.parent / ".gitignore").write_text("hold-*\n")
    caplog.clear()
    repository.create(BODY, author=ADMIN)
    assert "did not commit `policies/hold-wires.yaml`: " in caplog.text
    caplog.clear()
    repository.update("default", "a", {"name": "Four"}, author=ADMIN)
    assert not caplog.text


def test_a_commit_waits_a_moment_for_others_who_use_git(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    commit_first(folder.root.parent)
    repository = folder.started(commit=git.commit)
    lock = folder.root.parent / ".git/index.lock"
    lock.touch()
    timer = threading.Timer(0.3, lock.unlink)
    timer.start()
    repository.update("default", "a", {"name": "Two"}, author=ADMIN)
    timer.join()
    said = run_git(folder.root, "log", "--format=%s")
    assert said.split("\n")[0] == "policy a: version 2"


def test_a_git_that_waits_for_somebody_leaves_no_lock(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    committed(folder, 1)
    top = folder.root.parent
    repository = folder.started(commit=git.commit)
    asks, asked = top / ".git/asks", top / ".git/asked"
    asks.write_text(f"#!/bin/sh\necho $$ > {asked}\nexec sleep 600\n")
    asks.chmod(0o755)
    run_git(top, "config", "gpg.program", str(asks))
    run_git(top, "config", "commit.gpgsign", "true")
    monkeypatch.setattr(git, "SECONDS", 1.0)
    while not asked.exists():  # on a slow machine git may not come that far
        repository.update("default", "p0", {"name": f"N{time.monotonic_ns()}"}, author=ADMIN)
    assert "wait for somebody; the policy is in force all the same" in caplog.text
    assert not list((top / ".git").glob("*.lock"))
    until(lambda: not started(asked.read_text().strip()))
    run_git(top, "config", "commit.gpgsign", "false")
    monkeypatch.undo()
    repository.update("default", "p0", {"name": "Last"}, author=ADMIN)
    assert len(history(folder)) == 2
    assert dirty(folder) == ""


def started(pid: str) -> bytes:
    """How a process was started that has not ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_git_lock_is_seen(folder: Folder) -> None:
    run_git(folder.root.parent, "init", "-q")
    assert not git_state.locked(folder.root)
    (folder.root.parent / ".git/index.lock").touch()
    assert git_state.locked(folder.root)


def history(folder: Folder) -> list[str]:
    return run_git(folder.root, "log", "--format=%ae %s").splitlines()


def dirty(folder: Folder) -> str:
    return run_git(folder.root, "status", "--short")


def committed(folder: Folder, count: int) -> None:
    for number in range(count):
        folder.write(f"policies/p{number}.yaml", document(f"p{number}"))
    commit_first(folder.root.parent)


def diverged(folder: Folder) -> None:
    """Two policies, of which the branch `theirs` and the one that is checked out have each another `p1`."""
    committed(folder, 2)
    run_git(folder.root, "checkout", "-qb", "theirs")
    folder.write("policies/p1.yaml", document("p1", name="Theirs"))
    run_git(folder.root, "commit", "-qam", "theirs")
    run_git(folder.root, "checkout", "-q", "-")
    folder.write("policies/p1.yaml", document("p1", name="Ours"))
    run_git(folder.root, "commit", "-qam", "ours")


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "beside somebody"])
def test_many_writes_at_once_are_all_committed(folder: Folder, alone: bool) -> None:
    committed(folder, 6)
    queue = CommitQueue(folder.root)
    repository = folder.started(commit=queue.add)

    def write(number: int) -> None:
        for each in range(15):
            repository.update("default", f"p{number}", {"name": f"N{each}"}, author=f"{number}@acme.example")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    while not alone and any(thread.is_alive() for thread in threads):
        with contextlib.suppress(subprocess.CalledProcessError):
            run_git(folder.root.parent, "commit", "-q", "--allow-empty", "--only", "-m", "else")
        time.sleep(0.01)
    for thread in threads:
        thread.join()
    until(lambda: not queue._waiting)
    queue.close()
    assert dirty(folder) == ""
    for number in range(6):
        mine = [line for line in history(folder) if f" p{number}:" in line]
        assert {line.split()[0] for line in mine} == {f"{number}@acme.example"}
        if alone:
            versions = range(16, 1, -1)
            assert mine == [f"{number}@acme.example policy p{number}: version {each}" for each in versions]


def test_what_waits_for_git_is_committed_later_also_by_another_process(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git, "PATIENCE", 0.1)
    monkeypatch.setattr(commits, "AGAIN_SECONDS", 0.05)
    committed(folder, 3)
    lock = folder.root.parent / ".git/index.lock"
    queue = CommitQueue(folder.root)
    repository = folder.started(commit=queue.add)
    lock.touch()
    repository.update("default", "p0", {"name": "New"}, author=ADMIN)
    repository.delete("default", "p1", author=ADMIN)
    assert len(history(folder)) == 1
    queue.close()
    lock.unlink()
    again = CommitQueue(folder.root)
    again.start()
    assert history(folder)[:2] == [f"{ADMIN} policy p1: deleted", f"{ADMIN} policy p0: version 2"]
    lock.touch()
    folder.started(commit=again.add).update("default", "p2", {"name": "New"}, author=ADMIN)
    lock.unlink()
    until(lambda: history(folder)[0] == f"{ADMIN} policy p2: version 2")
    until(lambda: not list(folder.root.glob(".governance/commit-*")))
    assert dirty(folder) == ""


def test_a_merge_that_is_given_up_takes_no_api_change_back(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(commits, "AGAIN_SECONDS", 0.05)
    diverged(folder)
    queue = CommitQueue(folder.root)
    repository = folder.started(commit=queue.add)
    with pytest.raises(subprocess.CalledProcessError):
        run_git(folder.root, "merge", "-q", "theirs")
    repository.update("default", "p0", {"name": "New"}, author=ADMIN)
    assert "git is busy, so 1 commit waits: " in caplog.text
    run_git(folder.root, "merge", "--abort")
    assert "name: New" in folder.read("policies/p0.yaml")
    until(lambda: history(folder)[0] == f"{ADMIN} policy p0: version 2")
    queue.close()
    assert dirty(folder) == ""


def test_no_commit_is_made_during_a_rebase(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It would be on no branch, and gone for whoever gives the rebase up."""
    monkeypatch.setattr(commits, "AGAIN_SECONDS", 0.05)
    diverged(folder)
    queue = CommitQueue(folder.root)
    repository = folder.started(commit=queue.add)
    with pytest.raises(subprocess.CalledProcessError):
        run_git(folder.root, "rebase", "-q", "theirs")
    before = history(folder)
    repository.update("default", "p0", {"name": "New"}, author=ADMIN)
    assert "git is busy, so 1 commit waits: cannot commit during a rebase" in caplog.text
    time.sleep(0.2)
    assert history(folder) == before
    run_git(folder.root, "checkout", "--ours", "policies/p1.yaml")
    run_git(folder.root, "rebase", "--quit")
    until(lambda: history(folder)[0] == f"{ADMIN} policy p0: version 2")
    queue.close()


def test_what_git_refuses_is_tried_again(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(commits, "AGAIN_SECONDS", 0.02)
    committed(folder, 3)
    objects = folder.root.parent / ".git/objects"
    told: list[int] = []
    queue = CommitQueue(folder.root, told.append)
    repository = folder.started(commit=queue.add)
    objects.rename(objects.with_name("away"))
    repository.update("default", "p0", {"name": "New"}, author=ADMIN)
    until(lambda: queue._due > 0)
    assert "git did not commit `policies/p0.yaml`: " in caplog.text
    (problem,) = queue.problems
    assert problem.file == "policies/p0.yaml"
    assert problem.message.startswith("1 change through the API is not committed to git yet: ")
    assert told[-1] == 1
    objects.with_name("away").rename(objects)
    repository.update("default", "p1", {"name": "New"}, author=ADMIN)
    until(lambda: not queue.problems)
    queue.close()
    assert {f"{ADMIN} policy p{number}: version 2" for number in (0, 1)} == set(history(folder)[:2])
    assert told[-1] == 0 and dirty(folder) == ""
    assert caplog.text.count("git did not commit") == 1
    assert not list(folder.root.glob(".governance/commit-*"))


def test_no_api_write_waits_for_what_git_did_not_take_before(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try may take seconds, as where git waits for somebody who signs."""
    monkeypatch.setattr(commits, "AGAIN_SECONDS", 0.02)
    committed(folder, 2)
    tried, ended = threading.Event(), threading.Event()

    def commit_file(root: Path, path: str, author: str, message: str) -> None:
        if threading.current_thread().name == "policies-commit":
            tried.set()
            ended.wait(60)
        if not ended.is_set():
            raise git.GitFailed("nobody signs")

    monkeypatch.setattr(git, "commit_file", commit_file)
    queue = CommitQueue(folder.root)
    queue.add(folder.root, "policies/p0.yaml", ADMIN, "one")
    assert tried.wait(60)
    write = threading.Thread(target=queue.add, args=(folder.root, "policies/p1.yaml", ADMIN, "two"))
    write.start()
    write.join(30)
    waits = write.is_alive()
    ended.set()
    assert not waits
    until(lambda: not queue._waiting)
    queue.close()


def test_what_git_refused_is_tried_at_the_next_start(folder: Folder) -> None:
    queue = CommitQueue(folder.root)
    folder.write("policies/p0.yaml", document("p0"))
    folder.started(commit=queue.add).update("default", "p0", {"name": "New"}, author=ADMIN)
    assert "in no git work tree" in queue.problems[0].message
    queue.close()
    run_git(folder.root.parent, "init", "-q")
    again = CommitQueue(folder.root)
    again.start()
    again.close()
    assert history(folder) == [f"{ADMIN} policy p0: version 2"]


def test_a_commit_on_no_branch_is_told_of(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    committed(folder, 1)
    run_git(folder.root, "checkout", "-q", "--detach")
    folder.started(commit=git.commit).update("default", "p0", {"name": "New"}, author=ADMIN)
    assert "no branch is checked out" in caplog.text
