"""Unknown words of a command that starts another one: where they are empty, the next word is what is started.

Pure; whether such a word stood in quotes, so that it would be a word all the same, is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_UNKNOWN: Final = re.compile(r"\$(?:[\w@*!]{1,200}|\{[^{}]{1,400}\}|\([^()]{1,400}\))")
_STARTING_NAMES: Final = (
    "env command builtin exec nice nohup setsid timeout gtimeout time stdbuf ionice chrt taskset setpriv"
    " prlimit choom unshare nsenter chroot sudo doas su runuser flock xargs trap source . coproc busybox"
    " strace"
)
_STARTING: Final = frozenset(_STARTING_NAMES.split())


def without_unknown_words(
    name: str, words: Sequence[str], stdin: str | None, is_shell: bool
) -> Sequence[str] | None:
    """The words without the unknown ones before others, and of a shell that is known to be given a script
    without any; None where there are none."""
    if not (is_shell or name in _STARTING) or not any(map(_UNKNOWN.fullmatch, words)):
        return None
    end = len(words)
    while end and _UNKNOWN.fullmatch(words[end - 1]) and not (is_shell and stdin is not None):
        end -= 1
    known = [word for word in words[:end] if _UNKNOWN.fullmatch(word) is None]
    return [*known, *words[end:]] if len(known) < end else None
