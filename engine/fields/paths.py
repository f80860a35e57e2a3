"""Field paths: what a condition may name, and which values of a tool call a path leads to.

Decides how `inputPayload.items.0.price` is read (`parse`); `Facts` says which values it reaches. It knows
nothing of operators, policies or the index.

Paths follow MongoDB: a segment is a key of an object; through an array it is a key of each element that is
an object (one level: an array within an array is entered only by its number); a segment that is a number
also indexes into an array. Where a path ends at an array, the array and each of its elements are values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from engine.errors import ConditionError
from engine.fields import computed
from engine.fields.scalars import number_of as number_of
from engine.fields.scalars import text_of as text_of
from engine.fields.scalars import whole
from engine.model import COMPUTED, ROOTS
from schemas.suggestion import closest

MAX_PATH_LENGTH: Final = 1024

MEMBERS: Final[Mapping[str, Mapping[str, str]]] = {
    "run": {"task": "text", "model": "text", "agentContext": "object", "labels": "list"},
    "user": {"id": "text", "email": "text", "scopes": "list", "claims": "object"},
    "delegation": {"chain": "list"},
    "key": {"id": "text", "scopes": "list"},
}
"""Roots with a closed set of members; only `object` and `list` members may be entered further."""

_KINDS: Final[Mapping[str, str]] = {**ROOTS, **dict.fromkeys(COMPUTED, "object")}
_ENTERED: Final = ("list", "records", "object")
_MEMBERS: Final[Mapping[str, Mapping[str, str]]] = {
    **MEMBERS,
    **{
        root: {name: member.kind if member.kind in _ENTERED else "text" for name, member in members.items()}
        for root, members in computed.MEMBERS.items()
    },
}

WHOLE_OBJECTS: Final = frozenset({"inputPayload", "outputPayload", "agentContext"})
"""Object roots that may stand alone as a field."""

_PLAIN_SEGMENT = re.compile(r'[^.\[\]"\s\x00-\x1f](?:[^.\[\]"\x00-\x1f]*[^.\[\]"\s\x00-\x1f])?')
_QUOTED_SEGMENT = re.compile(r'\["((?:[^"\\\x00-\x1f]|\\.)*)"\]')
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True, eq=False)
class Path:
    """A parsed field path. `text` is canonical: equal texts, equal paths. `steps` pairs each segment with
    the array index it may also mean."""

    text: str
    root: str
    segments: tuple[str, ...]
    steps: tuple[tuple[str, int | None], ...]
    keys: tuple[str, ...] = field(init=False)
    """The root and the segments."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", (self.root, *self.segments))

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Path) and self.text == other.text)

    def __str__(self) -> str:
        return self.text


@lru_cache(maxsize=65536)
def parse(text: str) -> Path:
    """The path a condition's `field` names. Raises ConditionError(part="field") with a did-you-mean."""
    _check_length(text)
    root, *segments = _split(text)
    kind = _KINDS.get(root)
    if kind is None:
        raise _refuse(f"unknown field `{text}`; {_suggest(root, _KINDS, segments)}")
    if kind == "text" and segments:
        raise _refuse(f"`{root}` is a text and has no `{segments[0]}`; write `{root}` alone")
    if root in _MEMBERS:
        _check_member(text, root, segments)
    elif kind == "object" and not segments and root not in WHOLE_OBJECTS:
        raise _refuse(f"`{root}` is an object; name a member of it, as in `{root}.<key>`")
    steps = tuple((s, int(s) if _INDEX.fullmatch(s) else None) for s in segments)
    # INVARIANT: the canonical text, whose quoted keys may be longer than those written, can be read again.
    return Path(_check_length(canonical(root, segments)), root, tuple(segments), steps)


def _check_length(text: str) -> str:
    if len(text) > MAX_PATH_LENGTH:
        raise _refuse(f"the field is longer than {MAX_PATH_LENGTH} characters")
    return text


