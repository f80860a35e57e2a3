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
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from engine.errors import DocumentError, Problem
from engine.worktree.disk import shown
from engine.worktree.paths import FOLDERS, Place, ours, place_of

log = logging.getLogger("governance.git")

SECONDS: Final = 5.0
LEAVES: Final = 2.0
"""That git has to take its locks away before it is killed."""
PATIENCE: Final = 1.0
"""Seconds that a commit waits for somebody else's work with git."""
MOST_LINES: Final = 6
"""Of what git says when it refuses."""
_UNFINISHED: Final = {
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase or `git am`",
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "sequencer": "a series of cherry-picks or reverts",
    "BISECT_START": "a bisect",
}
"""What git keeps in its folder while it waits for a person, and what it is in the middle of."""
_SAFE: Final = ("-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false")


def locked(root: Path, paths: Iterable[str] = ()) -> bool:
    """True while git is changing the work tree of this folder or of these files, as far as this user sees."""
    with contextlib.suppress(OSError):
        return any((folder / "index.lock").exists() for folder in _git_folders(root, paths))
    return False


def unfinished(root: Path, paths: Iterable[str] = ()) -> str:
    """What git is in the middle of in the work tree of this folder, or of these files, which may be a clone
    within it: what they say is of no commit that anybody meant. Empty: nothing. Raises OSError where nobody
    may look."""
    return next((what for folder in _git_folders(root, paths) if (what := _unfinished(folder))), "")


def not_checked_out(root: Path, paths: Iterable[str] = ()) -> list[Problem]:
    """Submodules that hold documents and stand empty, as after a clone, a pull or an archive (without `.git`)
    that did not take them along: without their policies more is allowed than was meant. Who removes the empty
    folder means it. Raises OSError."""
    root = Path(os.path.realpath(root))
    problems: list[Problem] = []
    for place in sorted({each for top in {root, *_tops(root, paths)} for each in _submodules(top)}):
        if not place.is_relative_to(root) or not _lacks_its_files(place):
            continue
        path = place.relative_to(root).as_posix()
        if path.partition("/")[0] in FOLDERS and ours(f"{path}/any.yaml"):
            message = (
                f"the submodule `{shown(path)}` is not checked out, so its documents are missing; run `git "
                "submodule update --init --recursive`. If you mean it, remove the empty folder"
            )
            problems.append(Problem(message, "", "submodule", shown(path)))
    return problems


def _submodules(top: Path) -> Iterator[Path]:
    """Where those of this work tree belong, by its `.gitmodules`."""
    modules = top / ".gitmodules"
    if modules.is_file():
        for line in modules.read_bytes().splitlines():
            key, _, place = line.partition(b"=")
            if key.strip().lower() == b"path":
                yield top / os.fsdecode(place.strip().strip(b'"'))


def _lacks_its_files(folder: Path) -> bool:
    """Whether it is there with nothing but what is hidden, though its commit has more, or nobody can tell."""
    if not folder.is_dir() or not all(each.name.startswith(".") for each in folder.iterdir()):
        return False
    kept = _git_folder(folder)
    index = None if kept is None else kept / "index"
    if index is None or not index.exists():
        return True
    here = [each for each in folder.rglob("*") if each.relative_to(folder).parts[0] != ".git"]
    with index.open("rb") as file:
        return int.from_bytes(file.read(12)[8:], "big") > sum(not each.is_dir() for each in here)


def out_of_sight(root: Path) -> list[Problem]:
    """That what git keeps of this folder is not there, as in a container that has the work tree alone, or has
    not put there what it should, which is no edit that would tell of it."""
    with contextlib.suppress(OSError):
        for found in _git_folders(root, ()):
            if not found.is_dir():
                message = (
                    f"`.git` leads to `{shown(str(found))}`, where nothing is, so nobody can tell whether git"
                    " is in the middle of a rebase or the like, and what the files say meanwhile comes into "
                    "force; have that folder seen here, too, or use git only while the service is stopped"
                )
                return [Problem(message, "", "git_unfinished", ".git")]
        return not_checked_out(root)
    return []


def _unfinished(folder: Path) -> str:
    try:
        return next((what for name, what in _UNFINISHED.items() if (folder / name).exists()), "")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from None


def _git_folders(root: Path, paths: Iterable[str]) -> list[Path]:
    """Where git keeps what belongs to the work tree of this folder, and of these files. Raises OSError."""
    found = map(_git_folder, _tops(root, paths))
    return [each for each in found if each is not None]


def _tops(root: Path, paths: Iterable[str]) -> list[Path]:
    """Where the work trees of this folder and of these files begin. Raises OSError."""
    root = Path(os.path.realpath(root))  # unlike `resolve`, it takes a link that leads to itself
    folders = {
        "/".join(parts[:end]) for path in paths for parts in [path.split("/")] for end in range(1, len(parts))
    }
    top = _work_tree(root)
    within = [root / each for each in sorted(folders) if (root / each / ".git").exists()]
    return within if top is None else [top, *within]


def _git_folder(top: Path) -> Path | None:
    """Of the work tree that begins here. Git itself is not asked: it may not be there, and says nothing about
    what belongs to another user."""
    dot = top / ".git"
    if not dot.is_file():
        return dot if dot.is_dir() else None
    kind, _, place = os.fsdecode(dot.read_bytes()).partition(":")  # a linked work tree, or a submodule
    return top / place.strip() if kind == "gitdir" else None


def _work_tree(folder: Path) -> Path | None:
    """The top of the work tree that the folder lies in, not of the one that a link to it does."""
    folder = Path(os.path.realpath(folder))
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)


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
    narrow = sorted(clean) if len(clean) <= 100 else ["."]
    shape = ("-n", "2000", "--no-renames", "--format=%x01%ae", "--name-only", "-z")
    history = _run(root, "log", *shape, "--", *narrow)
    author = ""
    for part in (history or "").split("\0"):
        name = part.strip("\n")
        if name.startswith("\x01"):
            author, _, name = name[1:].partition("\n")
            name = name.strip("\n")
        name = name.removeprefix(prefix)
        if name in clean:
            found.setdefault(name, author)
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
    name = author.partition("@")[0] or "governance"
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


def in_work_tree(root: Path) -> bool:
    """Whether the folder lies in a git work tree."""
    with contextlib.suppress(OSError):
        return _work_tree(root) is not None
    return False


def _wait_for_others(root: Path) -> None:
    """Give whoever works with git in this folder a moment to finish."""
    deadline = time.monotonic() + PATIENCE
    while locked(root) and time.monotonic() < deadline:
        time.sleep(0.05)


def _refuse_passing_head(root: Path) -> None:
    """A commit in the middle of a rebase or the like is gone when that is given up. Raises GitFailed."""
    with contextlib.suppress(OSError):  # git says itself where it may not look
        top = _work_tree(root)
        folder = None if top is None else _git_folder(top)
        if folder is None:
            return
        if what := _unfinished(folder):
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
