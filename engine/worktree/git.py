"""What git knows about the policies folder, and the optional commit of an API write. Never pushes.

Everything here is best effort: where git is missing, slow or refuses, the answer is "nothing known", and a
policy write never fails because of it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from engine.errors import DocumentError
from engine.worktree.git_state import git_folder, in_work_tree, locked, under_way, work_tree
from engine.worktree.paths import Place, place_of

log = logging.getLogger("governance.git")

SECONDS: Final = 5.0
LEAVES: Final = 2.0
"""That git has to take its locks away before it is killed."""
PATIENCE: Final = 1.0
"""Seconds that a commit waits for somebody else's work with git."""
COMMITS_ALONE: Final = 20
"""That are asked for one by one, since a few edits stand at the end of a history that may be long."""
MOST_LINES: Final = 6
"""Of what git says when it refuses."""
_SAFE: Final = ("-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false")


def authors(root: Path, paths: Iterable[str]) -> Mapping[str, str]:
    """The e-mail of the author of the last commit that touched each path, for paths without local changes."""
    by_home: defaultdict[str, set[str]] = defaultdict(set)
    for path in paths:
        by_home[_home(root, path)].add(path)
    return {
        home + name: author
        for home, those in by_home.items()
        for name, author in _authors(root / home, {path.removeprefix(home) for path in those}).items()
    }


