"""What a tool gave back, leaf by leaf: each scalar, with the keys that it stands under.

Outputs arrive as JSON, as text, or as texts in a result of MCP. A text that is JSON or YAML as a whole is
taken for what it holds; a text within that stays the text that it is, so that nobody can pose as structure by
what he writes into a field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice, repeat
from typing import Any, Final, NamedTuple

import yaml

from engine.fields.words import words_of
from engine.model import Json

LONGEST_YAML: Final = 2**16
DEEPEST: Final = 64
MOST_LEAVES: Final = 10_000
MOST_PARTS: Final = 4 * MOST_LEAVES
"""Those with the objects and lists that they stand in, empty ones, and nulls."""
MOST_EVENTS: Final = 2 * MOST_LEAVES
"""Of the parser of YAML, each of which takes long, for all texts of an output together; a text for which
there is no room is taken for none."""
OF_A_BEGINNING: Final = 10
"""So many of them a text counts as that is begun, whatever it is."""

_BEFORE: Final = "\ufeff \t\r\n"
_UNSEEN_IN_YAML: Final = re.compile(r"(?:^|\s)#|^%", re.MULTILINE)
"""A comment or a directive, or what may be one."""

Leaf = tuple[tuple[str, ...], Json]
"""The keys above a scalar, as words, and the scalar."""

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class OutputParts(NamedTuple):
    """What an output was taken apart into."""

    scalars: list[Leaf]
    """All that are not null, in order."""
    names: list[Leaf]
    """Those of the members of its objects, with the keys above them."""
    is_text: bool
    is_whole: bool
    """There is nothing else."""


def parts(output: Json) -> OutputParts:
    """Never raises."""
    value = _parsed([output])[0] if isinstance(output, str) else _with_blocks(output)
    is_text = value is not output or isinstance(output, str)
    scalars: list[Leaf] = []
    names: list[Leaf] = []
    seen = 0
    stack: list[Iterator[Leaf]] = [iter([((), value)])]
    while stack and len(scalars) < MOST_LEAVES and seen < MOST_PARTS:
        if (found := next(stack[-1], None)) is None:
            stack.pop()
            continue
        seen += 1
        keys, value = found
        if isinstance(value, dict):
            stack.append(_members(keys, value))
            names += ((keys, name) for name in islice(value, MOST_PARTS - len(names)))
        elif isinstance(value, list):
            stack.append(zip(repeat(keys), value))
        elif value is not None and value != "":
            scalars.append((keys, value))
    is_whole = all(next(each, None) is None for each in stack)
    return OutputParts(scalars, names, is_text, is_whole)


def _members(keys: tuple[str, ...], value: dict[str, Json]) -> Iterator[Leaf]:
    above = keys if len(keys) < DEEPEST else keys[1:]
    return (((*above, words_of(name)), member) for name, member in value.items())


def leaves(output: Json) -> tuple[list[Leaf], bool]:
    """All scalars that are not null, in order, and whether the output was a text. Never raises."""
    found = parts(output)
    return found.scalars, found.is_text


def _with_blocks(output: Json) -> Json:
    """A result of MCP, or its content alone, with what its texts hold in their place: each of them is what a
    tool gave back as a text. That it is a text is said by MCP, and nothing that was read."""
    blocks = output.get("content") if isinstance(output, dict) else output
    if not isinstance(blocks, list) or not any(map(_is_text_block, blocks)):
        return output
    held = iter(_parsed([str(each["text"]) for each in blocks if _is_text_block(each)]))
    opened = [_opened(each, next(held)) if _is_text_block(each) else each for each in blocks]
    return {**output, "content": opened} if isinstance(output, dict) else opened


def _opened(block: dict[str, Json], held: Json) -> Json:
    others = {name: value for name, value in block.items() if name != "type"}
    return {**others, "text": held}


def _is_text_block(block: Json) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)


def _parsed(texts: Sequence[str]) -> list[Json]:
    """What each text of an output holds, if that is an object or a list; else the text. INVARIANT: all that
    it says is in it, so JSON with a key that stands twice is a text, and so is YAML with a comment or a
    tag."""
    held = {text: _json(text) for text in texts}
    left = tuple(text for text, value in held.items() if value is None and _may_be_yaml(text))
    held.update(zip(left, _yaml(left), strict=True))
    return [value if isinstance(value := held[text], (dict, list)) else text for text in texts]


def _json(text: str) -> Json:
    if text.lstrip(_BEFORE)[:1] not in ("{", "["):
        return None
    try:
        value: Json = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        return None
    return value


def _may_be_yaml(text: str) -> bool:
    if len(text) > LONGEST_YAML or not (":" in text or text.lstrip(_BEFORE)[:1] == "-"):
        return False
    return _UNSEEN_IN_YAML.search(text) is None


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError
    return found


@lru_cache(maxsize=2)
def _yaml(texts: tuple[str, ...]) -> list[Json]:
    """Of each plain YAML as text alone; None for what is none, or refers to itself. Nobody changes it:
    whoever looks at the same output next gets it, too."""
    room = _Room()
    return [_document(text, room) if room.left > 0 else None for text in texts]


class _Room:
    """How many events the parser may still be asked for."""

    def __init__(self) -> None:
        self.left = MOST_EVENTS


def _document(text: str, room: _Room) -> Json:
    room.left -= OF_A_BEGINNING
    try:
        events = iter(list(_events(text, room)))
        next(events)
        value = _node(next(events), events, 0)
        return value if next(events, None) is None else None
    except (yaml.YAMLError, _NotPlain, StopIteration, RecursionError, ValueError):
        return None


class _NotPlain(Exception):
    pass


def _events(text: str, room: _Room) -> Iterator[Any]:
    """The events of one document, without those that only frame it. What is nested too deeply is given up at
    once: the parser takes time in the square of the brackets that are open."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        room.left -= 1
        if room.left < 0 or isinstance(event, yaml.AliasEvent) or _is_marked(event):
            raise _NotPlain
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST + 1:
            raise _NotPlain
        if not isinstance(event, (yaml.StreamEndEvent, yaml.DocumentStartEvent, yaml.DocumentEndEvent)):
            yield event


def _is_marked(event: Any) -> bool:
    """Whether it has an anchor or a tag, of which a value shows nothing."""
    return bool(getattr(event, "anchor", None) or getattr(event, "tag", None))


def _node(event: Any, events: Iterator[Any], depth: int) -> Json:
    if depth > DEEPEST:
        raise _NotPlain
    if isinstance(event, yaml.ScalarEvent):
        return None if event.value in ("null", "~", "") and event.implicit[0] else event.value
    if isinstance(event, yaml.SequenceStartEvent):
        items: list[Json] = []
        while not isinstance(following := next(events), yaml.SequenceEndEvent):
            items.append(_node(following, events, depth + 1))
        return items
    if isinstance(event, yaml.MappingStartEvent):
        members: dict[str, Json] = {}
        while not isinstance(key := next(events), yaml.MappingEndEvent):
            name = _node(key, events, depth + 1)
            if not isinstance(name, str) or name in members:
                raise _NotPlain
            members[name] = _node(next(events), events, depth + 1)
        return members
    raise _NotPlain
