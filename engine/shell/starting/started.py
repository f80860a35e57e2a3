"""What a command starts, as the wrappers tell it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["words", "script", "file", "input"]


@dataclass(frozen=True, slots=True)
class Started:
    """What a command starts: the `words` of another command, a `script` in `text`, the script in the file
    `text` or (`input`) the script it is given on its input. `same` says that the command is a mere wrapper
    and that its input, output and place in a pipeline are those of what it starts. `words` of a script are
    its arguments, `$0` first."""

    kind: Kind
    text: str = ""
    words: tuple[str, ...] = ()
    same: bool = False
    here: bool = False  # by the shell that reads it
    folder: str = ""
    """Where it is started, if not in the folder at hand."""


def after_options(words: Sequence[str], with_value: str = "", long: str = "", own: int = 0) -> int:
    """Where the operands begin, `own` of which are skipped too. `with_value` lists the letters, `long` the
    names of options that take the next word."""
    at = 0
    names = long.split()
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        word = words[at]
        at += 1
        if word == "--":
            break
        if word.startswith("--"):
            at += any(name.startswith(word) for name in names)
        elif word[-1] in with_value and not any(letter in with_value for letter in word[1:-1]):
            at += 1
    return at + own
