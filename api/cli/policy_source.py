"""Which documents an argument names: a policies folder on disk, or one in git (`HEAD~1:policies.d`)."""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from api.cli.report import Remark
from api.cli.terminal import USAGE, CommandError, filled

if TYPE_CHECKING:
    from engine.errors import Problem
    from engine.repository.checkout import Checkout

SECONDS: Final = 60


def add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        metavar="DIR",
        type=filled,
        nargs="?",
        help="the policies folder, which holds policies/, presets/, packs/, tools/ and settings/; default: "
        "GOVERNANCE_POLICIES_DIR or ./policies.d",
    )


def default_folder() -> str:
    from api.settings import load

    name = "GOVERNANCE_POLICIES_DIR"
    return str(load({name: os.environ[name]} if name in os.environ else {}).policies_dir)


def checkout_of(argument: str | None) -> Checkout:
    """All documents that the argument names. Raises CommandError where it names nothing readable."""
    from engine.repository.checkout import checkout, load_one, wanted
    from engine.worktree.paths import FOLDERS

    name = argument or default_folder()
    contents, problems = _contents(name)
    paths = [path for path in sorted(contents) if wanted(path)]
    elsewhere = not any(path.split("/")[0] in FOLDERS for path in paths)
    if elsewhere and (paths or not problems):
        raise CommandError(
            f"`{name}` holds no documents at their places; give the folder that holds "
            + ", ".join(f"`{folder}/`" for folder in FOLDERS),
            USAGE,
        )
    if not elsewhere and is_folder(Path(name)):
        problems += _missing(Path(name))
    from api.cli.report import progress

    with progress("reading", len(paths)) as step:

        def loaded() -> Iterator[tuple[str, object]]:
            for path in paths:
                yield path, load_one(path, contents[path])
                step()

        return checkout(contents, problems, loaded())  # type: ignore[arg-type]


def sound(argument: str | None) -> Checkout:
    """The same, where every document must be good: what is broken cannot be tested or simulated."""
    from engine.errors import DocumentError

    found = checkout_of(argument)
    if found.problems:
        raise DocumentError(_prefixed(found.problems, argument or default_folder()))
    return found


def _prefixed(problems: tuple[Problem, ...], name: str) -> list[Problem]:
    from dataclasses import replace

    return [replace(each, file=shown_path(name, each.file)) for each in problems]


def shown_path(name: str, path: str) -> str:
    """A document's path as one can open it: with the folder or revision before it."""
    return f"{name.rstrip('/')}/{path}" if path else name


def problems_as_remarks(problems: Iterable[Any], folder: str) -> list[Remark]:
    """Problems of documents that do not load."""
    return [
        Remark(
            "error",
            each.code,
            each.message,
            shown_path(folder, each.file),
            each.line,
            each.column,
            data={"pointer": each.pointer},
        )
        for each in problems
    ]


def _contents(name: str) -> tuple[dict[str, bytes], list[Problem]]:
    folder = Path(name)
    if is_folder(folder):
        return _of_disk(folder)
    if ":" in name:
        revision, _, path = name.partition(":")
        return _of_git(revision, path), []
    if folder.exists():
        raise CommandError(f"`{name}` is a file; give the folder that holds `policies/`", USAGE)
    raise CommandError(
        f"there is no folder `{name}`; for a revision of git write for example `HEAD~1:policies.d`", USAGE
    )


def is_folder(path: Path) -> bool:
    """Raises CommandError where a folder above may not be looked into."""
    try:
        return path.is_dir()
    except OSError as error:
        raise CommandError(f"`{path}` cannot be read: {error.strerror}", USAGE) from None


def _of_disk(folder: Path) -> tuple[dict[str, bytes], list[Problem]]:
    from engine.errors import Problem
    from engine.worktree.disk import Disk, reason
    from engine.worktree.git_state import not_checked_out

    disk = Disk(folder)
    listing = disk.scan()
    if unreadable := listing.refused.get(""):
        raise CommandError(unreadable.message, USAGE)
    contents: dict[str, bytes] = {}
    problems = list(listing.problems)
    with contextlib.suppress(OSError):  # who cannot look there is told of the files
        problems += not_checked_out(folder, listing.files)
    for path in listing.files:
        try:
            content = disk.read(path)
        except OSError as error:
            problems.append(Problem(f"this cannot be read: {reason(error)}", "", "unreadable", path))
            continue
        if content is not None:
            contents[path] = content
    return contents, problems


def _missing(folder: Path) -> list[Problem]:
    """The service does not start without `policies/`: a wrong folder would pass for a set without policies.
    Not asked of a revision, since git keeps no empty folders."""
    from dataclasses import replace

    from engine.worktree.observer import missing_folder

    return [replace(each, file="policies") for each in missing_folder(folder)]


def _of_git(revision: str, path: str) -> dict[str, bytes]:
    """The documents under `path` (from the root of the repository, or from here with `./`) at a revision."""
    from engine.worktree.paths import ours

    if revision.startswith("-"):
        raise CommandError(f"`{revision}` is no revision", USAGE)
    tree = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}:{path}")
    if tree is None:
        if _git("rev-parse", "--verify", "--quiet", "--end-of-options", revision or "HEAD") is None:
            raise CommandError(
                f"git knows no revision `{revision}` here; where the clone has one commit alone, as in "
                "continuous integration, fetch the other one: `git fetch --depth=1 origin main`, and then "
                f"`FETCH_HEAD:{path}`",
                USAGE,
            )
        raise CommandError(
            f"git knows no folder `{path}` at `{revision}` here; the path counts from the root of the "
            "repository, or from here when it starts with `./`",
            USAGE,
        )
    listed = _git("ls-tree", "-r", "-z", "--full-tree", tree.decode().strip())
    if listed is None:
        raise CommandError(f"`{path}` at `{revision}` is no folder", USAGE)
    names: dict[str, str] = {}
    for entry in listed.split(b"\0"):
        head, _, name = entry.partition(b"\t")
        mode, _, rest = head.partition(b" ")
        path_there = name.decode("utf-8", "surrogateescape")
        if mode.startswith(b"100") and ours(path_there):
            names[path_there] = rest.split(b" ")[-1].decode()
    return _blobs(names)


def _blobs(names: Mapping[str, str]) -> dict[str, bytes]:
    answer = _git("cat-file", "--batch", sent="\n".join(names.values()).encode() + b"\n") if names else b""
    found: dict[str, bytes] = {}
    at = 0
    for path in names:
        end = (answer or b"").find(b"\n", at)
        words = (answer or b"")[at:end].split(b" ")
        if end < 0 or len(words) != 3:
            raise CommandError("git did not give the files of this revision", USAGE)
        size = int(words[2])
        found[path] = (answer or b"")[end + 1 : end + 1 + size]
        at = end + 2 + size
    return found


def _git(*arguments: str, sent: bytes = b"") -> bytes | None:
    from engine.worktree import git

    try:
        return git.call(Path(), *arguments, environment=os.environ, seconds=SECONDS, sent=sent)
    except FileNotFoundError:
        raise CommandError("git is not installed here; give two folders instead", USAGE) from None
    except subprocess.TimeoutExpired:
        raise CommandError(f"git did not answer within {SECONDS} seconds", USAGE) from None
    except subprocess.CalledProcessError:
        return None