def canonical(root: str, segments: list[str] | tuple[str, ...]) -> str:
    """The one text of a path: segments joined by dots, quoted only where they must be, always printable."""
    return root + "".join(
        f".{s}"
        if _PLAIN_SEGMENT.fullmatch(s) and s.isprintable()
        else f"[{json.dumps(s, ensure_ascii=not s.isprintable())}]"
        for s in segments
    )


def _split(text: str) -> list[str]:
    segments: list[str] = []
    at = 0
    while True:
        found = _PLAIN_SEGMENT.match(text, at)
        if found is None:
            raise _refuse(_malformed(text, at))
        segments.append(found.group())
        at = found.end()
        while text.startswith("[", at):
            quoted = _QUOTED_SEGMENT.match(text, at)
            try:
                segments.append(json.loads(f'"{quoted.group(1)}"') if quoted else "")
            except ValueError:
                quoted = None
            if quoted is None:
                raise _refuse(_malformed(text, at))
            at = quoted.end()
        if at == len(text):
            return segments
        if text[at] != ".":
            raise _refuse(_malformed(text, at))
        at += 1


def _malformed(text: str, at: int) -> str:
    if not text:
        return "the field is empty; write for example `toolName` or `inputPayload.<key>`"
    if re.compile(r"\[[0-9]+\]").match(text, at):
        return f"`{text}`: write an index as a segment, `.0` instead of `[0]`"
    if at < len(text) and text[at] == "[":
        return f'`{text}`: a quoted key is written `["a.b"]`, with double quotes'
    if at == len(text) or text[at] == ".":
        return f'`{text}` has an empty segment; a key that is empty or has a dot is written `["a.b"]`'
    return f'`{text}` cannot be read at character {at + 1}; quote an unusual key, as in `inputPayload["a.b"]`'


def _check_member(text: str, root: str, segments: list[str]) -> None:
    members = _MEMBERS[root]
    known = ", ".join(f"`{root}.{name}`" for name in members)
    if not segments:
        raise _refuse(f"`{root}` alone is not a field; name one of {known}")
    kind = members.get(segments[0])
    if kind is None:
        close = closest(segments[0], members)
        hint = f"did you mean `{canonical(root, [close, *segments[1:]])}`?" if close else f"there is {known}"
        raise _refuse(f"unknown field `{text}`; {hint}")
    if kind == "text" and len(segments) > 1:
        raise _refuse(f"`{root}.{segments[0]}` is a text and has no `{segments[1]}`; write it alone")
    if root in COMPUTED and len(segments) > 1:
        _check_computed(text, root, segments[0], segments[1:])


def _check_computed(text: str, root: str, name: str, rest: list[str]) -> None:
    """Of a computed list only a number may be named, of computed records a key of theirs."""
    shape = computed.MEMBERS[root][name].shape
    if computed.MEMBERS[root][name].kind == "object":
        return
    keys = [each for each in rest if not _INDEX.fullmatch(each)]
    if not keys:
        return
    if not shape:
        raise _refuse(f"`{root}.{name}` is a list of texts and has no `{keys[0]}`; write it alone")
    if keys[0] not in shape:
        close = closest(keys[0], shape)
        known = ", ".join(f"`{root}.{name}.{key}`" for key in shape)
        hint = f"did you mean `{root}.{name}.{close}`?" if close else f"there is {known}"
        raise _refuse(f"unknown field `{text}`; {hint}")
    if keys[1:]:
        raise _refuse(f"`{root}.{name}.{keys[0]}` has no `{keys[1]}`; write it alone")


def _suggest(root: str, known: Mapping[str, str], segments: list[str]) -> str:
    close = closest(root, known)
    if close:
        rest = segments if known[close] != "text" else []
        whole = canonical(close, rest)
        if close in _MEMBERS and not rest:
            whole += ".<key>"
        return f"did you mean `{whole}`?"
    return "a field starts with one of " + ", ".join(f"`{name}`" for name in known)


def _refuse(message: str) -> ConditionError:
    return ConditionError(whole(message), part="field")
