"""What the shells of Windows are told to run. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from engine.shell.emulation import decode64
from engine.shell.starting.started import Started


def cmd(words: Sequence[str], stdin: str | None) -> list[Started]:
    for at, word in enumerate(words):
        if word.lower() in ("/c", "/k", "/r"):
            return [Started("script", " ".join(words[at + 1 :]))]
    return []


def powershell(words: Sequence[str], stdin: str | None) -> list[Started]:
    for at, word in enumerate(words[:-1]):
        option = word.lower().lstrip("-/")
        if word[:1] not in "-/" or not option:
            continue
        if "encodedcommand".startswith(option) or option == "ec":
            try:
                text = decode64(words[at + 1].encode()).decode("utf-16-le", errors="replace")
            except ValueError:
                return []
            return [Started("script", text)]
        if "command".startswith(option):
            return [Started("script", " ".join(words[at + 1 :]))]
    return []
