"""One tool call as conditions and the index see it: what it shows at each path, each thing worked out once.

Decides which values a path reaches (`resolve`) and what of them an operator or a lookup gets to see: values,
texts, numbers, keys. What a predicate tests and what the index looks up come from the same `View`, so the
two cannot disagree about a call. How a computed member is worked out is the business of `derivation`. Knows
nothing of operators, policies or the index.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import msgspec

from engine.derived.derivation import Derivation
from engine.derived.tools import NO_TOOLS, Tools, of_tool
from engine.fields.computed import MEMBERS, TOOL
from engine.fields.json_text import Unread, opened, strings_in
from engine.fields.paths import Path
from engine.fields.scalars import keys_of, numbers_of, texts_of, value_keys, whole
from engine.flow.memory import RunMemory
from engine.model import Json


class _Missing:
    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()
"""Stands for "there is no such value", where None would be JSON's null."""


LOOKED_INTO: Final = frozenset({"inputPayload", "outputPayload"})
"""Paths at which JSON in a text counts as what it holds, too. INVARIANT: a text there takes no short way past
`View.texts`."""


class View(msgspec.Struct, eq=False):
    """What a call shows at one path: `ends` is where it ends, arrays unopened, () when it is missing."""

    path: Path
    ends: tuple[Json, ...]
    partial: bool = False
    """It is of a computed member that is known only in part, since the call goes beyond a bound."""
    hit: tuple[Any, bytes, tuple[int, int]] | None = None
    """The pattern that was found last in one of `encoded`, in which, and where."""
    said: str | None = None
    """`first` in words, once somebody has found them."""
    told: str | None = None
    """What messages say of it, the same."""
    _values: tuple[Json, ...] | None = None
    _keys: Collection[str] | None = None
    _texts: tuple[str, ...] | None = None
    _folded: str | None = None
    _encoded: tuple[bytes, ...] | None = None
    _joined: bytes | None = None
    _numbers: tuple[tuple[int | float, ...], bool] | None = None

    def first(self) -> Json:
        """The first value; MISSING when there is none."""
        return self.ends[0] if self.ends else MISSING

    def values(self) -> tuple[Json, ...]:
        """Every value: where the path ends, and each element of an array there."""
        values = self._values
        if values is None:
            values = self.ends
            for end in self.ends:
                if isinstance(end, list):
                    values = _opened(self.ends)
                    break
            self._values = values
        return values

    def keys(self) -> Collection[str]:
        """The `value_keys` of all values, each once."""
        keys = self._keys
        if keys is None:
            values = self.values()
            keys = self._keys = value_keys(values[0]) if len(values) == 1 else keys_of(values)
        return keys

    def texts(self) -> tuple[str, ...]:
        """The texts that text operators test: of a scalar its text, of an object or array every key and
        every scalar at any depth. Null has no text. Every text can be written as UTF-8.

        Of a payload or an output as a whole these are also the keys and scalars of what is JSON in a text.
        (At a member that would let a caller satisfy a guard such as `not_matches` by what it hides in a
        text.)"""
        texts = self._texts
        if texts is None:
            ends = self.ends
            looked_into = self.path.text in LOOKED_INTO
            plain = not looked_into and len(ends) == 1 and ends[0].__class__ is str and ends[0].isascii()
            texts = self._texts = ends if plain else tuple(map(whole, _texts(ends, looked_into)))
        return texts

    def folded(self) -> str:
        """All texts in one, casefolded. Joining them cannot hide what one of them contains."""
        folded = self._folded
        if folded is None:
            folded = self._folded = "\n".join(self.texts()).casefold()
        return folded

    def encoded(self) -> tuple[bytes, ...]:
        """`texts` as UTF-8."""
        encoded = self._encoded
        if encoded is None:
            encoded = self._encoded = tuple(map(str.encode, self.texts()))
        return encoded

    def joined(self) -> bytes:
        """All of `encoded`, joined by line feeds."""
        joined = self._joined
        if joined is None:
            joined = self._joined = b"\n".join(self.encoded())
        return joined

    def text_at(self, position: int) -> bytes:
        """That one of `encoded` in which a position in `joined` lies."""
        end = -1
        for text in self.encoded():
            end += len(text) + 1
            if position <= end:
                return text
        return b""

    def numbers(self) -> tuple[tuple[int | float, ...], bool]:
        """The numbers (numeric text counts; of an array its elements), and whether a value that is not a
        number is there too, such as an array of none."""
        found = self._numbers
        if found is None:
            ends = self.ends
            plain = len(ends) == 1 and ends[0].__class__ is int
            found = self._numbers = (ends, False) if plain else _numbers(ends)
        return found

    def least(self) -> float:
        """The least number; everything is below something that is no number, nothing where nothing is."""
        numbers, others = self.numbers()
        return -math.inf if others else min(numbers, default=math.inf)

    def greatest(self) -> float:
        """The greatest number; everything is above something that is no number, nothing where nothing is."""
        numbers, others = self.numbers()
        return math.inf if others else max(numbers, default=-math.inf)