def _authors(root: Path, wanted: set[str]) -> Mapping[str, str]:
    if not in_work_tree(root):
        return {}
    changed = _run(root, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--", ".")
    prefix = _run(root, "rev-parse", "--show-prefix")
    if changed is None or prefix is None:
        return {}
    prefix = prefix.strip("\n")
    dirty = {entry[3:].removeprefix(prefix) for entry in changed.split("\0") if entry}
    clean = wanted - dirty
    if not clean:
        return {}
    found: dict[str, str] = {}
    few = len(clean) <= 100
    for most in (*("1",) * COMMITS_ALONE, "2000") if few else ("2000",):
        named = _named(root, prefix, most, sorted(clean - found.keys()) if few else ["."])
        found = {name: author for name, author in named.items() if name in clean} | found
        if not named or clean <= found.keys():
            break
    return found


def _named(root: Path, prefix: str, most: str, narrow: Iterable[str]) -> Mapping[str, str]:
    """What the last commits that touched these paths name, and who made the newest of them."""
    shape = ("--no-merges", "--no-renames", "--format=%x01%ae", "--name-only", "-z")
    history = _run(root, "log", "-n", most, *shape, "--", *narrow)
    found: dict[str, str] = {}
    author = ""
    for part in (history or "").split("\0"):
        name = part.strip("\n")
        if name.startswith("\x01"):
            author, _, name = name[1:].partition("\n")
            name = name.strip("\n")
        if name:
            found.setdefault(name.removeprefix(prefix), author)
    return found


def commit(root: Path, path: str, author: str, message: str) -> bool:
    """`commit_file`, or False when git did not; then the log says why, and the change goes along with the
    next commit of the file."""
    try:
        commit_file(root, path, author, message)
    except GitFailed as failed:
        log.warning("git did not commit `%s`: %s; the policy is in force all the same", path, failed)
        return False
    return True


def commit_file(root: Path, path: str, author: str, message: str) -> None:
    """Commit just this file (or its removal) as it is now, with the caller as author. Raises GitFailed."""
    name = author.partition("@")[0]
    name = name if any(map(str.isalnum, name)) else "governance"  # git refuses a name of nothing but dots
    identity = ("-c", f"user.name={name}", "-c", f"user.email={author}")
    home = _home(root, path)
    root, path = root / home, path.removeprefix(home)
    if not in_work_tree(root):
        raise GitFailed("the folder is in no git work tree")
    _wait_for_others(root)
    _refuse_passing_head(root)
    paths = [path]
    if (root / path).exists():
        # Git takes a file that it has already, also where `.gitignore` names it.
        known = _git(root, "ls-files", "-v", "--", path)
        if known[:1].islower():  # git looks at no change of it, and says that there is none
            raise GitFailed(
                f"git is told that `{path}` does not change; `git update-index --no-assume-unchanged {path}`"
            )
        force = ("--force",) if known else ()
        _git(root, "add", *force, "--", path)
        paths += _moved_from(root, home, path)
    status = ("status", "--porcelain", "--untracked-files=no", "--", *paths)
    if not _git(root, *status):
        return  # an earlier commit of the file has it already
    try:
        _git(root, *identity, "commit", "--quiet", "--no-verify", "--only", "-m", message, "--", *paths)
    except GitFailed:
        if _git(root, *status):
            # Not left staged: it would go along with, or be undone by, what somebody else does there.
            _run(root, "reset", "--quiet", "--", path)
            raise  # and else somebody else has just committed it


def _home(root: Path, path: str) -> str:
    """The folder within this one, such as `policies/team/`, that git is to be called in for the file: a clone
    or a submodule keeps a history of its own. Empty: it belongs to what the folder itself belongs to."""
    parts = path.split("/")
    homes = ("/".join([*parts[:end], ""]) for end in range(len(parts) - 1, 0, -1))
    return next((home for home in homes if (root / home / ".git").exists()), "")


def _wait_for_others(root: Path) -> None:
    """Give whoever works with git in this folder a moment to finish."""
    deadline = time.monotonic() + PATIENCE
    while locked(root) and time.monotonic() < deadline:
        time.sleep(0.05)


def _refuse_passing_head(root: Path) -> None:
    """A commit in the middle of a rebase or the like is gone when that is given up. Raises GitFailed."""
    with contextlib.suppress(OSError):  # git says itself where it may not look
        top = work_tree(root)
        folder = None if top is None else git_folder(top)
        if folder is None:
            return
        if what := under_way(folder):
            raise GitFailed(f"cannot commit during {what}; finish it, or give it up")
        if not (folder / "HEAD").read_bytes().startswith(b"ref:"):
            log.warning(
                "no branch is checked out in `%s`: what is committed now is lost to sight when one is; "
                "check one out",
                root,
            )


def _moved_from(root: Path, home: str, path: str) -> list[str]:
    """Where the file was before somebody moved it without committing that; `home` is what all that is a
    document begins with.

    INVARIANT: what is committed never holds a policy twice.
    """
    shape = ("--name-only", "--relative", "--no-renames", "--diff-filter=D", "-z")
    gone = _run(root, "diff", *shape, "HEAD", "--", ".") or ""
    place = _place(home + path)
    return [each for each in gone.split("\0") if each and each != path and _place(home + each) == place]


def _place(path: str) -> Place | None:
    try:
        return place_of(path)
    except DocumentError:
        return None


class GitFailed(Exception):
    """Git did not do as told; says why."""

    @property
    def busy(self) -> bool:
        """True when somebody else works with git there, so that it may be tried again."""
        signs = (".lock", "cannot lock", "commit during a ")
        return any(sign in str(self) for sign in signs)


def _run(folder: Path, *arguments: str) -> str | None:
    """What git says; None when it could not."""
    try:
        return _git(folder, *arguments)
    except GitFailed as failed:
        log.debug("git %s: %s", arguments[0], failed)
        return None


def _git(folder: Path, *arguments: str) -> str:
    """What git says. Raises GitFailed."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment |= {"GIT_TERMINAL_PROMPT": "0", "GIT_LITERAL_PATHSPECS": "1"}
    try:
        done = call(folder, *_SAFE, *arguments, environment=environment, seconds=SECONDS)
    except subprocess.CalledProcessError as error:
        said = (error.stderr.strip() or error.stdout.strip()).decode("utf-8", "replace")
        lines = [line.strip() for line in said.splitlines() if line.strip() and line[:5] != "hint:"]
        raise GitFailed(" / ".join(lines[:MOST_LINES]) or f"it ended with {error.returncode}") from None
    except subprocess.TimeoutExpired:
        raise GitFailed(
            f"it was not done after {SECONDS:g} seconds: it, or what it calls to sign or to filter, seems to "
            "wait for somebody"
        ) from None
    except (OSError, subprocess.SubprocessError) as error:
        raise GitFailed(str(error)) from None
    return done.decode("utf-8", "surrogateescape")


def call(
    folder: Path, *arguments: str, environment: Mapping[str, str], seconds: float, sent: bytes = b""
) -> bytes:
    """What git says to something `sent`. Raises OSError, subprocess.SubprocessError."""
    command = ["git", "-c", "core.fsmonitor=false", *arguments]
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**environment, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # what it starts in turn ends with it, and asks nothing on a terminal
    ) as process:
        try:
            said, complaint = process.communicate(sent, seconds)
        except BaseException:
            _end(process)
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, said, complaint)
    return said


def _end(process: subprocess.Popen[bytes]) -> None:
    """Git that is killed leaves its locks behind, which keep everybody from working there; git that is asked
    to end takes them away."""
    if os.name == "nt":
        process.kill()
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LEAVES)
            return
