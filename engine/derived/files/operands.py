"""Words of a command that are files: those that look like one, and those that an option names, unless they
only set the program up.

Knows nothing of calls or of how paths are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from engine.fields.words import word_set
from engine.shell.files.file_calls import Use, Uses
from engine.shell.options import Given

_PATH: Final = re.compile(
    r"(?:~|\.{1,2}|\$\{?\w+\}?|%\w+%|[A-Za-z]:)?[/\\][^\s'\"()<>|;&]*|~\w*|\.[A-Za-z][\w.-]+|file:\S+"
)
_RELATIVE: Final = re.compile(r"[\w.@+-]+(?:/[\w.@+*?-]*)+")
SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_REFERRED: Final = re.compile(r"(?:[\w.\[\]-]{1,256}=)?[@<]([^;]+)")
"""What `-d @file` and `-F x=@file;type=y` refer to."""
_CONFIGURING: Final = word_set(
    "--env-file --kubeconfig --identity-file --cert --cacert --key --private-key --key-file -key-file "
    "--keyfile --ssl-key --ssl-keyfile --tls-key --ca-key --load-privkey --ks --keystore -keystore "
    "--credentials-file"
)
"""Options whose file sets the program up: what it says is used, not shown."""
_CONFIGURING_OF: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(("ssh", "sftp", "mosh"), _CONFIGURING | {"-i"}),
    **dict.fromkeys(("docker", "podman", "nerdctl"), _CONFIGURING | {"-e", "--env"}),
}
"""`-e PASSWORD_FILE=/run/secrets/x` says where it is within the container."""


def looks_like_path(word: str) -> bool:
    if len(word) > 4_096 or SCHEME.match(word):
        return False
    return _PATH.fullmatch(word) is not None or _RELATIVE.fullmatch(word) is not None


def each_of(use: Use, words: Iterable[str]) -> Uses:
    return ((use, word) for word in words)


def marked(items: Sequence[Given]) -> Uses:
    """The files that options name."""
    for option in items:
        if "<" in option.marks or ("^" in option.marks and looks_like_path(option.value)):
            yield "reads", option.value
        elif ">" in option.marks:
            yield "writes", option.value
        elif "@" in option.marks and (found := _REFERRED.match(option.value)):
            yield "reads", found[1].strip('"')


def pointed(words: Sequence[str]) -> Uses:
    """Words, and values of `--option=value`, `key=@value`, `-Fx=@value`, that look like paths."""
    for word in words:
        for part in {word, word.partition("=")[2], word.rpartition("@")[2] if "@" in word else ""}:
            if part and looks_like_path(part.lstrip("@<")):
                yield "reads", part.lstrip("@<")


def without_configuration(name: str, words: Sequence[str]) -> list[str]:
    """The words without the files that only set the program up."""
    options = _CONFIGURING_OF.get(name, _CONFIGURING)
    return [
        word
        for before, word in zip(("", *words), words, strict=False)
        if before not in options and word.partition("=")[0] not in options
    ]
