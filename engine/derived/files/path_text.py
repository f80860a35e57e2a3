"""A path in normal form, and what else it stands for: `~/x/../.ss[h]/id_*` reads `~/.ssh/id_*` and
`~/.ssh/id_rsa`.

`/ETC/x` is `/etc/x` too, where letters of both sizes are one.

Decides how paths are written so that two of one file are one text. Pure; nothing of a disk is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

from engine.fields.computed import UNREADABLE
from engine.fields.words import word_set
from engine.shell.files.settled_path import settled

LONGEST: Final = 4_096

_HOME: Final = re.compile(
    r"(?:\$(?:HOME|USERPROFILE)|\$\{(?:HOME|USERPROFILE)(?::-[^}]*)?\}|%USERPROFILE%|\$env:USERPROFILE)(?=[/\\]|$)"
)
_HERE: Final = re.compile(r"(?:\$PWD|\$\{PWD\}|\$\(pwd\))(?=/|$)")
FILE_URL: Final = re.compile(r"file:(?://(?:localhost)?(?=/))?(?=[/~.])", re.IGNORECASE)
_ADDRESS: Final = re.compile(
    r"[\x00-\x20<\"']*(?:(?:url|view-source):[\x00-\x20]*)*file:(?=[^\s>])([^>]*)", re.IGNORECASE | re.DOTALL
)
"""How the address of a file begins, behind what browsers and others leave out."""
_BEGINS: Final = re.compile(r"[\x00-\x20<\"']*+[fuv]", re.IGNORECASE)
_IGNORED: Final = re.compile(r"[\t\r\n]+")
"""What browsers leave out of an address, wherever it stands."""
_HOST: Final = re.compile(r"\A//(?![A-Za-z][:|]/)[^/]+(?=/)")
_BEHIND: Final = re.compile(r"[?#].*", re.DOTALL)
"""What in the address of a file says nothing of which it is; a path may have it, too."""
_ROOT: Final = re.compile(r"(?:/proc/(?:self|thread-self|\d{1,9})(?:/task/\d{1,9})?/root)+(?=/|\Z)")
"""The same root by another name."""
_DATA: Final = re.compile(r"(?:data:[^,\s]{0,200},)?[\w+/=-]*+|[^/~.$\\]\S{0,4096}\s.*", re.DOTALL)
"""Base64 and prose, which are no paths, whatever their key says."""
_WINDOWS: Final = re.compile(r"(?:[A-Za-z]:|~|%\w+%|\$env:\w+|\.{1,2})?\\", re.IGNORECASE)
_CLASS: Final = re.compile(r"\[([^\]\[!^-])\]")
_ALL_WITHIN: Final = re.compile(r"(?:/|^)(?:\*{1,2}|\.\*|\*\.\*|\.\[!\.\]\*|\.\?\*|\{\*,\.\*\})$")

_KNOWN_NAMES: Final = (
    ".ssh .aws .gnupg .kube .docker .netrc .npmrc .pypirc .env .config .git .bash_history .zsh_history "
    ".bashrc .profile .zshrc .git-credentials id_rsa id_ed25519 id_ecdsa id_dsa authorized_keys "
    "known_hosts credentials config.json shadow passwd sudoers hosts etc bin sbin usr var lib boot dev "
    "root home opt proc sys srv mnt tmp Library Users Documents Desktop secrets terraform.tfstate "
)
KNOWN_NAMES: Final = _KNOWN_NAMES.split()
"""Names of files and folders that a glob may stand for; one that fits is tried."""

_SAME_END: Final = re.compile(r"(?<=[^./ ])(?:[. ]{1,64}|::\$DATA)\Z", re.IGNORECASE)
"""What Windows leaves out at the end of a name."""
_TOP: Final = re.compile(r"(/|[A-Za-z]:/)([^/]+)")
_TOP_FOLDERS: Final = {
    name.lower(): name
    for name in (
        *word_set(
            "bin boot dev etc home lib lib64 media mnt opt private proc root run sbin srv sys tmp usr var"
        ),
        *word_set("Applications Library System Users Volumes Windows ProgramData"),
        *("Program Files", "Program Files (x86)"),
    )
}
"""Folders below the root, as they are written; macOS and Windows find them in any case."""

MOST_STARS: Final = 4


def file_address(text: str) -> str | None:
    """A text that is the address of a file as `file:` and its path; None for any other. Whose host it names
    matters to nobody."""
    if _BEGINS.match(text) is None or (found := _ADDRESS.match(_IGNORED.sub("", text))) is None:
        return None
    path = _HOST.sub("", found[1].replace("\\", "/"), count=1)
    return f"file:{path}" if path.startswith((".", "~")) else f"file:/{path.lstrip('/')}"


def paths_of(word: str) -> Iterator[str]:
    """The path that a word names in normal form, then what it stands for too; nothing for an empty word.
    `UNREADABLE` for a path that is too long even in normal form."""
    readings = [word]
    if (address := file_address(word)) is not None:
        readings += address, _BEHIND.sub("", address)
    for each in dict.fromkeys(readings):
        yield from _paths_of(each)


def _paths_of(word: str) -> Iterator[str]:
    path = _normal(word)
    if not path:
        return
    yield from _meant(path)
    if (same := _SAME_END.sub("", path)) != path:
        yield from _meant(same)
    top = _TOP.match(path)
    if top is not None and (folder := _TOP_FOLDERS.get(top[2].lower(), top[2])) != top[2]:
        yield from _meant(f"{top[1].upper()}{folder}{path[top.end() :]}")


def _meant(path: str) -> Iterator[str]:
    yield path
    within = _ALL_WITHIN.search(path)
    if within is not None:
        yield path[: within.start()] or ("/" if path[0] == "/" else ".")
    if any(char in path for char in "*?["):
        known = "/".join(map(_known, path.split("/")))
        if known != path:
            yield known


def _normal(word: str) -> str:
    path = word.strip()
    if len(path) > 1 and path[0] == path[-1] and path[0] in "'\"`":
        path = path[1:-1]
    if not path or "\0" in path:
        return path[:LONGEST]
    file = FILE_URL.match(path)
    if file is not None:
        path = unquote(path[file.end() :])
    path = _HERE.sub(".", _HOME.sub("~", path))
    if _WINDOWS.match(path):
        path = path.replace("\\", "/")
    if "[" in path:
        path = _CLASS.sub(r"\1", path)
    path = settled(path)
    path = "/" + path.lstrip("/") if path.startswith("//") else path
    root = _ROOT.match(path)
    path = path[root.end() :] or "/" if root else path
    if len(path) <= LONGEST:
        return path
    return path[:LONGEST] if _DATA.fullmatch(path) else UNREADABLE


def within(folder: str, path: str) -> str:
    """A path as seen from outside a folder; `UNREADABLE` for one in a folder that is too long."""
    if not folder or path.startswith(("/", "~", "$")):
        return path
    return UNREADABLE if len(folder) > LONGEST or folder == UNREADABLE else f"{folder}/{path}"


@lru_cache(maxsize=1024)
def _known(segment: str) -> str:
    """The known name that a glob of one segment stands for, or the segment itself."""
    if len(segment) > 64 or segment.count("*") > MOST_STARS or not any(char in segment for char in "*?["):
        return segment
    if not any(char.isalnum() for char in segment):
        return segment
    return next((name for name in KNOWN_NAMES if fnmatchcase(name, segment)), segment)
