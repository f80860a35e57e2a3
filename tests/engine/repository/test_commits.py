"""Commits of what the API wrote, where the machine gives too little for them, or the process dies."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from api.clock import random_ids, system_clock
from api.database.connection import Database
from api.database.writer import Writer
from api.policies.opening import open_policies
from engine.documents.document import digest_of
from engine.repository.repository import Repository
from engine.worktree import git
from engine.worktree.commits import CommitQueue
from engine.worktree.disk import Disk
from engine.worktree.markers import Intent, write_intent
from tests.harness.application import settings_for
from tests.harness.policy_folder import ADMIN, BODY, Folder, commit_first, document, run_git, told


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


def test_who_wrote_last_is_known_where_the_clock_was_set_back(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While git was busy: the change of the one was committed in the name of the other."""
    folder.write("policies/a.yaml", document("a"))
    commit_first(folder.root)
    queue = CommitQueue(folder.root)
    queue.note(folder.root, "policies/a.yaml", "first@acme.example", "policy a: version 2")
    monkeypatch.setattr(time, "time_ns", lambda: 10**18)
    folder.write("policies/a.yaml", document("a", name="New"))
    queue.add(folder.root, "policies/a.yaml", "second@acme.example", "policy a: version 3")
    queue.close()
    assert run_git(folder.root, "log", "-1", "--format=%ae %s").split(maxsplit=1) == [
        "second@acme.example",
        "policy a: version 3\n",
    ]


class Died(BaseException):
    """As by `kill -9`: nobody puts anything right."""


def dies(*_: object) -> None:
    raise Died


@pytest.mark.parametrize(
    "moment", ["before the database has it", "before it is noted", "at the first commit"]
)
def test_what_a_process_that_died_has_written_is_committed_at_the_next_start(
    folder: Folder, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pack of thirty policies was left out of git but for one, and nobody was told."""
    for name in ("a", "b"):
        folder.write(f"policies/{name}.yaml", document(name))
    commit_first(folder.root.parent)
    bodies = [BODY | {"policyId": f"p{number}"} for number in range(5)]
    writes: list[Callable[[Repository], object]] = [
        lambda it: it.create_many(bodies, changes={"a": {"name": "New"}}, author=ADMIN),
        lambda it: it.delete("default", "b", author=ADMIN),
    ]
    for write in writes:
        queue = CommitQueue(folder.root)
        repository = folder.started(commit=queue.add, note_commit=queue.note)
        with monkeypatch.context() as killed, pytest.raises(Died):
            if moment == "before the database has it":
                killed.setattr(folder.archive, "before_commit", dies)
            elif moment == "before it is noted":
                killed.setattr(folder.archive, "after_commit", dies)
            else:
                killed.setattr(git, "commit_file", dies)
            write(repository)
        again = CommitQueue(folder.root)
        again.recover()
        folder.started(commit=again.add, note_commit=again.note)
        again.start()
        assert not again.problems
        again.close()
        assert run_git(folder.root, "status", "--short") == ""
        assert not list(folder.root.glob(".governance/commit-*"))
    authors = run_git(folder.root, "log", "--format=%ae").splitlines()
    assert authors == [ADMIN] * 7 + ["gil@acme.example"]
    assert told(repository, "p4")[0][1:3] == ("api", ADMIN)


def test_a_write_that_died_before_it_changed_its_file_commits_nobodys_edit(folder: Folder) -> None:
    folder.write("policies/a.yaml", document("a"))
    commit_first(folder.root.parent)
    queue = CommitQueue(folder.root)
    repository = folder.started(commit=queue.add, note_commit=queue.note)
    folder.write("policies/a.yaml", document("a", name="Edited"))
    repository.apply_files()
    with pytest.MonkeyPatch.context() as killed, pytest.raises(Died):
        killed.setattr(repository.worktree, "put", dies)
        repository.update("default", "a", {"name": "New"}, author=ADMIN)
    assert list(folder.root.glob(".governance/write-*"))
    again = CommitQueue(folder.root)
    again.recover()
    folder.started(commit=again.add, note_commit=again.note)
    again.start()
    again.close()
    assert run_git(folder.root, "status", "--short").split() == ["M", "policies/a.yaml"]


def test_what_another_node_has_written_since_is_committed_in_nobodys_name(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What took the place of a write that died was committed as of whoever had asked for that."""
    folder.write("policies/a.yaml", document("a"))
    commit_first(folder.root.parent)
    queue = CommitQueue(folder.root)
    repository = folder.started(commit=queue.add, note_commit=queue.note)
    with monkeypatch.context() as killed, pytest.raises(Died):
        killed.setattr(folder.archive, "before_commit", dies)
        repository.update("default", "a", {"name": "New"}, author=ADMIN)
    other = Folder(tmp_path / "other", folder.archive)
    other.started().update("default", "a", {"name": "Newer"}, author="bob@acme.example")
    again = CommitQueue(folder.root)
    again.recover()
    folder.started(commit=again.add, note_commit=again.note)
    again.start()
    again.close()
    assert "name: Newer " in folder.read("policies/a.yaml") and not again.problems
    assert run_git(folder.root, "log", "--format=%ae").split() == ["gil@acme.example"]
    assert not list(folder.root.glob(".governance/commit-*"))


def test_what_is_told_of_a_write_that_died(folder: Folder) -> None:
    folder.write("policies/gone.yaml", document("gone"))
    folder.write("tools/mine.yaml", "kind: Tools\n")
    commit_first(folder.root.parent)
    (folder.root / "policies/gone.yaml").unlink()
    folder.write("tools/mine.yaml", "kind: ToolSet\n")
    written = digest_of((folder.root / "tools/mine.yaml").read_bytes())
    for path, after in (("policies/gone.yaml", None), ("tools/mine.yaml", written)):
        write_intent(Disk(folder.root), Intent(path, "0", after, ADMIN))
    CommitQueue(folder.root).recover()
    queue = CommitQueue(folder.root)
    queue.start()
    queue.close()
    told = run_git(folder.root, "log", "-2", "--format=%s").splitlines()
    assert sorted(told) == ["policy gone: deleted", "tool set mine: changed"]


def test_a_start_commits_what_a_service_that_died_has_written(folder: Folder, tmp_path: Path) -> None:
    folder.write("policies/a.yaml", document("a"))
    commit_first(tmp_path)
    settings = settings_for(tmp_path)
    store = Database(settings.database)
    store.migrate()
    writer = Writer(store, system_clock, random_ids)
    writer.start()
    try:
        with open_policies(settings, store, writer) as live:
            live.repository.update("default", "a", {"name": "New"}, author=ADMIN)
        written = digest_of((folder.root / "policies/a.yaml").read_bytes())
        write_intent(Disk(folder.root), Intent("policies/a.yaml", "0", written, ADMIN))
        with open_policies(replace(settings, git="commit"), store, writer) as live:
            assert live.snapshot.of("default")["a"].file.version == 2
    finally:
        writer.close()
        store.close()
    assert run_git(folder.root, "log", "-1", "--format=%ae %s").strip() == f"{ADMIN} policy a: changed"
    assert run_git(folder.root, "status", "--short", ".") == ""
