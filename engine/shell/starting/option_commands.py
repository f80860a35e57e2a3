"""Commands that programs run because their options or their own scripts say so. Pure.

`tar --to-command`, `sed 'e x'`, `fd -x`, `.shell` of a client of a database.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from engine.shell.embedded_code import git_scripts
from engine.shell.starting.started import Started


def editor(words: Sequence[str], stdin: str | None) -> list[Started]:
    """`vim -c ':!rm x'`."""
    return [Started("script", found[1]) for word in words if (found := re.match(r"\+?:?!\s*(.+)", word))]


def git(words: Sequence[str], stdin: str | None) -> list[Started]:
    return [Started("script", text) for text in git_scripts(words)]


def tar(words: Sequence[str], stdin: str | None) -> list[Started]:
    pattern = re.compile(
        r"--(?:checkpoint-action=exec|to-command|use-compress-program|rsh-command)=(.+)", re.DOTALL
    )
    return [Started("script", found[1]) for word in words if (found := pattern.fullmatch(word))]


def sed(words: Sequence[str], stdin: str | None) -> list[Started]:
    """`sed 's/x/rm y/e'` runs what it makes of a line, `sed '1e rm y'` a command."""
    found: list[Started] = []
    for word in words:
        if word[:1] == "s" and len(word) > 2 and not word[1].isalnum() and word[1] != "\\":
            parts = re.split(rf"(?<!\\){re.escape(word[1])}", word[2:], maxsplit=2)
            if len(parts) == 3 and re.match(r"[gpiImM\d]{0,8}e", parts[2]):
                found.append(Started("script", parts[1].replace(f"\\{word[1]}", word[1])))
        elif command := re.match(r"[\d,$]{0,20}e[ \t]+(?=\S)", word):
            found.append(Started("script", word[command.end() :]))
    return found


def client(words: Sequence[str], stdin: str | None) -> list[Started]:
    """A client of a database is told `.shell rm x` or `\\! rm x`, or to give its output to a command."""
    texts = (*words, stdin or "")
    return [Started("script", found[1]) for text in texts for found in _CLIENT_RUNS.finditer(text)]


_CLIENT_RUNS: Final = re.compile(
    r"(?:^[ \t]*+\.(?:sh(?:e(?:ll?)?)?|sy(?:s(?:t(?:em?)?)?)?)\s|\\!|\\(?:o|out|g|gx|w|write)[ \t]*+\|"
    r"|^[ \t]*+\.(?:output|once)[ \t]++\|)(.+)$",
    re.MULTILINE,
)


def fd(words: Sequence[str], stdin: str | None) -> list[Started]:
    """`fd name folder -x rm`: what is found there is given to the command."""
    at = next((at for at, word in enumerate(words) if _FD_RUNS.fullmatch(word)), len(words))
    rest = words[at + 1 :]
    end = next((at for at, word in enumerate(rest) if word == ";"), len(rest))
    folders = [word for word in words[:at] if not word.startswith("-")][1:] or ["."]
    return [Started("words", words=(*rest[:end], *folders))] if rest[:end] else []


_FD_RUNS: Final = re.compile(r"-[a-zA-Z]*[xX]|--exec(?:-batch)?")