class Facts(msgspec.Struct, eq=False):
    """What one tool call offers to conditions; made once per evaluation, remembers its views.

    INVARIANT: nothing here raises for any JSON document, of any depth.
    INVARIANT: what is computed comes from the call and the declarations of tools alone, each member worked
    out once, when a condition first reads it.
    """

    document: Mapping[str, Json]
    tools: Tools = NO_TOOLS
    _derivation: Derivation | None = None
    _views: dict[str, View] = {}
    purse: list[int] | None = None
    """Steps that are left for all expressions of this call that take any, once the first was asked."""
    verdicts: dict[Any, Any] = {}
    """What those came to."""
    _scope: dict[str, Json] | None = None

    def at(self, path: Path) -> View:
        """What the call shows at a path."""
        view = self._views.get(path.text)
        if view is None:
            if path.root not in MEMBERS:
                view = View(path, resolve(self.document, path))
            elif path.root == TOOL:  # which the index asks of every call
                view = View(path, (of_tool(self.tools, self.document, path.segments[0]),))
            else:
                view = self._shown(path)
            self._views[path.text] = view
        return view

    @property
    def memory(self) -> RunMemory:
        """What the run went through before."""
        return self.derived().memory

    def is_partial(self, root: str, member: str) -> bool:
        """Whether a computed member is known only in part, since the call goes beyond a bound."""
        return self.derived().value(root, member)[1]

    def scope(self, members: Iterable[tuple[str, str]]) -> Mapping[str, Json]:
        """The document with computed members beside its roots, for expressions: at least these, as
        (root, member). It is one for the whole call, to be read only."""
        scope = self._scope
        if scope is None:
            scope = self._scope = {
                root: value for root, value in self.document.items() if root not in MEMBERS
            }
        for root, member in members:
            held = scope.setdefault(root, {})
            if member not in held:
                value, _ = self.derived().value(root, member)
                if value is not None:
                    held[member] = value
        return scope

    def _shown(self, path: Path) -> View:
        """What a field condition sees: an empty list is missing."""
        member = path.segments[0]
        value, partial = (self._derivation or self.derived()).value(path.root, member)
        if value is None or value == []:
            return View(path, (), partial)
        alone = len(path.segments) == 1
        return View(path, (value,) if alone else resolve({path.root: {member: value}}, path), partial)

    def derived(self) -> Derivation:
        """What is worked out of the call, made once."""
        derivation = self._derivation
        if derivation is None:
            derivation = self._derivation = Derivation(self.document, self.tools)
        return derivation


def resolve(document: Mapping[str, Json], path: Path) -> tuple[Json, ...]:
    """Where `path` ends in `document`, in document order; () when nowhere."""
    value = document.get(path.root, MISSING)
    for key in path.segments:
        if value.__class__ is not dict:
            return _through(document, path)
        value = value.get(key, MISSING)
    return () if value is MISSING else (value,)


def _through(document: Mapping[str, Json], path: Path) -> tuple[Json, ...]:
    """The same through anything, arrays too."""
    here: list[Json] = [document.get(path.root, MISSING)]
    for key, index in path.steps:
        there: list[Json] = []
        for value in here:
            if isinstance(value, dict):
                if key in value:
                    there.append(value[key])
            elif isinstance(value, list):
                if index is not None and index < len(value):
                    there.append(value[index])
                there.extend(item[key] for item in value if isinstance(item, dict) and key in item)
        if not there:
            return ()
        here = there
    return tuple(here)


def _opened(ends: tuple[Json, ...]) -> tuple[Json, ...]:
    opened: list[Json] = []
    for end in ends:
        opened.append(end)
        if isinstance(end, list):
            opened.extend(end)
    return tuple(opened)


def _numbers(ends: tuple[Json, ...]) -> tuple[tuple[int | float, ...], bool]:
    numbers: list[int | float] = []
    others = False
    for end in ends:
        for value in end if isinstance(end, list) and end else (end,):
            found = numbers_of(value)
            others |= not found
            numbers += found
    return tuple(numbers), others


def _texts(ends: tuple[Json, ...], looked_into: bool = False) -> list[str]:
    texts: list[str] = []
    unread = Unread()
    stack: list[Json] = list(reversed(ends))
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            texts.append(value)
            if looked_into and not value[:1].isalnum():
                before = len(unread)
                if (inside := opened(value, unread)) is not None:
                    stack.append(inside)
                for text in unread[before:]:
                    stack.extend(strings_in(text))
        elif isinstance(value, dict):
            # Keys are texts like any other, so they go through the same stack, each before its value.
            for key in reversed(value):
                stack.append(value[key])
                stack.append(key)
        elif isinstance(value, list):
            stack.extend(reversed(value))
        elif value is not None:
            texts += texts_of(value)
    return texts
