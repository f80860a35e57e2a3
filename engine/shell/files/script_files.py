"""Which files the scripts of sed and awk read and write: `sed 'w x'`, `awk '{print > "x"}'`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from engine.shell.expansion import unescape
from engine.shell.files.file_calls import Use, Uses

ANY: Final = "$(...)"
"""A file that the text does not name."""

_LONGEST: Final = 65_536
_ADDRESS: Final = re.compile(
    r"(?>(?:[\s;{}]|[\d$,~+!]|/(?>(?:[^/\\\n]|\\.)*)/[IM]*|\\([^\\\n])(?>(?:(?!\1)[^\\\n]|\\.)*)\1[IM]*)*)",
    re.DOTALL,
)
_SUBSTITUTED: Final = re.compile(
    r"[sy]([^\\\n])(?>(?:(?!\1)[^\\]|\\.)*)\1(?>(?:(?!\1)[^\\]|\\.)*)\1[gpiImMe\d]*+", re.DOTALL
)
_LINE: Final = re.compile(r"[^\n]*+")
_TEXT: Final = re.compile(r"(?>(?:[^\n\\]|\\.)*)", re.DOTALL)
_LABEL: Final = re.compile(r"[^\n;]*+")
_SKIPPED: Final = {
    **dict.fromkeys("aic", _TEXT),
    **dict.fromkeys(":btT", _LABEL),
    **dict.fromkeys("#ev", _LINE),
}
"""What stands behind a command, and is no command."""


def paths_in_sed(script: str) -> Uses:
    """What a script of sed reads and writes besides its input, as GNU sed takes it."""
    at, end = 0, min(len(script), _LONGEST)
    while at < end:
        address = _ADDRESS.match(script, at)
        at = address.end() if address else at
        if (found := _SUBSTITUTED.match(script, at)) is not None:
            at = found.end()
            if script[at : at + 1] != "w":
                continue
        command = script[at : at + 1]
        at += 1
        if command and command in "wWrR":
            line = _LINE.match(script, at)
            name = line[0].strip() if line else ""
            if name:
                yield ("reads" if command in "rR" else "writes"), name
        else:
            line = _SKIPPED[command].match(script, at) if command in _SKIPPED else None
        at = line.end() if line else at
    if len(script) > _LONGEST:
        yield "writes", ANY


_WORDS: Final = r"(\bprintf?\b|\bgetline\b)|(>>?|<)|([();}\n])|[A-Za-z_]\w*+|[^\sA-Za-z_]"
_TOKEN: Final = re.compile(rf'"((?>(?:[^"\\\n]|\\.)*))"?|{_WORDS}')
_NO_TEXT: Final = re.compile(rf"((?!))|{_WORDS}")
"""The same where no text begins."""
_ENDING: Final = frozenset([";", "}", "\n"])
_ANY_PATH: Final = re.compile(r"(?:~|\.{1,2})?/\S+")


def _tokens(program: str) -> Iterator[re.Match[str]]:
    """INVARIANT: a text without an end is none, nor is one that would begin within it: none is looked for
    there, as that would take the square of its length."""
    for found in _TOKEN.finditer(program, 0, _LONGEST):
        if found[1] is not None and found.end() == found.end(1):
            yield from _NO_TEXT.finditer(program, *found.span())
        else:
            yield found


def paths_in_awk(program: str) -> Uses:
    """What a program of awk reads and writes besides its input; its other constants may be names of files,
    which are written where it writes what it does not spell out."""
    tokens = list(_tokens(program))
    named: set[int] = set()
    writes_any = len(program) > _LONGEST
    doing, depth = "", 0
    for at, token in enumerate(tokens):
        if token[2]:
            doing, depth = token[2], 0
        elif token[4] in _ENDING:
            doing = ""
        elif token[4]:
            depth += 1 if token[4] == "(" else -1
        elif token[3] and doing and depth <= 0 and (doing == "getline") is (token[3] == "<"):
            use: Use = "reads" if token[3] == "<" else "writes"
            name, behind = (*tokens[at + 1 : at + 3], None, None)[:2]
            if name is not None and name[1] is not None and (behind is None or behind[4] is not None):
                named.add(at + 1)
                yield use, unescape(name[1])
            else:
                writes_any |= use == "writes"
                yield use, ANY
    for at, token in enumerate(tokens):
        if at not in named and token[1] and _ANY_PATH.fullmatch(token[1][:1_000]):
            yield "reads", unescape(token[1])
            if writes_any:
                yield "writes", unescape(token[1])
