"""While git waits for a person in the middle of a rebase or the like, what the files say is nobody's edit."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import live as live_module
from engine.errors import PolicyFileInvalid, RefusedToStart
from engine.worktree import git, git_state
from tests.harness.policy_folder import ADMIN, Folder, document, messages, run_git
from tests.harness.watched_folder import watching

WAITS = "git is in the middle of {}: what the files say comes into force when it is finished or given up"


@pytest.fixture
def diverged(folder: Folder) -> Path:
    """The branch `theirs` and the one that is checked out have each another `README`; the latter has the
    policy `b`, too, and changed `a`, in commits after that. Returns the folder around."""
    top = folder.root.parent
    folder.write("policies/a.yaml", document("a"))
    run_git(top, "init", "-q", "-b", "ours")
    commit(top, "README", "first\n")
    run_git(top, "checkout", "-q", "-b", "theirs")
    commit(top, "README", "theirs\n")
    run_git(top, "checkout", "-q", "ours")
    commit(top, "README", "ours\n")
    commit(top, "policies.d/policies/b.yaml", document("b", value="pay"))
    commit(top, "policies.d/policies/a.yaml", document("a", name="Two"))
    return top


def commit(top: Path, path: str, text: str) -> None:
    (top / path).write_text(text)
    run_git(top, "add", "--all", ".")
    run_git(top, "commit", "-qm", path)


def stops(top: Path, *arguments: str) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        run_git(top, *arguments)


def rebase(top: Path) -> None:
    stops(top, "rebase", "-q", "theirs")


def rebase_by_patches(top: Path) -> None:
    stops(top, "rebase", "-q", "--apply", "theirs")


def merge(top: Path) -> None:
    run_git(top, "checkout", "-q", "theirs")
    stops(top, "merge", "-q", "ours")


def cherry_picks(top: Path) -> None:
    run_git(top, "checkout", "-q", "theirs")
    stops(top, "cherry-pick", "ours~2", "ours~1", "ours")


def reverts(top: Path) -> None:
    commit(top, "README", "ours again\n")
    stops(top, "revert", "--no-edit", "HEAD~1", "HEAD~2", "HEAD~3")


def bisect(top: Path) -> None:
    run_git(top, "bisect", "start", "-q", "ours", "ours~3")


CASES = [
    pytest.param(rebase, ("rebase",), "a rebase", id="rebase"),
    pytest.param(rebase_by_patches, ("rebase",), "a rebase or `git am`", id="rebase --apply"),
    pytest.param(merge, ("merge",), "a merge", id="merge"),
    pytest.param(cherry_picks, ("cherry-pick",), "a cherry-pick", id="cherry-pick"),
    pytest.param(reverts, ("revert",), "a revert", id="revert"),
    pytest.param(bisect, ("bisect",), "a bisect", id="bisect"),
]


@pytest.mark.parametrize("begin, command, what", CASES)
def test_what_git_is_in_the_middle_of_is_seen(
    diverged: Path, begin: Callable[[Path], None], command: tuple[str, ...], what: str
) -> None:
    assert git_state.waits(diverged / "policies.d") == []
    begin(diverged)
    (found,) = git_state.waits(diverged / "policies.d")
    assert f"in the middle of {what}: " in found.message
    with pytest.raises(git.GitFailed, match=f"cannot commit during {what}") as caught:
        git.commit_file(diverged / "policies.d", "policies/a.yaml", ADMIN, "message")
    assert caught.value.busy
    run_git(diverged, *command, "reset" if command == ("bisect",) else "--abort")
    assert git_state.waits(diverged / "policies.d") == []


def test_a_policy_whose_commit_is_not_replayed_yet_stays_in_force(folder: Folder, diverged: Path) -> None:
    repository = folder.started()
    rebase(diverged)
    assert not folder.disk_has("policies/b.yaml")
    applied = repository.apply_files()
    assert [each.code for each in applied.problems] == ["git_unfinished"]
    assert messages(repository)[0].startswith(WAITS.format("a rebase"))
    assert repository.policy("default", "a").policy.name == "Two"
    assert repository.policy("default", "b").policy.policy_id == "b"
    folder.write("policies/c.yaml", document("c"))
    assert repository.apply_files().snapshot.revision == 1, "nobody can tell whose files these are"
    (diverged / "README").write_text("both\n")
    run_git(diverged, "add", "README")
    run_git(diverged, "-c", "core.editor=true", "rebase", "--continue")
    assert repository.apply_files().problems == ()
    assert sorted(repository.snapshot.of("default")) == ["a", "b", "c"]


def linked_work_tree(folder: Folder, diverged: Path) -> tuple[Path, Path]:
    run_git(diverged, "checkout", "-q", "theirs")
    run_git(diverged, "worktree", "add", "-q", "../linked", "ours")
    return diverged.parent / "linked", diverged.parent / "linked/policies.d"


def link_to_the_folder(folder: Folder, diverged: Path) -> tuple[Path, Path]:
    link = diverged.parent / "current"
    link.symlink_to(folder.root)
    return diverged, link


def clone_within(folder: Folder, diverged: Path) -> tuple[Path, Path]:
    top = diverged.parent / "around/policies/team"
    run_git(diverged, "clone", "-q", "--no-local", "--branch", "ours", ".", str(top))
    run_git(top, "branch", "-q", "theirs", "origin/theirs")
    return top, diverged.parent / "around"


@pytest.mark.parametrize("place", [linked_work_tree, link_to_the_folder, clone_within])
def test_it_is_seen_wherever_git_keeps_it_and_without_git(
    folder: Folder,
    diverged: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: Callable[[Folder, Path], tuple[Path, Path]],
) -> None:
    top, root = place(folder, diverged)
    other = Folder(tmp_path / "other")
    other.root = root
    repository = other.started()
    rebase(top)
    monkeypatch.setattr(git, "call", unasked)
    applied = repository.apply_files()
    assert [each.code for each in applied.problems] == ["git_unfinished"], applied
    assert sorted(repository.snapshot.of("default")) == ["a", "b"]
    assert repository.warnings == []


def unasked(*arguments: object, **named: object) -> bytes:
    raise FileNotFoundError(2, "No such file or directory", "git")


def test_where_nobody_may_look_nothing_comes_into_force(folder: Folder) -> None:
    """A name that the system does not take stands for a folder of another user: the tests may be root."""
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    closed = "x" * 300
    (folder.root.parent / ".git").write_text(f"gitdir: {closed}\n")
    folder.write("policies/a.yaml", document("a", name="Two"))
    assert not git_state.locked(folder.root)
    (problem,) = repository.apply_files().problems
    assert problem.message.startswith("nobody can tell whether git is in the middle of a rebase")
    assert closed in problem.message
    (folder.root.parent / ".git").unlink()
    assert repository.apply_files().problems == ()


def test_a_git_that_is_not_there_is_told(folder: Folder) -> None:
    """As where a container has the work tree alone."""
    folder.write("policies/a.yaml", document("a"))
    repository = folder.started()
    (folder.root.parent / ".git").write_text("gitdir: ../elsewhere/.git/worktrees/live\n")
    folder.write("policies/a.yaml", document("a", name="Two"))
    assert repository.apply_files().problems == ()
    (warning,) = repository.warnings
    assert "elsewhere/.git/worktrees/live`, where nothing is" in warning.message


def test_a_rebase_that_does_not_touch_policies_is_no_problem(folder: Folder, diverged: Path) -> None:
    run_git(diverged, "reset", "-q", "--hard", "ours~2")
    repository = folder.started()
    rebase(diverged)
    assert repository.apply_files().problems == ()


def test_a_change_through_the_api_takes_over_nothing_half_way(folder: Folder, diverged: Path) -> None:
    repository = folder.started()
    rebase(diverged)
    with pytest.raises(PolicyFileInvalid, match=r"`policies/a\.yaml` has changed, and git is in the middle"):
        repository.update("default", "a", {"description": "d"}, author=ADMIN)
    with pytest.raises(PolicyFileInvalid, match="is gone, but the folder has problems"):
        repository.update("default", "b", {"description": "d"}, author=ADMIN)
    assert repository.snapshot.revision == 1
    run_git(diverged, "rebase", "--abort")
    repository.update("default", "a", {"description": "d"}, author=ADMIN)
    assert repository.policy("default", "a").policy.name == "Two"


def test_a_start_in_the_middle_uses_the_last_good_set_or_refuses(folder: Folder, diverged: Path) -> None:
    rebase(diverged)
    with pytest.raises(RefusedToStart) as caught:
        folder.open().start()
    assert [each.code for each in caught.value.problems] == ["git_unfinished"]
    run_git(diverged, "rebase", "--abort")
    folder.started()
    rebase(diverged)
    repository = folder.open()
    assert [each.code for each in repository.start().problems] == ["git_unfinished"]
    assert sorted(repository.snapshot.of("default")) == ["a", "b"]


def test_a_service_that_runs_tells_of_it_and_goes_on_by_itself(
    folder: Folder, diverged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "FOLLOW_SECONDS", 0.2)
    with watching(folder) as watched:
        assert watched.blocks("pay")
        rebase(diverged)
        watched.until(lambda: bool(watched.live.health()["stale"]), 60)
        (told,) = watched.live.health()["errors"]
        assert told["message"].startswith(WAITS.format("a rebase"))
        assert watched.blocks("pay") and watched.live.revision == 1
        run_git(diverged, "rebase", "--quit")
        watched.until(lambda: not watched.blocks("pay"), 60)  # left as it is, on purpose
        watched.until(lambda: not watched.live.health()["stale"], 60)


@pytest.fixture
def with_team(folder: Folder) -> Path:
    """A repository whose folder has the policy `a`, and in its newest commit a submodule `team`, which took
    the policies `b` and `c` over. Returns it."""
    top, team = folder.root.parent / "origin", folder.root.parent / "team"
    for name in ("a", "b", "c"):
        place = top / "policies" / f"{name}.yaml"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(document(name))
    run_git(top, "init", "-q", "-b", "main")
    commit(top, "README", "all in one\n")
    team.mkdir()
    run_git(team, "init", "-q", "-b", "main")
    for name in ("b", "c"):
        commit(team, f"{name}.yaml", document(name))
        (top / "policies" / f"{name}.yaml").unlink()
    run_git(top, *FILES, "submodule", "--quiet", "add", "../team", "policies/team")
    commit(top, "README", "the team has its own\n")
    return top


FILES = ("-c", "protocol.file.allow=always")


def test_policies_that_moved_to_a_submodule_stay_in_force_until_it_is_checked_out(
    folder: Folder, with_team: Path
) -> None:
    shutil.rmtree(folder.root, ignore_errors=True)
    run_git(folder.root.parent, "clone", "-q", str(with_team), folder.root.name)
    run_git(folder.root, "reset", "-q", "--hard", "HEAD~1")
    repository = folder.started()
    run_git(folder.root, "merge", "-q", "--ff-only", "origin/main")
    problems = repository.apply_files().problems
    assert [(each.code, each.file) for each in problems] == [("submodule", "policies/team")]
    assert "`git submodule update --init --recursive`" in problems[0].message
    assert sorted(repository.snapshot.of("default")) == ["a", "b", "c"] and repository.warnings == []
    run_git(folder.root, *FILES, "submodule", "--quiet", "update", "--init")
    assert repository.apply_files().problems == ()
    assert sorted(repository.snapshot.of("default")) == ["a", "b", "c"]


@pytest.mark.parametrize("archive", [False, True])
def test_a_first_start_refuses_a_clone_without_its_submodules(
    folder: Folder, with_team: Path, archive: bool
) -> None:
    shutil.rmtree(folder.root, ignore_errors=True)
    run_git(folder.root.parent, "clone", "-q", str(with_team), folder.root.name)
    if archive:
        shutil.rmtree(folder.root / ".git")
    with pytest.raises(RefusedToStart, match="the submodule `policies/team` is not checked out"):
        folder.started()
    (folder.root / "policies/team").rmdir()
    assert sorted(folder.started().snapshot.of("default")) == ["a"], "who removes it means it"


def test_a_submodule_that_is_only_missing_is_told_of(folder: Folder, with_team: Path) -> None:
    shutil.rmtree(folder.root, ignore_errors=True)
    run_git(folder.root.parent, "clone", "-q", str(with_team), folder.root.name)
    place = folder.root / "policies/team"
    place.rmdir()
    repository = folder.started()
    place.mkdir()
    assert repository.apply_files().problems == ()
    assert [each.file for each in repository.warnings] == ["policies/team"]


def test_a_submodule_whose_commit_has_no_documents_is_checked_out_all_the_same(
    folder: Folder, with_team: Path
) -> None:
    """As one that begins with what is hidden."""
    shutil.rmtree(folder.root, ignore_errors=True)
    run_git(folder.root.parent, *FILES, "clone", "-q", "--recursive", str(with_team), folder.root.name)
    place = folder.root / "policies/team"
    for name in ("b.yaml", "c.yaml"):
        (place / name).unlink()
    (place / ".gitkeep").touch()
    assert [each.code for each in git_state.not_checked_out(folder.root)] == ["submodule"], "git has them"
    commit(place, ".gitignore", "")
    repository = folder.started()
    assert sorted(repository.snapshot.of("default")) == ["a"] and repository.warnings == []
    commit(place, "b.yaml", document("b"))
    assert repository.apply_files().problems == ()
    assert sorted(repository.snapshot.of("default")) == ["a", "b"]


@pytest.mark.parametrize(
    "line",
    [
        "path = policies/team",
        "\tPATH=policies/team # theirs",
        'path = "policies/team"',
        "path = policies/team ; x",
    ],
)
def test_the_place_of_a_submodule_is_read_as_git_reads_it(folder: Folder, line: str) -> None:
    folder.root.mkdir(exist_ok=True)
    (folder.root / ".gitmodules").write_text(f'[submodule "team"]\n{line}\n\turl = ../team\n')
    place = folder.root / "policies/team"
    place.mkdir(parents=True)
    theirs = run_git(folder.root, "config", "--file", ".gitmodules", "submodule.team.path")
    assert theirs.strip() == "policies/team"
    assert [each.file for each in git_state.not_checked_out(folder.root)] == ["policies/team"]
