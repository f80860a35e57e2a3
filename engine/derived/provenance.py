"""The targets of a call, and where their values were seen first.

Targets are the arguments that the tool's declaration names: where to, which, and those that are neither but
matter; also where a key is put together of such names (`toAddress`, `recipient_iban`). Whom a call would
send to besides, as a head of a mail may say, is a target too. Decides which arguments those are, and of a
list or `Name <address>` in one text which values it has; what a run has seen is asked of `flow.memory`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

import msgspec

from engine.derived.payload import DistinctTexts
from engine.derived.recipients import beside
from engine.fields.json_text import Unread, opened
from engine.fields.scalars import text_of
from engine.fields.words import words_of
from engine.flow.belief import TRUSTED
from engine.flow.memory import TASK, UNSEEN, WORST, SeenValues
from engine.flow.values import MOST_BYTES, size
from engine.model import Json, ToolDeclaration

MOST_TARGETS: Final = 200
"""Of one call, of at most `MOST_BYTES`; what comes beyond is unseen."""
DEEPEST: Final = 16
"""Keys of a path; what lies deeper stands under the last one."""

_OPENING: Final = frozenset('{["\ufeff \t\r\n')
"""What a text may begin with that is JSON."""
_LIST: Final = re.compile(r"[,;\n]")
_QUOTED_NAME: Final = re.compile(r"\"[^\"@]{1,200}\"(?=\s?<)")
"""Of `"Jones, Bob" <bob@corp.example>`, which has a comma and is one address."""
_ADDRESS: Final = re.compile(r"[^<>@\s,;]{1,64}@[^<>@\s,;]{1,253}")
_PLAIN_HEADERS: Final = frozenset(
    {"accept", "accept encoding", "accept language", "content type", "user agent"}
)
"""Headers of a request that say how it is written, and nothing of what becomes of it."""
_LEAST: Final[Mapping[str, frozenset[str]]] = {
    "role": frozenset({"reader", "viewer", "commenter", "read", "view"}),
    "type": frozenset({"user"}),
}
"""The least that a tool which shares can give, to one person: who that is matters, and this does not."""
_SHOWN_NAME: Final = frozenset({"name", "display name", "full name"})
_NAMED: Final = re.compile(r"([^<>]{0,200})<([^<>@\s]{1,64}@[^<>@\s]{1,253})>")


Arguments = tuple[list[tuple[tuple[str, ...], Json]], bool]
"""Keys and value of each, and whether they are all."""


class TargetArgument(msgspec.Struct, frozen=True, gc=False):
    """An argument that matters: the keys it stands under, its value, and where that was first seen."""

    path: tuple[str, ...]
    value: Json
    source: str

    @property
    def text(self) -> str:
        return text_of(self.value)


def arguments_of(document: Mapping[str, Json], tool: ToolDeclaration) -> Arguments:
    """The arguments that matter, and whether they are all."""
    named = _named(tool)
    if not named.exact:
        return [], True
    payload = document.get("inputPayload")
    found = _flat(payload, named)
    unread = Unread()
    every: Iterable[tuple[tuple[str, ...], Json]] = (
        _arguments(payload, named, unread) if found is None else found
    )
    if named.shares:
        every = (each for each in every if each[1] not in _least(each[0]))
    # INVARIANT: nothing is left out behind this, or what stands beyond would be taken for nothing.
    found = list(islice(every, MOST_TARGETS + 1))
    kept, room = found[:MOST_TARGETS], MOST_BYTES
    for number, (_, value) in enumerate(kept):
        room -= size(value)
        if room < 0:
            return kept[:number], False
    return kept, len(found) == len(kept) and not unread


def _least(path: tuple[str, ...]) -> frozenset[str]:
    return _LEAST.get(words_of(path[-1]), frozenset()) if path else frozenset()


def targets_of(arguments: Arguments, values: SeenValues) -> list[TargetArgument]:
    """The same with their sources."""
    found, seen = [], values.source
    for path, value in arguments[0]:
        source = seen(value)
        found.append(TargetArgument(path, value, source_of(value, values) if source is UNSEEN else source))
    return found


def with_recipients(arguments: Arguments, recipients: DistinctTexts) -> Arguments:
    """The arguments, and whom the call would send to besides: these stand under no key."""
    found, all_of_them = arguments
    texts = [value if value.__class__ is str else text_of(value) for _, value in found]
    others = beside(recipients, texts)
    room = max(0, MOST_TARGETS - len(found))
    kept: list[tuple[tuple[str, ...], Json]] = [*found, *(((), each) for each in others[:room])]
    return kept, all_of_them and len(others) <= room and not recipients.partial


class _Names:
    """The keys of the arguments that matter to a tool."""

    def __init__(self, tool: ToolDeclaration) -> None:
        targets = [words_of(name).split() for name in (*tool.where, *tool.which)]
        self.exact = frozenset(
            words_of(name) for each in (tool.where, tool.which, tool.sensitive) for name in each
        )
        self._words = frozenset(_singular(word) for words in targets for word in words)
        self._last = frozenset(_singular(words[-1]) for words in targets)
        self._alone = frozenset(_singular(words[0]) for words in targets if len(words) == 1)
        self._known: dict[str, bool] = {}
        self.sends = tool.effect == "send"
        self.shares = self.sends and not self.exact.isdisjoint(_LEAST)

    def __contains__(self, key: str) -> bool:
        if key in self.exact:
            return True
        if " " not in key:
            return False
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            known = self._known[key] = self._is_put_together(key)
        return known

    def _is_put_together(self, key: str) -> bool:
        """Whether it says in more words what the names of targets say in theirs: all of them are words of
        such names, one is such a name, and the last one ends one."""
        words = [_singular(word) for word in key.split()]
        return words[-1] in self._last and self._words.issuperset(words) and not self._alone.isdisjoint(words)


def _is_address(value: Json) -> bool:
    return isinstance(value, str) and _ADDRESS.fullmatch(value) is not None


def _singular(word: str) -> str:
    return word.removesuffix("es" if word.endswith("sses") else "s") if len(word) > 3 else word


_known: Final[dict[int, tuple[ToolDeclaration, _Names]]] = {}
MOST_KNOWN: Final = 4_096


def _named(tool: ToolDeclaration) -> _Names:
    """The keys of the arguments that matter, kept by the declaration itself: to hash one takes longer."""
    known = _known.get(id(tool))
    if known is not None and known[0] is tool:
        return known[1]
    names = _Names(tool)
    if len(_known) >= MOST_KNOWN:
        _known.clear()
    _known[id(tool)] = tool, names
    return names


def source_of(value: Json, values: SeenValues) -> str:
    """Where an argument was first seen: as a whole, else the worst of what it lists."""
    found = values.source(value)
    if found is not UNSEEN or not isinstance(value, str):
        return found
    pieces = _pieces(value)
    return max((values.source(each) for each in pieces), key=WORST.__getitem__) if pieces else found


def origin_of(value: Json, values: SeenValues) -> tuple[Json, str] | None:
    """The value, or a piece of it, that was read in an output, and the call of that output."""
    for each in (value, *(_pieces(value) if isinstance(value, str) else ())):
        if (call := values.origin(each)) is not None:
            return each, call
    return None


def shown(targets: list[TargetArgument]) -> dict[str, Json]:
    """The sources in the shape of the payload, lists left out: of several values the worst."""
    root: dict[str, Json] = {}
    for target in targets:
        if not target.path:
            continue
        place = root
        for key in target.path[:-1]:
            inner = place.get(key)
            if not isinstance(inner, dict):
                inner = place[key] = {}
            place = inner
        key = target.path[-1]
        known = place.get(key)
        if not isinstance(known, dict) and (known is None or WORST[target.source] > WORST[known]):
            place[key] = target.source
    return root


def untrusted(targets: list[TargetArgument]) -> list[str]:
    """The values that neither the task nor a trusted output named."""
    found = [each.text for each in targets if each.source is not TASK and each.source is not TRUSTED]
    return list(dict.fromkeys(found)) if found else found


def unasked(targets: list[TargetArgument]) -> list[str]:
    """The values that the task did not name."""
    found = [each.text for each in targets if each.source is not TASK]
    return list(dict.fromkeys(found)) if found else found


def _pieces(text: str) -> list[str]:
    """What a text lists: several values, or the address of somebody who is named. Of very many the last ones
    are one value, which nobody has seen."""
    bare = _QUOTED_NAME.sub("", text)
    pieces = [piece.strip() for piece in _LIST.split(bare, MOST_TARGETS) if piece.strip()]
    pieces = [each for piece in pieces for each in _addressed(piece)]
    return [] if pieces == [text] else pieces


def _addressed(piece: str) -> tuple[str, ...]:
    """The address of somebody who is named; with the name, if that is an address too."""
    found = _NAMED.fullmatch(piece)
    if found is None:
        return (piece,)
    return found.groups() if "@" in found[1] else (found[2],)


def _flat(payload: Json, named: _Names) -> list[tuple[tuple[str, ...], Json]] | None:
    """The same as `_arguments` of a payload of plain texts and lists of them, as most are; None for any
    other."""
    if payload.__class__ is not dict:
        return None
    found: list[tuple[tuple[str, ...], Json]] = []
    for name, value in payload.items():
        counts = words_of(name) in named
        for text in value if value.__class__ is list else (value,):
            if text.__class__ is not str or text[:1] in _OPENING:
                return None
            if counts and text:
                found.append(((name,), text))
    return found


def _arguments(payload: Json, named: _Names, unread: Unread) -> Iterator[tuple[tuple[str, ...], Json]]:
    """Every scalar below one of the named keys that is not null."""
    stack: list[tuple[tuple[str, ...], str, bool, Json]] = [((), "", False, payload)]
    while stack:
        path, above, counts, value = stack.pop()
        if value.__class__ is str:
            inside = opened(value, unread) if value[:1] in _OPENING else None
            if inside is None:
                if counts and value:
                    yield path, value
                continue
            value = inside
        if isinstance(value, dict):
            is_address = counts and named.sends and any(map(_is_address, value.values()))
            for name, member in reversed(value.items()):
                key = words_of(name)
                if above == "headers" and key in _PLAIN_HEADERS and member.__class__ is str:
                    continue
                if is_address and key in _SHOWN_NAME and member.__class__ is str and "@" not in member:
                    continue  # as in a text that has a name before the address
                below = counts or key in named or (above != "" and f"{above} {key}" in named)
                if below or member.__class__ is not str or member[:1] in _OPENING:
                    stack.append(((*path, name) if len(path) < DEEPEST else path, key, below, member))
                if counts and "@" in name:
                    stack.append((path, above, True, name))
        elif isinstance(value, list):  # what an object may be read as, too
            stack.extend((path, above, counts, member) for member in reversed(value))
        elif counts and value is not None:
            yield path, value
