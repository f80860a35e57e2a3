"""The rules about runs once more, plainly: simple, slow, and without a line of the service's own.

A run is the list of what happened in it. Labels, sequences and sources are worked out anew for every call by
reading that list from its beginning; values are compared as texts. Nothing is hashed, bounded or remembered.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Step = Mapping[str, Any]
"""`{task}`, `{said}`, `{approved: payload}`, `{call, tool, payload, blocked, policies, labels}`, or
`{output, tool, payload, believed, labels}`."""


@dataclass
class Tool:
    """What is declared of a tool, for the reference."""

    effect: str
    output: str = "untrusted"
    fields: Mapping[str, str] = field(default_factory=dict)
    targets: tuple[str, ...] = ()


def plain(value: Any) -> str:
    """One spelling for a value, however it is written."""
    text = value if isinstance(value, str) else json.dumps(value)
    text = unicodedata.normalize("NFKC", text).replace("\u200b", "").casefold()
    return " ".join(text.split()).strip(" .,;:!?\"'()[]{}<>")


def tokens(text: str) -> set[str]:
    """What stands in a text for itself: each piece between blanks, quoted texts, words, hosts of URLs."""
    found = set()
    for piece in unicodedata.normalize("NFKC", text).replace("\u200b", "").casefold().split():
        piece = piece.strip(" .,;:!?\"'()[]{}<>")
        found.add(piece)
        if piece.startswith("https://"):
            found |= {piece.removeprefix("https://"), piece.removeprefix("https://").split("/")[0]}
        elif "/" in piece:
            found.add(piece.split("/")[0])
    found |= {plain(quoted) for quoted in re.findall(r'"([^"]*)"', text)}
    found |= set(words(text))
    return {each for each in found if each and not re.fullmatch(r"\d{1,3}", each)}


def words(text: str) -> list[str]:
    text = unicodedata.normalize("NFKC", text).replace("\u200b", "").casefold()
    return re.findall(r"\w+(?:['_-]\w+)*", text)


def phrases(text: str) -> set[str]:
    listed = words(text)
    return {" ".join(listed[at : at + n]) for n in range(2, 7) for at in range(len(listed) - n + 1)}


def spellings(value: Any) -> set[str]:
    """The forms in which a value may have been named."""
    form = plain(value)
    return {form, form.removeprefix("https://").rstrip("/")}


def named_by_people(value: Any, text: str) -> bool:
    return bool(spellings(value) & ({plain(text)} | tokens(text) | phrases(text)))


def named_by_leaf(value: Any, leaf: Any) -> bool:
    found = {plain(leaf)} | (tokens(leaf) if isinstance(leaf, str) else set())
    return bool(spellings(value) & found)


def scalars(value: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict):
        for key, member in value.items():
            yield from scalars(member, (*keys, key))
    elif isinstance(value, list):
        for member in value:
            yield from scalars(member, keys)
    elif value is not None:
        yield keys, value


def parsed(output: Any) -> Any:
    if isinstance(output, str):
        try:
            found = json.loads(output)
        except ValueError:
            return output
        return found if isinstance(found, (dict, list)) else output
    return output


def is_id(tool: Tool, keys: tuple[str, ...]) -> bool:
    """Whether it is believed as an id alone, of an output that is not believed as such."""
    return tool.output != "trusted" and bool(keys) and tool.fields.get(keys[-1]) == "trusted"


def believed(tool: Tool, keys: tuple[str, ...], leaf: Any, from_text: bool) -> bool:
    if any(tool.fields.get(key) == "untrusted" for key in keys):
        return False
    if is_id(tool, keys):
        return not from_text or not isinstance(leaf, str) or bool(re.fullmatch(r"[A-Za-z0-9_:-]{1,64}", leaf))
    return tool.output == "trusted"


def source(value: Any, run: list[Step], tools: Mapping[str, Tool]) -> str:
    """Where a value was first seen; a person's word outweighs everything."""
    for step in run:
        if "task" in step and named_by_people(value, step["task"]):
            return "task"
        if "said" in step and named_by_people(value, step["said"]):
            return "task"
        if "approved" in step and any(
            spellings(value) & spellings(leaf) for _, leaf in scalars(step["approved"])
        ):
            return "task"
    for step in run:
        if "output" not in step:
            continue
        tool = tools[step["tool"]]
        own = [leaf for _, leaf in scalars(step["payload"])] if tool.effect != "read" else []
        from_text = isinstance(step["output"], str)
        for keys, leaf in scalars(parsed(step["output"])):
            if not named_by_leaf(value, leaf):
                continue
            if not (step["believed"] and believed(tool, keys, leaf, from_text)):
                return "untrusted"
            if is_id(tool, keys) and not spellings(value) & spellings(leaf):
                continue
            if not any(named_by_leaf(value, mine) for mine in own):
                return "trusted"
    return "unseen"


def untrusted_targets(
    tool: Tool, payload: Mapping[str, Any], run: list[Step], tools: Mapping[str, Tool]
) -> list[Any]:
    return [
        leaf
        for keys, leaf in scalars(payload)
        if set(keys) & set(tool.targets) and source(leaf, run, tools) not in ("task", "trusted")
    ]


def unasked_targets(
    tool: Tool, payload: Mapping[str, Any], run: list[Step], tools: Mapping[str, Tool]
) -> list[Any]:
    return [
        leaf
        for keys, leaf in scalars(payload)
        if set(keys) & set(tool.targets) and source(leaf, run, tools) != "task"
    ]


def labels(run: list[Step]) -> set[str]:
    return {label for step in run for label in step.get("labels", ())}


def happened(run: list[Step], within: int, what: str, name: str) -> bool:
    """Whether one of the last so many calls was of a tool, gave a label, or matched a policy. What a report
    brings belongs to the last call."""
    calls = [number for number, step in enumerate(run) if "call" in step]
    start = calls[-within] if len(calls) >= within else 0
    for step in run[start:]:
        if what == "tool" and step.get("tool") == name and "call" in step and not step["blocked"]:
            return True
        if what in ("policies", "labels") and name in step.get(what, ()):
            return True
    return False
