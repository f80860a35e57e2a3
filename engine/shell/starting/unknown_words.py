"""Unknown words of a command that starts another one: where they are empty, the next word is what is started.

Pure; whether such a word stood in quotes, so that it would be a word all the same, is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_UNKNOWN: Final = re.compile(r"\$(?:[\w@*!]{1,200}|\{[^{}]{1,400}\}|\([^()]{1,400}\))")


def without_unknown_words(words: Sequence[str], *, is_given_script: bool) -> Sequence[str] | None:
    """The words without the unknown ones before others, and of a shell that is known to be given a script
    without any; None where there are none."""
    if not any(map(_UNKNOWN.fullmatch, words)):
        return None
    end = len(words)
    while end and _UNKNOWN.fullmatch(words[end - 1]) and not is_given_script:
        end -= 1
    known = [word for word in words[:end] if _UNKNOWN.fullmatch(word) is None]
    return [*known, *words[end:]] if len(known) < end else None
