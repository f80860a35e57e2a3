"""What of an output may be believed, by the declaration of its tool.

Decides it for each scalar by the keys of the structure that it stands under. Knows nothing of runs, or of
which values a scalar holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from engine.fields.words import word_set, words_of
from engine.flow.values import id_shaped
from engine.model import Json, ToolDeclaration

TRUSTED: Final = "trusted"
UNTRUSTED: Final = "untrusted"

_HOLDING: Final = word_set("text content contents result results output response data value message body")
"""Keys under which the answer of a tool stands as a text, whatever is in it."""
_ONE_VALUE: Final = re.compile(r"[\w.@+%/~-]{1,256}|[^\W\d_]{1,64}(?:[ .'-]{1,2}[^\W\d_]{1,64}){0,5}[.!]?")
"""A token, or a few words such as a name."""


class Belief:
    """Of one output, which arrived as a text or not. Thousands of scalars stand under the same keys, of which
    there may be many above each: what is told of a key is kept.

    Where an output as such may not be believed, and arrived as a text that may be somebody else's
    altogether, what is declared trusted is believed only as far as it looks like an id: no address, no URL,
    no path. Where some fields of a register are not, of a text without fields no more is believed than one
    value."""

    def __init__(self, tool: ToolDeclaration, is_text: bool) -> None:
        self._is_text = is_text
        self._is_trusted = tool.output == TRUSTED
        self._fields = {words_of(name): trust for name, trust in tool.output_fields.items()}
        untrusted = [name for name, trust in self._fields.items() if trust == UNTRUSTED]
        self._is_register = self._is_trusted and tool.effect == "read" and bool(untrusted)
        self._doubted = [word_set(name) for name in untrusted]
        self._doubts = _Told(self._is_doubted)
        self._tells = _Told(self._tells_of_doubted)

    def covers(self, keys: Sequence[str], leaf: Json) -> bool:
        """Whether a scalar under these keys may be believed."""
        if any(map(self._doubts.__getitem__, keys)):
            return False
        if keys and self._fields.get(keys[-1]) == TRUSTED:
            return self._is_trusted or not self._is_text or id_shaped(leaf)
        if not self._is_register:
            return self._is_trusted
        return _is_one_value(keys, leaf) and not any(map(self._tells.__getitem__, keys))

    def _is_doubted(self, key: str) -> bool:
        """Whether a field is not believed; nor is one whose name only says more: `customerNotes` of
        `notes`."""
        fields = self._fields
        if (trust := fields.get(key)) is not None:
            return trust == UNTRUSTED
        before, _, last = key.rpartition(" ")
        if not before or last == "id":
            return False
        single = last.removesuffix("s")
        return UNTRUSTED in (fields.get(last), fields.get(single), fields.get(f"{single}s"))

    def _tells_of_doubted(self, key: str) -> bool:
        """Whether a key is prose, as of `Notes on Bob: ...`, that names such a field."""
        if key.count(" ") < 2:
            return False
        words = word_set(key)
        return any(each <= words for each in self._doubted)


class _Told(dict[str, bool]):
    """What a question comes to, by key."""

    def __init__(self, ask: Callable[[str], bool]) -> None:
        self._ask = ask

    def __missing__(self, key: str) -> bool:
        told = self[key] = self._ask(key)
        return told


def _is_one_value(keys: Sequence[str], leaf: Json) -> bool:
    """Whether a scalar is no text that may hold whole records, and with them what stands in those of their
    fields that are not believed."""
    if not isinstance(leaf, str):
        return True
    if keys and keys[-1] not in _HOLDING:
        return "\n" not in leaf and leaf.lstrip()[:1] not in ("{", "[")
    return _ONE_VALUE.fullmatch(leaf) is not None
