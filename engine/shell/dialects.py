"""What zsh and fish run and bash does not: words in front of a command, their builtins, their expansions.

Which shell a tool has is not known, and bash refuses or ignores these forms, so they are read in addition.
Pure; knows nothing of scripts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from engine.shell.starting.started import Started, after_options

BEFORE_COMMANDS: Final = ("noglob", "nocorrect", "and", "or", "not", "begin")
"""Words that stand in front of a command and leave it as it is. zsh has `-` as well, but in texts it begins
the items of a list, which are no commands."""
OWN_FILES: Final = {f"zf_{name}": name for name in ("rm", "rmdir", "mv", "ln", "chmod", "chown", "mkdir")}
"""What `zsh/files` builds in."""
HOLDING_CODE: Final = frozenset({"functions", "dis_functions", "aliases", "galiases", "saliases"})
"""Arrays whose elements are code."""
PROGRAMS: Final = "commands"
"""The array that holds where each program is."""
ARGUMENTS: Final = "argv"
TAKING_SCRIPTS: Final = frozenset({"eval", "source", ".", "fish", "sh", "bash", "zsh"})
"""What runs what fish gives it by `(...)`."""

_EQUALS: Final = re.compile(r"=[A-Za-z_][\w.+-]*", re.ASCII)
"""`=rm` is where that program is."""
_QUOTED: Final = re.compile(r"'((?>(?:[^'\\]|\\.)*))'|\"(?>(?:[^\"\\]|\\.)*)\"|\\.", re.DOTALL)
_OF_BASH: Final = re.compile(r"(?:\A|(?<=[\s;|&(={]))\$'(?>(?:[^'\\]|\\[^'])*)\\'")
_GLUED: Final = re.compile(r"(rd|rmdir|del|erase|copy|move|format|cmd)((?:/[A-Za-z]{1,2})+)", re.IGNORECASE)
"""`rd/s/q` of cmd.exe."""
_FLAG: Final = r"[sjgZlr](?P<mark>[^\w\s()])[^()]{0,20}?(?P=mark)|[@A-Za-z0-9%#^~+-]"
FLAGS: Final = rf"(?:\((?>(?:(?>{_FLAG})){{1,12}})\))?[=~^]{{0,2}}"
"""How a parameter is to be expanded, before its name: `${(s:,:)x}`, `${=x}`."""
LOST: Final = re.compile(rf"\$\{{(?:\$\{{|{FLAGS}(?:\$\{{|:[-=+]))")
"""An expansion within an expansion."""
UNNAMED: Final = re.compile(rf"\{{{FLAGS}:-")
SPLITTING: Final = re.compile(r"(?:\((?:[@zfv0]|s(?P<by>[^\w\s()])[ \t]+(?P=by))+\))?[=~^]*")
"""Flags after which the value falls apart at blanks, and is no other."""
SUBSCRIPT: Final = re.compile(
    r"\[(?:([@*])|(-?\d{1,5})(?:(?:,|\.\.)(-?\d{1,5}))?|([\w.+-]{1,200}))\]", re.ASCII
)
"""Behind `$name`, where bash has text."""
ALTERNATIVES: Final = re.compile(r"\(([\w.*?~-]{1,200}(?:\|[\w.*?~-]{0,200}){0,20})\)", re.ASCII)
"""`id_(rsa|dsa)` within a word."""
QUALIFIER: Final = re.compile(
    r"\([\w.,@=*^%+-]{0,16}?e(?:\[([^\]\n]{1,2000})\]|(?P<mark>[:'\"])(.{1,2000}?)(?P=mark))"
)
"""`*(e:'code':)` runs code for each file."""


def element(words: Sequence[str], found: re.Match[str]) -> list[str]:
    """The words of an array at a subscript, which count from 1."""
    everything, begin, end, _ = found.groups()
    if everything:
        return list(words)
    if begin is None or begin == "0":
        return []
    at = int(begin) - (int(begin) > 0)
    if end is None:
        return list(words[at:][:1])
    return list(words[at : int(end) if int(end) >= 0 else (len(words) + int(end) + 1)])


def readings_elsewhere(name: str, words: Sequence[str]) -> list[list[str]]:
    """What other shells than bash run in place of a command, or behind it."""
    found: list[list[str]] = []
    if "^" in name and name != "^":  # the escape of cmd.exe
        found.append([word.replace("^", "") or "^" for word in words])
    if (glued := _GLUED.fullmatch(words[0])) is not None:
        found.append([glued[1], *(f"/{each}" for each in glued[2].split("/")[1:]), *words[1:]])
    if _EQUALS.fullmatch(name):
        found.append([name[1:], *words[1:]])
    for at, word in enumerate(words[:-1]):
        if word == "]]" or (word.startswith("[[ ") and word.endswith(" ]]")):  # `if [[ -d x ]] rm x`
            found.append(list(words[at + 1 :]))
            break
        if word == "always" and words[at + 1] == "{" and words[at + 2 :]:  # `{ ls } always { rm x }`
            found.append(list(words[at + 2 :]))
            break
    return found


def quoted_elsewhere(text: str) -> list[str]:
    """A text as bash would have to be told what other shells read in it: dash has no `$'...'`, and fish reads
    `\\'` within single quotes."""
    if "\\'" not in text:
        return []
    found = [text.replace("$'", "\\$'")] if _OF_BASH.search(text) is not None else []
    of_fish = _QUOTED.sub(_as_bash_quotes, text)
    return [*found, of_fish] if of_fish != text else found


def _as_bash_quotes(quoted: re.Match[str]) -> str:
    if quoted[1] is None or "\\'" not in quoted[1]:
        return quoted[0]
    said = re.sub(r"\\([\\'])", r"\1", quoted[1])
    return "'" + said.replace("'", "'\\''") + "'"


def aliased(words: Sequence[str]) -> list[tuple[str, str]]:
    """Names and scripts of `alias a=b c=d`, and of fish's `alias a b`."""
    if _is_alias_of_fish(words):
        return [(words[0], " ".join(words[1:]))]
    return [(word.partition("=")[0], word.partition("=")[2]) for word in words if "=" in word]


def name_scripts(known: dict[str, str], command: str, words: Sequence[str]) -> None:
    """Carry out `alias` or `hash`. What bash does not take for one is known besides what was before."""
    is_sure = command == "alias" and not _is_alias_of_fish(words)
    for name, script in aliased(words) if command == "alias" else _hashed(words):
        before = None if is_sure else known.get(name)
        known[name] = script if before in (None, script) else f'{before} "$@"; {script}'


def _is_alias_of_fish(words: Sequence[str]) -> bool:
    return len(words) > 1 and "=" not in words[0] and not words[0].startswith("-")


def _hashed(words: Sequence[str]) -> list[tuple[str, str]]:
    """Names and programs of bash's `hash -p /bin/rm x`, and of `hash x=/bin/rm`."""
    named = words[2:] if words[:1] in (["-p"], ("-p",)) else ()
    found = [(name, words[1]) for name in named]
    found += [(word.partition("=")[0], word.partition("=")[2]) for word in words if "=" in word]
    return [(name, path.rpartition("/")[2]) for name, path in found]


def zargs(words: Sequence[str], stdin: str | None) -> list[Started]:
    """`zargs -- file ... -- command ...`."""
    rest = words[after_options(words, "nPs") :]
    at = next((at for at, word in enumerate(rest) if word == "--"), len(rest))
    command = (*rest[at + 1 :], *rest[:at])
    return [Started("words", words=command)] if rest[at + 1 :] else []
