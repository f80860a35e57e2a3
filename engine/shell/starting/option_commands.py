"""Commands that programs run because their options or their own scripts say so. Pure.

`tar --to-command`, `sed 'e x'`, `fd -x`, `.shell` of a client of a database.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from engine.shell.embedded_code import INPUTS, git_scripts
from engine.shell.options import given, operands_of, values_of
from engine.shell.starting.started import Started, after_options


def editor(words: Sequence[str], stdin: str | None) -> list[Started]:
    """`vim -c ':!rm x'`, `ed <<< '!rm x'`, `ex -c 'r !rm x'`."""
    lines = [*words, *(stdin or "").split("\n", MOST_RULES)]
    return [Started("script", found[1]) for line in lines if (found := _EDITOR_RUNS.fullmatch(line))]


_EDITOR_RUNS: Final = re.compile(
    r"(?:-c|--cmd=|\+)?:?(?:sil(?:ent)?!?\s++)?[\d,$%.;]*+(?:(?:r(?:ead)?|w(?:rite)?|e)\s++)?!\s*+(.+)"
)


def git(words: Sequence[str], stdin: str | None) -> list[Started]:
    return [Started("script", text) for text in git_scripts(words)]


def tar(words: Sequence[str], stdin: str | None) -> list[Started]:
    """`tar --to-command='x y'`, also cut short or with its value apart, and `tar -I 'x y'`."""
    said: list[str] = []
    for each in given("tar", words):
        if each.name in _TAR_RUNS:
            said.append(each.value)
        elif each.name == "checkpoint-action" and each.value.startswith("exec="):
            said.append(each.value.removeprefix("exec="))
    return [Started("script", text) for text in dict.fromkeys(said) if text]


_TAR_RUNS: Final = frozenset({"to-command", "use-compress-program", "rsh-command", "info-script"})


def sed(words: Sequence[str], stdin: str | None) -> list[Started]:
    """`sed 's/x/rm y/e'` runs what it makes of a line, `sed '1e rm y'` a command, `sed e` each line."""
    items = list(given("sed", words))
    scripts = values_of(items, "expression") or operands_of(items)
    return list(dict.fromkeys(each for script in scripts for each in run_by_sed(script)))


def run_by_sed(script: str) -> list[Started]:
    """What a script of sed runs."""
    found: list[Started] = []
    for each in _SED_RUNS.finditer(script[:MOST_SED]):
        command = (each["command"] or "").replace("\\\n", "\n")
        if each["mark"] is not None and _SED_EVALUATES.fullmatch(each["flags"]):
            mark = each["mark"]
            made = Started("script", each["new"].replace(f"\\{mark}", mark))
            found += [Started("input"), made]
        elif command.strip() and (each["begin"] == "" or command[0] in " \t\n"):
            found.append(Started("script", command.strip()))
        elif each["command"] is not None and not command.strip():
            found.append(Started("input"))
    return found


MOST_SED: Final = 65_536
_SED_MARK: Final = r"[\x01-\t\x0b-/:-@\[\]-`{-~]"
_SED_LINE: Final = r"(?:\d++(?:~\d++)?|\$(?!e\w)|/(?>(?:\\.|[^/\\])*)/[IM]*+)"
_SED_RUNS: Final = re.compile(
    rf"(?P<begin>\A|[;{{}}\n])[ \t]*+(?:{_SED_LINE}(?:[ \t]*+,[ \t]*+[+~]?{_SED_LINE})?[ \t]*+!?[ \t]*+)?"
    rf"(?:s(?P<mark>{_SED_MARK})(?>(?:\\.|(?!(?P=mark)).)*)(?P=mark)"
    r"(?P<new>(?>(?:\\.|(?!(?P=mark)).)*))(?P=mark)(?P<flags>\w*+)"
    r"|e(?P<command>(?>(?:\\.|[^\\\n;}])*)(?:[;}](?>(?:\\.|[^\\\n])*))?))",
    re.DOTALL,
)
_SED_EVALUATES: Final = re.compile(r"[gpiImM\d]{0,8}e\w*")


CLIENTS: Final = ("mariadb", "mysql", "psql", "sqlite3")
"""Of databases, that run commands and read files by words of their own."""


def client(words: Sequence[str], stdin: str | None) -> list[Started]:
    """A client of a database is told `.shell rm x` or `\\! rm x`, or to give its output to a command."""
    texts = (*words, stdin or "")
    found = [each[1] for text in texts for each in _CLIENT_RUNS.finditer(text)]
    found += [each[1] for text in texts for each in _IN_QUOTES.finditer(text)]
    found += [each[1].replace("''", "'") for text in texts for each in _PSQL_PROGRAM.finditer(text)]
    found += [each for text in texts for line in _PSQL_LINE.findall(text) for each in line.split("`")[1::2]]
    return [Started("script", each) for each in found]


_CLIENT_RUNS: Final = re.compile(
    r"(?:^[ \t]*+\.(?:sh(?:e(?:ll?)?)?|sy(?:s(?:t(?:em?)?)?)?)\s|\\!|\\(?:o|out|g|gx|w|write)[ \t]*+\|"
    r"|^[ \t]*+\.(?:o(?:u(?:t(?:p(?:ut?)?)?)?)?|on(?:ce?)?|im(?:p(?:o(?:rt?)?)?)?|read?)[ \t]++\|)(.+)$",
    re.MULTILINE,
)
_IN_QUOTES: Final = re.compile(r"^[ \t]*+\.[a-z]{1,8}[ \t]++[\"']\|([^\"'\n]+)", re.MULTILINE)
"""`.import "|rm x" t` of sqlite3."""
_PSQL_PROGRAM: Final = re.compile(r"\\copy\b[^\n\\]*?\bprogram\s*+'((?>(?:[^']|'')+))'", re.IGNORECASE)
"""`\\copy t from program 'rm x'`."""
_PSQL_LINE: Final = re.compile(r"\\[a-z]++(?=[^\n\\`]*`)[^\n\\]*+")
"""`\\set x `rm y``."""


def redis(words: Sequence[str], stdin: str | None) -> list[Started]:
    """`redis-cli` runs each line that it is given to read, where it is told no command."""
    if not stdin or operands_of(list(given("redis-cli", words))):
        return []
    lines = filter(None, (line.split() for line in stdin.splitlines()[:MOST_RULES]))
    return [Started("words", words=("redis-cli", *words, *line)) for line in lines]


def fd(words: Sequence[str], stdin: str | None) -> list[Started]:
    """`fd name folder -x rm`: what is found there is given to the command."""
    at = next((at for at, word in enumerate(words) if _FD_RUNS.fullmatch(word)), len(words))
    rest = words[at + 1 :]
    end = next((at for at, word in enumerate(rest) if word == ";"), len(rest))
    folders = [word for word in words[:at] if not word.startswith("-")][1:] or ["."]
    return [Started("words", words=(*rest[:end], *folders))] if rest[:end] else []


_FD_RUNS: Final = re.compile(r"-[a-zA-Z]*[xX]|--exec(?:-batch)?")


_SSH_RUNS: Final = re.compile(
    r"(?:-o\s*)?(?:ProxyCommand|LocalCommand|KnownHostsCommand|RemoteCommand)(?:\s*=\s*|\s+)(.+)",
    re.DOTALL | re.IGNORECASE,
)


def ssh_options(words: Sequence[str], stdin: str | None) -> list[Started]:
    """`ssh -o ProxyCommand='x y' host`; so of scp and sftp, with `-S` for the program that connects."""
    found = [Started("script", runs[1]) for word in words if (runs := _SSH_RUNS.fullmatch(word))]
    return [each for each in found if each.text.lower() != "none"]


def valued(*options: str) -> Callable[[Sequence[str], str | None], list[Started]]:
    """The value of each of some options is a script: `rsync -e 'ssh x'`, `man -P less`."""

    def rule(words: Sequence[str], stdin: str | None) -> list[Started]:
        found: list[Started] = []
        for at, word in enumerate(words):
            name, equals, value = word.partition("=")
            if word in options:
                found += [Started("script", each) for each in words[at + 1 : at + 2]]
            elif equals and name in options and value:
                found.append(Started("script", value))
        return found

    return rule


def debugger(words: Sequence[str], stdin: str | None) -> list[Started]:
    """`gdb -ex 'shell x'`, `lldb -o 'platform shell x'`."""
    pattern = re.compile(r"(?:platform\s+)?(?:shell|!)\s*(.+)", re.DOTALL)
    return [Started("script", found[1]) for word in words if (found := pattern.fullmatch(word))]


def make(words: Sequence[str], stdin: str | None) -> list[Started]:
    """`make --eval='x: ; rm y'`, `make SHELL='rm y'`, and what it is given to read as its rules."""
    found: list[Started] = []
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == "--eval":
            found += _recipes(value if equals else "".join(words[at + 1 : at + 2]))
        elif equals and name in ("SHELL", ".SHELLFLAGS"):
            found.append(Started("script", value))
    said = (each.value for each in given("make", words) if each.name in ("file", "makefile"))
    reads = not INPUTS.isdisjoint(said)
    return [*found, *(_recipes(stdin) if reads and stdin else ())]


def _recipes(rules: str) -> list[Started]:
    """The commands of rules, whichever are asked for: behind a tab, or behind the first `;` of a line."""
    found: list[Started] = []
    for line in rules.splitlines()[:MOST_RULES]:
        command = line if line.startswith("\t") else line.partition(";")[2]
        if command.strip():
            found.append(Started("script", command.strip().lstrip("@+-")))
    return found


MOST_RULES: Final = 200


def entr(words: Sequence[str], stdin: str | None) -> list[Started]:
    """`entr make x`, `entr -s 'make x'`."""
    at = after_options(words)
    if any("s" in word for word in words[:at]):
        return [Started("script", word) for word in words[at : at + 1]]
    return [Started("words", words=tuple(words[at:]))] if words[at:] else []


def terminal(words: Sequence[str], stdin: str | None) -> list[Started]:
    """`tmux new -d 'x y'`, `tmux send-keys 'x y' Enter`, `tmux new -d x y`, `tmux -L a new -d x`."""
    if len(words) < 2:
        return []
    found = [Started("script", word) for word in words[1:] if " " in word or word is words[-1]]
    rest = words[1 + after_options(words[1:], "cnstxyeFP") :]
    return [*found, Started("script", " ".join(rest))] if rest else found
