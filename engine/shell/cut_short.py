"""Long options that are cut short: programs take any beginning that is of one option alone. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

_LONG: Final[Mapping[str, tuple[str, ...]]] = {
    "git": ("--force", "--force-with-lease", "--hard", "--delete", "--mirror", "--no-verify", "--prune"),
    **dict.fromkeys(("chmod", "chown", "chgrp"), ("--recursive",)),
    **dict.fromkeys(("base64", "base32", "basenc"), ("--decode",)),
    **dict.fromkeys(("iptables", "ip6tables"), ("--flush",)),
    "wget": ("--post-file", "--post-data", "--body-file", "--body-data", "--no-check-certificate"),
    "gpg": ("--export", "--export-secret-keys", "--export-secret-subkeys"),
    "curl": ("--insecure",),
}
"""Those that policies ask for, where several begin alike the more usual one first."""
SHORTEST: Final = 4
"""Characters with the dashes; less is of several options."""


def spelled_out(program: str, words: Sequence[str]) -> list[str]:
    """The words with such options as they are in full."""
    known = _LONG.get(program)
    if known is None:
        return list(words)
    return [_full(known, word) if word.startswith("--") else word for word in words]


def _full(known: Sequence[str], word: str) -> str:
    option, equals, value = word.partition("=")
    if len(option) < SHORTEST or option in known:
        return word
    full = next((each for each in known if each.startswith(option)), option)
    return f"{full}{equals}{value}"
