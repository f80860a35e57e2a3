"""What builtins of a shell assign: `read`, `mapfile`, `declare`, `printf -v`, `set`, `shift` and others.

Knows nothing of syntax. What a builtin assigns that cannot be told from the text is left unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from engine.shell.emulation import COMMANDLET, output_of
from engine.shell.expansion import quote, unescape
from engine.shell.variables.store import MOST_VALUES, Variables

DECLARING: Final = frozenset({"export", "declare", "local", "readonly", "typeset"})
_READ_VALUES: Final = "adnNptui"
_MAPFILE_VALUES: Final = "dnOsuCc"
_ESCAPED: Final = re.compile(r"\\(?:\n|(.))")
_COUNT: Final = re.compile(r"\d{1,5}")
_CALCULATED: Final = re.compile(
    r"(?:\+\+|--)\s*+([A-Za-z_]\w*+)|(?<!\w)([A-Za-z_]\w*+)(?:\[[^\]]*+\])?\s*+(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))",
    re.ASCII,
)
"""Variables that an arithmetic expression assigns."""
_POWERSHELL: Final = re.compile(r"\$([A-Za-z_]\w{0,60}) ?= ?(.{1,2000})", re.ASCII | re.DOTALL)
_SET_OPTION: Final = re.compile(r"[-+][A-Za-z]+")


def assigned(
    known: Variables, name: str, words: Sequence[str], stdin: str | None, certain: bool
) -> list[str]:
    """Carry out what the builtin `name` assigns; answers with what is worth an entry of its own."""
    rule = _RULES.get(name)
    if rule is None and name[:1] == "$":
        rule, words = _powershell, [name, *words]
    return (rule(known, words, stdin, certain) or []) if rule is not None else []


def _powershell(known: Variables, words: Sequence[str], stdin: str | None, certain: bool) -> None:
    """`$x = 'a'`; what a command gives, as in `$x = Join-Path $y z`, is not known."""
    is_call = len(words) > 3 and words[1] == "=" and COMMANDLET.fullmatch(words[2]) is not None
    found = _POWERSHELL.match(" ".join(words))
    if found is not None and not is_call:
        known.assign(found[1], (found[2], ""), False, False)


def _declare(known: Variables, words: Sequence[str], stdin: str | None, certain: bool) -> list[str]:
    letters = "".join(word[1:] for word in words if word[:1] == "-" and word[1:2] != "-")
    found: list[str] = []
    for word in words:
        variable, equals, value = word.partition("=")
        name = variable.removesuffix("+")
        if "n" in letters and value.isidentifier():
            known.references[variable] = value
            continue
        if folded := [letter for letter in letters if letter in "liu"]:
            known.folded[name] = folded[-1]
        if equals:
            known.assign(name, (value,), variable.endswith("+"), certain)
            found.append(f"{variable}={quote(value) if value else ''}")
        if "r" in letters:
            known.constants.add(name)
    return found


def _readonly(known: Variables, words: Sequence[str], stdin: str | None, certain: bool) -> list[str]:
    return _declare(known, ["-r", *words], stdin, certain)


def _environment(known: Variables, words: Sequence[str], stdin: str | None, certain: bool) -> None:
    for word in words:
        variable, equals, value = word.partition("=")
        if equals and variable.isidentifier():
            known.assign(variable, (value,), False, False)


def _set(known: Variables, words: Sequence[str], stdin: str | None, certain: bool) -> None:
    at = 0
    while at < len(words) and words[at] != "--" and _SET_OPTION.fullmatch(words[at]):
        at += 1 + (words[at][-1] == "o")
    while at < len(words) and len(words[at]) > 2 and words[at].startswith("--"):
        at += 1  # options of fish
    rest = words[at:]
    if len(rest) > 1 and rest[0].isidentifier():  # a variable of fish
        known.assign(rest[0], [*rest[1:]] if len(rest) > 2 else (rest[1],), False, False)
        known.assign(rest[0], ("",), False, False)  # which bash does not set
    if rest[:1] in (["--"], ("--",)):
        known.give(rest[1:], certain)
    elif rest:
        known.give(rest[1:] if rest[0] == "-" else rest, certain)


def _shift(known: Variables, words: Sequence[str], stdin: str | None, certain: bool) -> None:
    count = words[0] if words else "1"
    known.shift(int(count) if re.fullmatch(r"\d{1,4}", count) else None, certain)


def _unset(known: Variables, words: Sequence[str], stdin: str | None, certain: bool) -> None:
    if certain:
        for word in words:
            if word not in known.constants:
                known.forget(word)


def _read(known: Variables, words: Sequence[str], stdin: str | None, certain: bool) -> None:
    """Each line of the input is one that may be read, since a loop reads one after the other."""
    if stdin is None:
        return
    options, names = _options(words, _READ_VALUES)
    ends = unescape(options["d"], null="\0")[:1] or "\0" if "d" in options else "\n"
    text = stdin if ends == "\0" else stdin.replace("\0", "\n")
    if "r" not in options:
        text = _ESCAPED.sub(r"\1", text)
    lines = list(dict.fromkeys(text.removesuffix(ends).split(ends)))
    targets = [options["a"]] if "a" in options else names or ["REPLY"]
    separators = _separators(known)
    if len(lines) * len(separators) > MOST_VALUES:
        for target in targets:
            known.lose(target)
        return
    count = next((options[letter] for letter in "nN" if letter in options), "")
    lines = [line[: int(count)] if _COUNT.fullmatch(count) else line for line in lines]
    read = [(line, marks) for line in lines for marks in (separators if names or "a" in options else [""])]
    source = f"{targets[0]}#read{known.changes}"
    if "a" in options:
        for turn, (line, marks) in enumerate(read):
            known.assign(targets[0], _parts(line, marks, 0), False, certain and not turn)
        return
    parts = [[*_parts(line, marks, len(targets)), *[""] * len(targets)] for line, marks in read]
    for at, target in enumerate(targets):
        known.assign(target, tuple(each[at] for each in parts), False, certain, source)


def _mapfile(known: Variables, words: Sequence[str], stdin: str | None, certain: bool) -> None:
    if stdin is None:
        return
    options, names = _options(words, _MAPFILE_VALUES)
    ends = unescape(options.get("d", "\n"), null="\0")[:1] or "\0"
    lines = stdin.split(ends)
    lines = lines if lines[-1] else lines[:-1]
    if "t" not in options:
        lines = [line + ends for line in lines]
    name = (names or ["MAPFILE"])[0]
    skipped = options.get("s", "0")
    known.assign(name, lines[int(skipped) if _COUNT.fullmatch(skipped) else 0 :], False, certain)
    known.scattered.add(name)


def _printf(known: Variables, words: Sequence[str], stdin: str | None, certain: bool) -> None:
    if words and words[0].startswith("-v"):
        words = [words[0][2:], *words[1:]] if len(words[0]) > 2 else words[1:]
        text = output_of("printf", list(words[1:]), None, {})
        if words and text is not None:
            known.assign(words[0], (text,), False, certain)


def _counted(known: Variables, words: Sequence[str], stdin: str | None, certain: bool) -> None:
    """`let`, and `((...))`: numbers are not worked out."""
    for word in words:
        known.step(len(word) * word.count("[") // 4096)  # each may be looked at up to the end
        for found in _CALCULATED.finditer(word):
            known.lose(found[1] or found[2])


def _getopts(known: Variables, words: Sequence[str], stdin: str | None, certain: bool) -> None:
    for name in words[1:2]:
        known.lose(name)


def _matched(known: Variables, words: Sequence[str], stdin: str | None, certain: bool) -> None:
    """`[[ x =~ y ]]`."""
    known.lose("BASH_REMATCH")


def _options(words: Sequence[str], with_value: str) -> tuple[dict[str, str], list[str]]:
    """The letters that are set with their values, and the operands."""
    found: dict[str, str] = {}
    at = 0
    while at < len(words) and words[at][:1] == "-" and len(words[at]) > 1:
        word = words[at]
        at += 1
        if word == "--":
            break
        for position, letter in enumerate(word[1:], 2):
            found[letter] = ""
            if letter in with_value:
                found[letter] = word[position:] or (words[at] if at < len(words) else "")
                at += not word[position:]
                break
    return found, list(words[at:])


def _separators(known: Variables) -> list[str]:
    return [value for value in known.values("IFS") if isinstance(value, str)] or [" \t\n"]


def _parts(line: str, separators: str, most: int) -> list[str]:
    """A line as `read` parts it: blanks together, each other mark by itself; the last of `most` names takes
    the rest."""
    blanks = "".join(mark for mark in separators if mark in " \t\n")
    others = "".join(mark for mark in separators if mark not in " \t\n")
    line = line.strip(blanks) if blanks else line
    if not separators or most == 1:
        return [line]
    blank = f"[{re.escape(blanks)}]" if blanks else "(?!)"
    mark = f"{blank}*+[{re.escape(others)}]{blank}*+|{blank}++" if others else f"{blank}++"
    parts = re.split(mark, line, maxsplit=most - 1 if most else 0)
    if not most and parts and not parts[-1]:
        parts.pop()
    return parts


_Rule = Callable[[Variables, Sequence[str], "str | None", bool], "list[str] | None"]

_RULES: Final[Mapping[str, _Rule]] = {
    **dict.fromkeys(DECLARING, _declare),
    "readonly": _readonly,
    "env": _environment,
    "sudo": _environment,
    "set": _set,
    "shift": _shift,
    "unset": _unset,
    "read": _read,
    "mapfile": _mapfile,
    "readarray": _mapfile,
    "printf": _printf,
    "let": _counted,
    "getopts": _getopts,
    "[[": _matched,
}
