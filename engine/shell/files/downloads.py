"""The files that curl, wget and their like write, by their options. Knows nothing of scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final
from urllib.parse import unquote

from engine.shell.options import given

_CALLED_AS_THERE: Final = frozenset({"wget", "aria2c", "fetch"})
"""Those that call a file as the server does, unless they are told otherwise."""
_OF_WINDOWS: Final = {
    **dict.fromkeys(("iwr", "invoke-webrequest", "irm", "invoke-restmethod"), ("-outfile", "-o")),
    "wget": ("-outfile",),
    "start-bitstransfer": ("-destination", "-des", "-d"),
}
"""What PowerShell downloads with, and the options that name the file."""
_LAST_NAMED: Final = frozenset({"certutil", "bitsadmin", "start-bitstransfer"})
"""Those that may name it last."""
DOWNLOADERS: Final = (
    _CALLED_AS_THERE | _OF_WINDOWS.keys() | _LAST_NAMED | {"curl", "http", "https", "xh", "xhs"}
)
_NAMED: Final = frozenset({"output", "output-document", "out"})
_AS_THERE: Final = frozenset({"O", "d", "download"})
_FOLDER: Final = frozenset({"output-dir", "directory-prefix", "dir"})
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}://")


def downloaded(program: str, words: Sequence[str]) -> list[str]:
    """The files that are named, and those that are called as at the server."""
    named, called, folder = _files(program, words)
    found = [*named, *called]
    return [*found, *(folder + name for name in found)] if folder else found


def saved(program: str, words: Sequence[str]) -> list[str]:
    """The same, each where it is left, and those that options name without their folder."""
    is_last = program in _LAST_NAMED and not any(map(_SCHEME.match, words))
    if is_last or "--spider" in words:
        return []
    named, called, folder = _files(program, words)
    return [*named, *(folder + name for name in (*called, *(named if folder else ())) if "?" not in name)]


def _files(program: str, words: Sequence[str]) -> tuple[list[str], list[str], str]:
    """The files that are named, those that are called as at the server, and the folder of both."""
    named: list[str] = []
    called: list[str] = []
    urls: list[str] = []
    options = _OF_WINDOWS.get(program, ())
    named += (after for word, after in pairwise(words) if word.lower() in options)
    if program in _LAST_NAMED:
        named += words[-1:]
    folder, called_as_there = "", False
    for option in given(program, words):
        if option.name in ("", "url"):
            urls.append(option.value)
        elif option.name in _NAMED:
            named.append(option.value)
        elif option.name in _FOLDER:
            folder = option.value.rstrip("/") + "/"
        elif not options and (option.name in _AS_THERE or option.name.startswith("remote-n")):
            called_as_there = True
    if called_as_there or (program in _CALLED_AS_THERE and not named):
        called += (name for url in urls for name in _names(url))
    return [name for name in named if name not in ("", "-")], [name for name in called if name], folder


def _names(url: str) -> Iterator[str]:
    """What a file is called after its URL: without the query, and with it."""
    rest = _SCHEME.sub("", url, count=1).partition("#")[0]
    path, mark, query = rest.partition("?")
    name = path.rstrip("/").rpartition("/")[2] if "/" in path.rstrip("/") else "index.html"
    yield name
    if "%" in name:
        yield unquote(name)
    if mark:
        yield f"{name}?{query}"
