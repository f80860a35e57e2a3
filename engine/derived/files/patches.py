"""Patches as `diff` and `apply_patch` write them: which files they change, and what they put there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from engine.shell.files.file_calls import Use

PATCHING: Final = ("apply_patch", "applypatch", "patch", "git")
"""Programs that are given patches."""
_PATCH: Final = re.compile(
    r"\s*(?:(?:<<\S*\s*)?\*\*\* Begin Patch|diff --git |Index: |--- \S[^\n]*+\n\+\+\+ )"
)
"""Codex takes the words of a shell around its patch for none of it."""
_PATCHED: Final = re.compile(
    r"^(?:[^\S\n]*+\*\*\* (Add File|Update File|Delete File|Move to): ([^\n]+)"
    r"|(?:---|\+\+\+) (?:[ab]/)?([^\t\n]+))",
    re.MULTILINE,
)
"""Blanks may stand before a header of Codex, and a tab in its path."""
_ADDED: Final = re.compile(r"^\+(?!\+\+ )(.*)$", re.MULTILINE)


def is_patch(text: str) -> bool:
    """Whether a text says which lines of files change, as `diff` or `apply_patch` writes it."""
    return _PATCH.match(text) is not None


def patched(text: str) -> Iterable[tuple[Use, str]]:
    """The files that a patch changes; nothing of a text that is none."""
    if not is_patch(text):
        return
    for verb, path, changed in _PATCHED.findall(text):
        yield ("deletes" if verb == "Delete File" else "writes"), path.rstrip() or changed


def added(patch: str) -> str:
    return "\n".join(_ADDED.findall(patch))
