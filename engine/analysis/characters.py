"""Characters in a policy that a reader does not see, or takes for others: which they are, what lint says."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from typing import Final

from engine.analysis.findings import Finding
from engine.fields.visible import composed
from engine.model import Condition, Json, Policy

_QUOTES: Final = dict.fromkeys("“”„‟«»", '"') | dict.fromkeys("‘’‚‛‹›", "'")
"""Typographic quotes, and what is mostly meant."""


def unseen_characters(policy: Policy) -> Iterator[Finding]:
    """A finding for each text in the conditions with such a character, unless an example has it too."""
    shown = "".join(json.dumps(example.call, ensure_ascii=False) for example in policy.examples)
    for index, condition in enumerate(policy.conditions):
        for pointer, text in _texts(condition):
            odd = next((each for each in text if each not in shown and _is_odd(each)), None)
            if odd is not None:
                where = f"/matchConditions/{index}{pointer}"
                yield Finding("unseen-characters", _message(odd), policy, where)


def _texts(condition: Condition) -> Iterator[tuple[str, str]]:
    """The texts of a condition, each with where it stands."""
    for name in ("field", "expression"):
        if text := getattr(condition, name):
            yield f"/{name}", text
    stack: list[tuple[str, Json]] = [("/value", condition.value)]
    while stack:
        pointer, value = stack.pop()
        if isinstance(value, str):
            yield pointer, value
        elif isinstance(value, list):
            stack += [(f"{pointer}/{at}", each) for at, each in enumerate(value)]


def _is_odd(character: str) -> bool:
    """Typographic quotes, blanks other than the usual ones, and what shows nothing."""
    if character in " \t\n\r":
        return False
    return character in _QUOTES or character.isspace() or not composed(character).strip()


def _message(character: str) -> str:
    name = f"U+{ord(character):04X} ({unicodedata.name(character, 'a control character').lower()})"
    if character in _QUOTES:
        said = f"this holds {name}, which is another character than `{_QUOTES[character]}`"
    elif character.isspace():
        said = f"this holds {name}, which looks like a blank and is none"
    else:
        said = f"this holds {name}, which nobody sees, and which counts in comparisons"
    return f"{said}; write what is meant, or add an example of a call that holds it"
