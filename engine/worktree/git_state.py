"""What state git has left a work tree in, read from its files.

Git itself is not asked: it may not be there, and says nothing about what belongs to another user.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from engine.errors import Problem
from engine.worktree.disk import reason, shown
from engine.worktree.paths import FOLDERS, ours

_UNDER_WAY: Final = {
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase or `git am`",
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "sequencer": "a series of cherry-picks or reverts",
    "BISECT_START": "a bisect",
}
"""What git keeps in its folder while it waits for a person, and what it is in the middle of."""
_MODULE: Final = re.compile(rb"""(?im)^[ \t]*path[ \t]*=[ \t]*(?:"([^"\n]*)"|([^#;\n]*))""")
"""The place of a submodule in `.gitmodules`."""


def locked(root: Path, paths: Iterable[str] = ()) -> bool:
    """True while git is changing the work tree of this folder or of these files, as far as this user sees."""
    with contextlib.suppress(OSError):
        return any((folder / "index.lock").exists() for folder in _git_folders(_tops(root, paths)))
    return False


def waits(root: Path, paths: Iterable[str] = ()) -> list[Problem]:
    """Why what these files of the folder say is of no commit that anybody meant: git is in the middle of
    something, or has not put all of it there. They may lie in clones of their own within it."""
    try:
        tops = _tops(root, paths)
        what = next((what for folder in _git_folders(tops) if (what := under_way(folder))), "")
        if not what:
            return _empty_submodules(root, tops)
    except OSError as error:
        where = shown(str(error.filename))
        message = (
            f"nobody can tell whether git is in the middle of a rebase or the like: `{where}` cannot be "
            f"looked at ({reason(error)}); let the user of the service read and enter it"
        )
    else:
        message = (
            f"git is in the middle of {what}: what the files say comes into force when it is finished or"
            " given up; `git status` says how"
        )
    return [Problem(message, "", "git_unfinished")]


def not_checked_out(root: Path, paths: Iterable[str] = ()) -> list[Problem]:
    """Submodules that hold documents and stand empty, as after a clone, a pull or an archive (without `.git`)
    that did not take them along: without their policies more is allowed than was meant. Who removes the empty
    folder means it. Raises OSError."""
    return _empty_submodules(root, _tops(root, paths))


def out_of_sight(root: Path) -> list[Problem]:
    """What no edit would tell of: what git keeps of this folder is not there, as in a container that has the
    work tree alone; or git has not put there what it should. Nothing where nobody may look."""
    with contextlib.suppress(OSError):
        tops = _tops(root, ())
        for found in _git_folders(tops):
            if not found.is_dir():
                message = (
                    f"`.git` leads to `{shown(str(found))}`, where nothing is, so nobody can tell whether git"
                    " is in the middle of a rebase or the like, and what the files say meanwhile comes into "
                    "force; have that folder seen here, too, or use git only while the service is stopped"
                )
                return [Problem(message, "", "git_unfinished", ".git")]
        return _empty_submodules(root, tops)
    return []


def in_work_tree(root: Path) -> bool:
    """Whether the folder lies in a git work tree."""
    with contextlib.suppress(OSError):
        return work_tree(root) is not None
    return False


def work_tree(folder: Path) -> Path | None:
    """The top of the work tree that the folder lies in, not of the one that a link to it does. Raises
    OSError."""
    folder = Path(os.path.realpath(folder))
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)


def git_folder(top: Path) -> Path | None:
    """Where git keeps what belongs to the work tree that begins here. Raises OSError."""
    dot = top / ".git"
    if not dot.is_file():
        return dot if dot.is_dir() else None
    kind, _, place = os.fsdecode(dot.read_bytes()).partition(":")  # a linked work tree, or a submodule
    return top / place.strip() if kind == "gitdir" else None


def under_way(folder: Path) -> str:
    """What git is in the middle of, by the folder that it keeps; empty: nothing. Raises OSError where nobody
    may look."""
    try:
        return next((what for name, what in _UNDER_WAY.items() if (folder / name).exists()), "")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from None


def _tops(root: Path, paths: Iterable[str]) -> list[Path]:
    """Where the work trees of this folder and of these files begin. Raises OSError."""
    root = Path(os.path.realpath(root))  # unlike `resolve`, it takes a link that leads to itself
    folders = {
        "/".join(parts[:end]) for path in paths for parts in [path.split("/")] for end in range(1, len(parts))
    }
    top = work_tree(root)
    within = [root / each for each in sorted(folders) if (root / each / ".git").exists()]
    return within if top is None else [top, *within]


def _git_folders(tops: Iterable[Path]) -> Iterator[Path]:
    return (folder for top in tops if (folder := git_folder(top)) is not None)


def _empty_submodules(root: Path, tops: Iterable[Path]) -> list[Problem]:
    root = Path(os.path.realpath(root))
    problems: list[Problem] = []
    for place in sorted({each for top in {root, *tops} for each in _submodules(top)}):
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
        for quoted, plain in _MODULE.findall(modules.read_bytes()):
            yield top / os.fsdecode(quoted or plain.strip())


def _lacks_its_files(folder: Path) -> bool:
    """Whether it is there with nothing but what is hidden, though its commit has more, or nobody can tell."""
    if not folder.is_dir() or not all(each.name.startswith(".") for each in folder.iterdir()):
        return False
    kept = git_folder(folder)
    index = None if kept is None else kept / "index"
    if index is None or not index.exists():
        return True
    here = [each for each in folder.rglob("*") if each.relative_to(folder).parts[0] != ".git"]
    with index.open("rb") as file:
        return int.from_bytes(file.read(12)[8:], "big") > sum(not each.is_dir() for each in here)
