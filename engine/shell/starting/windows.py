"""What the shells of Windows are told to run. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from engine.shell.emulation import COMMANDLET, decode64
from engine.shell.expansion import TooMuch
from engine.shell.starting.started import Started

_WITH_VALUE_NAMES: Final = (
    "executionpolicy ep ex exec windowstyle w inputformat outputformat version configurationname "
    "workingdirectory wd psconsolefile settingsfile custompipename"
)
_WITH_VALUE: Final = frozenset(_WITH_VALUE_NAMES.split())
"""Options of PowerShell that take the next word, as they are commonly cut short."""
_FILE_NAMES: Final = ("-filepath", "-argumentlist", "-args")
_STARTING_VALUES: Final = ("-verb", "-windowstyle", "-workingdirectory", "-credential")
_LOOP: Final = re.compile(
    r"\bfor\s+(?:/[a-z]\s+(?:\"[^\"\n]{0,200}\"\s+)?)?(?:([a-z]:\S{0,400})\s+)?%%?([a-z])\s+in\s*\(([^()\n]{0,2000}+)\)\s*do\s+",
    re.IGNORECASE,
)
_SET: Final = re.compile(r"\bset\s+\"?([A-Za-z_]\w{0,60})=([^&|\n\"]{0,400}+)(?=[&|\n\"]|$)", re.IGNORECASE)
EXECUTED: Final = (".exe", ".bat", ".cmd")
"""Programs of such names are looked for in the folder at hand, too."""
LONGEST_REPLACED: Final = 16_384
LONGEST_FILLED: Final = 4 * LONGEST_REPLACED
MOST_REPLACED: Final = 8


def replaced(text: str) -> str | None:
    """A script of cmd with the variables of its loops, and those that it sets, replaced; None where there are
    none. Raises TooMuch where they make it far longer."""
    if not ("%" in text or "!" in text) or len(text) > LONGEST_REPLACED:
        return None
    uses: list[tuple[str, str]] = []
    for loop in list(_LOOP.finditer(text))[:MOST_REPLACED]:
        folder, name, values = loop.groups()
        value = f"{folder.rstrip('/' + chr(92))}/{values}" if folder else values
        uses.append((rf"%%?(?:~\w*)?{name}\b", value))
    uses += ((f"%{name}%|!{name}!", value.rstrip()) for name, value in _SET.findall(text)[:MOST_REPLACED])
    found = text
    for use, value in uses:
        pattern = re.compile(use, re.IGNORECASE)
        if len(found) + len(value) * sum(1 for _ in pattern.finditer(found)) > LONGEST_FILLED:
            raise TooMuch
        found = pattern.sub(value.replace("\\", r"\\"), found)
    return found if found != text else None


def is_of_folder(program: str) -> bool:
    """Whether a program may be a file at hand."""
    return "/" in program or program.endswith(EXECUTED)


def evaluated(words: Sequence[str], stdin: str | None) -> list[Started]:
    """`Invoke-Expression`."""
    rest = [word for word in words if word.lower() != "-command"]
    return [Started("script", " ".join(rest)) if rest else Started("input")]


def block(words: Sequence[str], stdin: str | None) -> list[Started]:
    """`Invoke-Command -ScriptBlock { ... }`, `% { ... }`."""
    at = next((at for at, word in enumerate(words) if word == "{"), len(words))
    return [Started("words", words=tuple(words[at + 1 :]))] if words[at + 1 :] else []


def process(words: Sequence[str], stdin: str | None) -> list[Started]:
    """`start /b cmd /c x`, `Start-Process cmd -ArgumentList '/c x'`."""
    rest: list[str] = []
    is_value = False
    for word in words:
        option = word.lower()
        if is_value or option in _FILE_NAMES:
            is_value = False
        elif option in _STARTING_VALUES:
            is_value = True
        elif rest or (word and not word.startswith(("-", "/"))):
            rest.append(word.strip(","))
    return [Started("script", " ".join(rest))] if rest else []


def each_file(words: Sequence[str], stdin: str | None) -> list[Started]:
    """`forfiles /p C:\\x /c "cmd /c del @path"`."""
    values = {word.lower(): following for word, following in pairwise(words)}
    script = values.get("/c", "")
    for name in ("@path", "@file", "@relpath"):
        script = script.replace(name, values.get("/p", name))
    return [Started("script", script)] if script else []


def dotted(words: Sequence[str]) -> tuple[str, ...]:
    """What PowerShell's `.` runs, where that is a command of its own and no file."""
    return tuple(words) if words and COMMANDLET.fullmatch(words[0]) else ()


def cmd(words: Sequence[str], stdin: str | None) -> list[Started]:
    for at, word in enumerate(words):
        if word.lower() in ("/c", "/k", "/r"):
            script = " ".join(words[at + 1 :])
            return [Started("script", text) for text in (script, replaced(script)) if text]
    return []


def powershell(words: Sequence[str], stdin: str | None) -> list[Started]:
    is_value = False
    for at, word in enumerate(words):
        option = word.lower().lstrip("-/")
        if is_value or not option:
            is_value = False
            continue
        if word[:1] not in "-/":
            return [Started("script", " ".join(words[at:]))]
        is_value = option in _WITH_VALUE
        if at + 1 == len(words):
            break
        if "encodedcommand".startswith(option) or option == "ec":
            try:
                text = decode64(words[at + 1].encode()).decode("utf-16-le", errors="replace")
            except ValueError:
                return []
            return [Started("script", text)]
        if "command".startswith(option):
            return [Started("script", " ".join(words[at + 1 :]))]
    return []
