"""Commands that code in another language starts: `os.system("...")`, `subprocess.run([...])` and the like.

Found by the names of such calls and the constants they are given; the rest of the code is not read. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from engine.shell.expansion import TooMuch, render, unescape
from engine.shell.options import given

MOST_CALLS: Final = 200
MOST_CODE: Final = 262_144
"""Longer code is read so far."""

_INTERPRETER: Final = re.compile(
    r"(?:python|perl|ruby|node|php|lua|deno|bun|osascript|Rscript|tclsh|expect|[gmn]?awk|groovy|scala|pypy|ipython|irb)"
    r"[\d.]*|vim?|nvim|ex|ed|emacs|gdb"
)
_CALL: Final = re.compile(
    r"(?:\b(?:system|popen\d?|Popen|run|call|check_call|check_output|getoutput|getstatusoutput|shell_exec|passthru"
    r"|proc_open|pcntl_exec|exec\w*|spawn\w*|fork_exec|create_subprocess_\w+|sh|shell|cmd|command"
    r"|do shell script)"
    r"|:!|!|\$)\s*+\(?\s*+(?:(?:file|args|command|cmd)\s*+=)?\s*+(?:[rbfuRBFU]{1,2}(?=[\"']))?(?=[\"'`\[])"
)
_STRING: Final = re.compile(
    r"\"\"\"(.{0,8000}?)\"\"\"|'''(.{0,8000}?)'''|\"((?:[^\"\\]|\\.){0,8000})\"|'((?:[^'\\]|\\.){0,8000})'"
    r"|`((?:[^`\\]|\\.){0,8000})`",
    re.DOTALL,
)
_BETWEEN: Final = re.compile(r"\s*+,\s*+(\[?)\s*+")


_QUOTED_COMMAND: Final = re.compile(r"`(?=([^`]{1,4000})`)|%x[{(\[|]([^})\]|]{1,4000})")
"""Which of two backticks opens is not known: one may stand in a text."""


_AWK_PIPE: Final = re.compile(
    r'\\"|\|&?\s*+"((?>(?:[^"\\]|\\.){0,4000}))"|"((?>(?:[^"\\]|\\.){0,4000}))"(?=\s*+\|)'
)
"""What awk gives its output to; and what it reads the output of, or gives away, maybe to a shell. A quote
behind a backslash begins nothing: of a text without an end, each would be tried."""


def quoted_commands(name: str, code: str) -> Iterator[str]:
    """What Perl, Ruby and PHP run between backticks, and awk on the sides of `|`."""
    if name.startswith(("perl", "ruby", "php")):
        pattern = _QUOTED_COMMAND
    elif name.endswith("awk"):
        pattern = _AWK_PIPE
    else:
        return
    told = (found for found in pattern.finditer(code) if found[0] != '\\"')
    for count, found in enumerate(told):
        if count == MOST_CALLS:
            raise TooMuch
        text = found[1] or found[2] or ""
        yield unescape(text) if pattern is _AWK_PIPE else text


_GIT_RUNS: Final = re.compile(
    r"(?:-x|--exec|--extcmd|--(?:tree|index|env|msg|commit|parent|tag-name)-filter"
    r"|--(?:upload|receive)-pack|--open-files-in-pager|[\w-]+\.(?:[^\s=]{0,200}\.)?"
    r"(?:pager|editor|sshCommand|fsmonitor|helper|external|textconv|command|cmd|driver|clean|smudge|process|program"
    r"|askPass|packObjectsHook|proxyCommand|alternateRefsCommand))(?:=(.*)|$)",
    re.DOTALL | re.IGNORECASE,
)
"""What git runs while it rewrites commits, or in place of its own."""


def git_scripts(words: Sequence[str]) -> Iterator[str]:
    """`git config alias.p 'push -f'` and `git -c alias.p='push -f' p` are commands in waiting, `git rebase
    -x make` and `git bisect run make` run one."""
    texts = [
        words[at + 1] for at, word in enumerate(words[:-1]) if word.startswith("alias.") and "=" not in word
    ]
    texts += [word.partition("=")[2] for word in words if word.startswith("alias.") and "=" in word]
    yield from (text[1:] if text.startswith("!") else f"git {text}" for text in texts if text)
    for at, word in enumerate(words):
        if option := _GIT_RUNS.fullmatch(word):
            script = option[1] or "".join(words[at + 1 : at + 2])
            yield from filter(None, (script.removeprefix("!"),))
        elif word.startswith("-O") and "grep" in words[:at]:
            yield from filter(None, (word[2:],))
        elif word == "-u" and "clone" in words[:at]:
            yield from words[at + 1 : at + 2]
    for verb, run in (("submodule", "foreach"), ("bisect", "run")):
        if verb in words and run in words[words.index(verb) :]:
            rest = words[words.index(run, words.index(verb)) + 1 :]
            rest = rest[next((at for at, word in enumerate(rest) if word[:1] != "-"), len(rest)) :]
            yield render(rest) if len(rest) > 1 else "".join(rest)


def is_interpreter(name: str) -> bool:
    return _INTERPRETER.fullmatch(name) is not None


_FROM_INPUT: Final = frozenset(
    ["python", "pypy", "perl", "ruby", "node", "php", "lua", "deno", "bun", "tclsh"]
)
INPUTS: Final = frozenset(["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"])
INPUT: Final = "-"


def program_file(name: str, words: Sequence[str]) -> str | None:
    """Where an interpreter finds its program: a file, or `INPUT`; None where it is told otherwise."""
    language = name.rstrip("0123456789.")
    if language not in _FROM_INPUT:
        return None
    found = list(given(language, words[1:] if words[:1] == ["run"] else words, most=1))
    if any("%" in option.marks for option in found):
        return None
    file = next((option.value for option in found if not option.name), INPUT)
    return INPUT if file in INPUTS else file


def calls_in(code: str) -> Iterator[str | tuple[str, ...]]:
    """Scripts, and commands as words; raises TooMuch when there are too many."""
    for count, call in enumerate(_CALL.finditer(code, 0, MOST_CODE)):
        if count == MOST_CALLS:
            raise TooMuch
        at = call.end()
        listed = code[at] == "["
        words: list[str] = []
        at += listed
        while len(words) < 64:
            while code[at : at + 1].isspace():
                at += 1
            found = _STRING.match(code, at)
            if found is None:
                break
            words.append(unescape(next(group for group in found.groups() if group is not None)))
            between = _BETWEEN.match(code, found.end())
            if between is None:
                break
            at = between.end()
        if words and (listed or len(words) > 1):
            yield tuple(words)
        if words and not listed:
            yield words[0]
    if len(code) > MOST_CODE:
        raise TooMuch
