"""One call as the index sees it: per path its keys, its folded text, its numbers, each worked out once.

INVARIANT: a view shows at least what `Facts` shows to the predicates; more is allowed, less never.

Knows nothing of policies.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final

from engine.fields import DERIVED, MISSING, Facts, Path, value_key
from engine.model import Json


class View:
    """What a call shows at one path: whether there is anything, and on demand the `value_key`s of its values,
    its casefolded text and its numbers. A lone scalar, the usual case, is looked at directly."""

    __slots__ = ("_facts", "_folded", "_keys", "_path", "_scalar", "present")

    def __init__(self, facts: Facts, path: Path, scalar: Json, present: bool) -> None:
        self._facts = facts
        self._path = path
        self._scalar = scalar
        self.present = present
        self._keys: Collection[str] | None = None
        self._folded: str | None = None

    def keys(self) -> Collection[str]:
        """The distinct keys of all values."""
        keys = self._keys
        if keys is None:
            if self._scalar is not MISSING:
                keys = (value_key(self._scalar),)
            else:
                keys = frozenset(map(value_key, self._facts.values(self._path)))
            self._keys = keys
        return keys

    def folded(self) -> str:
        """All texts, casefolded. Joining them cannot hide what one of them contains."""
        folded = self._folded
        if folded is None:
            text = self._scalar
            if text.__class__ is not str or not text.isascii():
                text = "\n".join(self._facts.texts(self._path))
            folded = self._folded = text.casefold()
        return folded

    def encoded(self) -> tuple[bytes, ...]:
        """Each text by itself, as UTF-8."""
        text = self._scalar
        if text.__class__ is str and text.isascii():
            return (text.encode(),)
        return self._facts.encoded(self._path)

    def extremes(self) -> tuple[float, float]:
        """The least and the greatest number; everything, if something that is not a number is there."""
        numbers, others = self._facts.numbers(self._path)
        if others:
            return -math.inf, math.inf
        return min(numbers, default=math.inf), max(numbers, default=-math.inf)


class Probe:
    """One call on its way through the tree; remembers its views by the text of the path."""

    __slots__ = ("_facts", "payload", "views")

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.payload: Json = facts.document.get("inputPayload")
        self.views: dict[str, View] = {}

    def look(self, path: Path) -> View:
        """The view of a path that `views` does not have yet."""
        facts = self._facts
        if path.root == DERIVED:
            view = self.views[path.text] = View(facts, path, MISSING, facts.ends(path) != ())
            return view
        value: Json = facts.document.get(path.root, MISSING)
        segments = path.segments
        if segments and value.__class__ is dict:
            value = value.get(segments[0], MISSING)
            segments = segments[1:]
        if value is MISSING:
            view = View(facts, path, MISSING, False)
        elif not segments and value.__class__ in _SCALARS:
            view = View(facts, path, value, True)
        else:
            view = View(facts, path, MISSING, facts.ends(path) != ())
        self.views[path.text] = view
        return view


_SCALARS: Final = frozenset({str, int, float, bool})
