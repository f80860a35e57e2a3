"""Texts in a policy that compare otherwise than a reader takes them: characters that nobody sees or that look
like others, words that are no text elsewhere, and placeholders that nobody has filled. Which they are, and
what lint says."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Final

from engine.analysis.findings import Finding
from engine.conditions.placeholders import PLACEHOLDER
from engine.fields.visible import composed
from engine.model import Condition, Json, Policy

_QUOTES: Final = dict.fromkeys("“”„‟«»", '"') | dict.fromkeys("‘’‚‛‹›", "'")
"""Typographic quotes, and what is mostly meant."""

_LEFT: Final = re.compile(r"\{\{[^{}]*\}\}|\A(?:\$\{\w+\}|\$\(\w+\))\Z")
"""What a template of Helm or Jinja, or `envsubst`, puts in: in braces anywhere, else the text as a whole."""

_UNFILLED: Final = (
    "`{}` is compared as it stands: only settings are put in, written as `{{{{companyDomains}}}}`; write what"
    " is meant, or add an example of a call that holds it"
)

_JSON: Final = {"True": "true", "TRUE": "true", "False": "false", "FALSE": "false"} | dict.fromkeys(
    ("Null", "NULL", "None", "~"), "null"
)
"""What YAML or Python spells so, and JSON does not."""

_SPELLED: Final = (
    "`{0}` is a text here, which `{1}` never equals; write `{1}`, or add an example of a call that holds it"
)


def unseen_characters(policy: Policy) -> Iterator[Finding]:
    """A finding for each text in the conditions with such a character, unless an example has it too."""
    shown = _shown(policy)
    for where, text in _texts(policy):
        odd = next((each for each in text if each not in shown and _is_odd(each)), None)
        if odd is not None:
            yield Finding("unseen-characters", _message(odd), policy, where)


def placeholders_left(policy: Policy) -> Iterator[Finding]:
    """A finding for each value with a placeholder that is no setting, unless an example has it too: it is
    compared as it stands."""
    shown = _shown(policy)
    for where, text in _texts(policy, values_alone=True):
        found = (each for each in _LEFT.findall(text) if not PLACEHOLDER.fullmatch(each))
        left = next((each for each in found if each not in shown), None)
        if left is not None:
            yield Finding("placeholder-left", _UNFILLED.format(left), policy, where)


def words_for_json(policy: Policy) -> Iterator[Finding]:
    """A finding for each value that other readers of YAML take for no text, unless an example has it too."""
    shown = _shown(policy)
    for where, text in _texts(policy, values_alone=True):
        meant = _JSON.get(text)
        if meant is not None and f'"{text}"' not in shown:
            yield Finding("text-for-json", _SPELLED.format(text, meant), policy, where)


def _shown(policy: Policy) -> str:
    """What the examples of a policy have in them."""
    return "".join(json.dumps(example.call, ensure_ascii=False) for example in policy.examples)


def _texts(policy: Policy, *, values_alone: bool = False) -> Iterator[tuple[str, str]]:
    """Where each text of its conditions stands, and the text."""
    for index, condition in enumerate(policy.conditions):
        for pointer, text in _texts_of(condition):
            if not values_alone or pointer.startswith("/value"):
                yield f"/matchConditions/{index}{pointer}", text


def _texts_of(condition: Condition) -> Iterator[tuple[str, str]]:
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
