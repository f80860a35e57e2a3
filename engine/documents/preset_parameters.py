"""Which parameters a policy was made with, read back from what it says.

Nobody keeps the parameters of an activation: the policy shows them where its preset has `{{name}}`. What is
found here is a guess until the preset, filled in again, says what the policy says. It mirrors how
`engine.documents.presets` fills a template in, and knows no history.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from engine.documents.presets import PATTERN_OPERATORS, PLACEHOLDER, Parameter, Preset
from engine.model import Json

TELLING: Final = ("matchConditions", "rateLimit", "approval", "action", "scope", "mode", "failurePolicy")
"""Members that show a value exactly; the texts for people come after them, examples show too little."""

_TOKEN: Final = re.compile(r"\\x20|\\.|[^\\]", re.DOTALL)
_DECODER: Final = json.JSONDecoder()


def chosen(preset: Preset, state: Mapping[str, Json]) -> dict[str, Json]:
    """The parameters of a policy (the contract's shape) that are not the preset's defaults."""
    finder = _Finder(preset.parameters)
    for key in (*TELLING, "description", "name"):
        if key in preset.template and key in state:
            finder.member(key, preset.template[key], state[key])
    found: dict[str, Json] = {}
    for name, parameter in preset.parameters.items():
        fitting = [value for value in finder.found.get(name, ()) if parameter.refuse(value) is None]
        if fitting and fitting[0] != parameter.default:
            found[name] = fitting[0]
    return found


def names_in(value: Json) -> Iterator[str]:
    """Every `{{name}}` in a template's value."""
    if isinstance(value, str):
        yield from PLACEHOLDER.findall(value)
    elif isinstance(value, list):
        for each in value:
            yield from names_in(each)
    elif isinstance(value, dict):
        yield from names_in(list(value.values()))


class _Finder:
    """Walks a template and what it became side by side; `found` holds candidates, the surest first."""

    def __init__(self, parameters: Mapping[str, Parameter]) -> None:
        self.parameters = parameters
        self.found: dict[str, list[Json]] = {}

    def member(self, key: str, template: Json, value: Json) -> None:
        if key == "matchConditions" and isinstance(template, list) and isinstance(value, list):
            for entry, made in zip(template, value, strict=False):
                self.condition({"expression": entry} if isinstance(entry, str) else entry, made)
        else:
            self.plain(template, value)

    def condition(self, template: Json, value: Json) -> None:
        if not isinstance(template, dict) or not isinstance(value, dict):
            return
        if "expression" in template:
            self.text(template["expression"], value.get("expression"), "literal")
        elif all(template.get(name) == value.get(name) for name in ("field", "operator")):
            before, after = template.get("value"), value.get("value")
            if template.get("operator") in PATTERN_OPERATORS:
                self.text(before, after, "pattern")
            else:
                self.plain(before, after)

    def plain(self, template: Json, value: Json) -> None:
        if isinstance(template, str):
            whole = PLACEHOLDER.fullmatch(template)
            if whole:
                self.add(whole[1], value)
            else:
                self.text(template, value, "words")
        elif isinstance(template, list) and isinstance(value, list):
            self.items(template, value)
        elif isinstance(template, dict) and isinstance(value, dict):
            for key in template.keys() & value.keys():
                self.plain(template[key], value[key])

    def items(self, template: list[Json], value: list[Json]) -> None:
        """A list; one entry of the template may have become several."""
        spliced = [index for index, each in enumerate(template) if self.is_spliced(each)]
        if len(spliced) > 1:
            return
        if spliced:
            first, after = spliced[0], len(template) - spliced[0] - 1
            end = len(value) - after
            if end < first:
                return
            self.plain(template[first], value[first:end])
            template, value = template[:first] + template[first + 1 :], value[:first] + value[end:]
        for entry, made in zip(template, value, strict=False):
            self.plain(entry, made)

    def is_spliced(self, entry: Json) -> bool:
        whole = PLACEHOLDER.fullmatch(entry) if isinstance(entry, str) else None
        parameter = self.parameters.get(whole[1]) if whole else None
        return parameter is not None and parameter.type == "list"

    def text(self, template: Json, text: Json, form: str) -> None:
        """A text with placeholders in it; nothing is found when the text is not of the template at all."""
        if not isinstance(template, str) or not isinstance(text, str):
            return
        pieces = PLACEHOLDER.split(template)
        if len(pieces) == 1 or not text.startswith(pieces[0]):
            return
        position, values = len(pieces[0]), []
        for index in range(1, len(pieces), 2):
            name, after = pieces[index : index + 2]
            try:
                if form == "literal":
                    value, end = _DECODER.raw_decode(text, position)
                else:
                    parameter = self.parameters[name]
                    grouped = form == "pattern" and (parameter.format == "regex" or parameter.type == "list")
                    closing = ")" if grouped else ""
                    if index == len(pieces) - 2:
                        end = len(text) - len(after)
                    elif closing or after:
                        end = text.index(closing + after, position) + len(closing)
                    else:
                        return  # where one value ends and the next begins cannot be seen
                    value = _read(parameter, text[position:end], form, grouped)
            except (ValueError, KeyError, RecursionError):
                return
            if end < position or not text.startswith(after, end):
                return
            values.append((name, value))
            position = end + len(after)
        if position == len(text):
            for name, value in values:
                self.add(name, value)

    def add(self, name: str, value: Json) -> None:
        self.found.setdefault(name, []).append(value)


def _read(parameter: Parameter, text: str, form: str, grouped: bool) -> Json:
    """The value that was rendered so. Raises ValueError."""
    if form == "pattern":
        if grouped:
            if not (text.startswith("(?:") and text.endswith(")")):
                raise ValueError(text)
            text = text[3:-1]
        if parameter.format == "regex":
            return text
        words = _alternatives(text)
        if parameter.type == "list":
            return words
        text = "|".join(words)
    elif parameter.type == "list":
        return text.split(", ")
    return text if parameter.type == "string" else json.loads(text)


def _alternatives(pattern: str) -> list[str]:
    """The literal texts of a pattern that `engine.documents.presets` made of a text or a list."""
    words = [""]
    for token in _TOKEN.findall(pattern):
        if token == "|":
            words.append("")
        else:
            words[-1] += " " if token == "\\x20" else token[-1]
    return words
