"""`{{name}}` in a policy: what a parameter or a setting becomes where it stands.

Decides how a value is written into a condition, a message or any other member, so that it never means more
than itself there: literal in a pattern, a literal in an expression, a few words in a message. It must not
know presets, files or where values come from.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.conditions.message import listed
from engine.errors import Problem
from engine.model import Json
from schemas.suggestion import suggestion
from schemas.validation import shown

PLACEHOLDER: Final = re.compile(r"\{\{\s*([A-Za-z][A-Za-z0-9_]*)\s*\}\}")
PATTERN_OPERATORS: Final = frozenset({"matches", "not_matches"})

_DOMAIN: Final = re.compile(
    r"(?=.{1,253}\Z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]", re.I
)
_MOST_TOLD: Final = 3


@dataclass(frozen=True, slots=True)
class Parameter:
    """What stands behind a `{{name}}`. `type` is string, number, integer, boolean or list (of texts);
    `format` is text, regex or domain. A `default` that is `{{setting}}` is the organisation's setting."""

    name: str
    description: str
    default: Json
    type: str = "string"
    format: str = "text"
    minimum: float | None = None
    maximum: float | None = None

    @property
    def setting(self) -> str | None:
        """The setting of the organisation that it is by default."""
        found = PLACEHOLDER.fullmatch(self.default) if isinstance(self.default, str) else None
        return found[1] if found else None

    def as_json(self) -> dict[str, Json]:
        shape = {
            "type": self.type,
            "format": self.format if self.type == "string" or self.format == "domain" else None,
            "description": self.description,
            "default": self.default,
            "minimum": self.minimum,
            "maximum": self.maximum,
        }
        return {key: value for key, value in shape.items() if value is not None}

    def refuse(self, value: Json) -> str | None:
        """Why a value does not fit, or None."""
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        fits = {
            "string": isinstance(value, str),
            "boolean": isinstance(value, bool),
            "number": number and math.isfinite(value),
            "integer": number and math.isfinite(value) and value == value // 1,
            "list": isinstance(value, list) and bool(value) and all(isinstance(e, str) and e for e in value),
        }
        if not fits[self.type]:
            words = {"string": "text", "boolean": "`true` or `false`", "list": "a list of one or more texts"}
            word = words.get(self.type, "a whole number" if self.type == "integer" else "a number")
            return f"`{self.name}` must be {word}; it is {shown(value)}"
        if self.format == "domain":
            for entry in value if isinstance(value, list) else [value]:
                if not isinstance(entry, str) or not _DOMAIN.fullmatch(entry):
                    return f"`{self.name}` must be a domain such as `acme.com`; it is {shown(entry)}"
        if self.minimum is not None and value < self.minimum:
            return f"`{self.name}` must be at least {self.minimum}; it is {value}"
        if self.maximum is not None and value > self.maximum:
            return f"`{self.name}` must be at most {self.maximum}; it is {value}"
        return None


class Filler:
    """Replaces `{{name}}` in the members of a policy. `kept` are names that stay as they are, since they are
    filled in later; `advice` says what to do about a name that nobody knows."""

    def __init__(
        self,
        parameters: Mapping[str, Parameter],
        values: Mapping[str, Json],
        kept: Collection[str] = (),
        advice: str = "",
        kind: str = "parameter",
    ) -> None:
        self.parameters = parameters
        self.values = values
        self.kept = kept
        self.advice = advice
        self.kind = kind
        self.used: set[str] = set()
        self.problems: list[Problem] = []

    def fill(self, template: Mapping[str, Json]) -> dict[str, Any]:
        return {key: self.member(key, value) for key, value in template.items()}

    def member(self, key: str, value: Json) -> Json:
        if key == "matchConditions" and isinstance(value, list):
            return [self.condition(entry, f"/matchConditions/{index}") for index, entry in enumerate(value)]
        if key == "message" and isinstance(value, str):
            return self.text(value, "/message", self.told)
        return self.plain(value, f"/{key}")

    def condition(self, entry: Json, pointer: str) -> Json:
        if isinstance(entry, str):
            return self.text(entry, pointer, self.literal)
        if not isinstance(entry, dict):
            return entry
        if isinstance(entry.get("expression"), str):
            filled = self.text(entry["expression"], f"{pointer}/expression", self.literal)
            return {**entry, "expression": filled}
        if str(entry.get("operator")) in PATTERN_OPERATORS and isinstance(entry.get("value"), str):
            return {**entry, "value": self.text(entry["value"], f"{pointer}/value", self.pattern)}
        return {
            key: self.plain(value, f"{pointer}/{key}") if key == "value" else value
            for key, value in entry.items()
        }

    def plain(self, value: Json, pointer: str) -> Json:
        if isinstance(value, str):
            if "{{" not in value:
                return value
            whole = PLACEHOLDER.fullmatch(value)
            if whole and whole[1] in self.parameters and not self.stays(whole[1]):
                parameter = self.known(whole[1])
                return self.values[parameter.name] if self.not_regex(parameter, pointer) else ""
            return self.text(value, pointer, self.words)
        if isinstance(value, list):
            filled: list[Json] = []
            for index, each in enumerate(value):
                result = self.plain(each, f"{pointer}/{index}")
                spliced = isinstance(each, str) and isinstance(result, list)
                filled += result if spliced else [result]
            return filled
        if isinstance(value, dict):
            return {key: self.plain(each, f"{pointer}/{key}") for key, each in value.items()}
        return value

    def text(self, text: str, pointer: str, render: Callable[[Parameter, str], str]) -> str:
        if "{{" not in text:
            return text

        def replace(found: re.Match[str]) -> str:
            name = found[1]
            if name in self.parameters:
                parameter = self.known(name)
                return str(self.values[name]) if self.stays(name) else render(parameter, pointer)
            if name not in self.kept:
                near = suggestion(name, [*self.parameters, *self.kept]) or self.advice
                message = f"there is no {self.kind} `{name}`{near}"
                self.problems.append(Problem(message, pointer, f"unknown_{self.kind}"))
            return found[0]

        return PLACEHOLDER.sub(replace, text)

    def known(self, name: str) -> Parameter:
        self.used.add(name)
        return self.parameters[name]

    def stays(self, name: str) -> bool:
        """Whether a parameter's value is a setting, by name, which is filled in later."""
        value = self.values[name]
        found = PLACEHOLDER.fullmatch(value) if isinstance(value, str) else None
        return found is not None and value == self.parameters[name].default and found[1] in self.kept

    def not_regex(self, parameter: Parameter, pointer: str) -> bool:
        if parameter.format == "regex":
            message = f"`{parameter.name}` is a pattern, only for the value of `matches` or `not_matches`"
            self.problems.append(Problem(message, pointer, "misplaced_parameter"))
            return False
        return True

    def words(self, parameter: Parameter, pointer: str) -> str:
        value = self.values[parameter.name]
        if not self.not_regex(parameter, pointer):
            return ""
        if isinstance(value, list):
            return ", ".join(value)
        return value if isinstance(value, str) else json.dumps(value)

    def told(self, parameter: Parameter, pointer: str) -> str:
        """A value within a message: a few of many, and no braces, which would be placeholders."""
        value = self.values[parameter.name]
        text = self.words(parameter, pointer)
        if isinstance(value, list):
            text = listed(value, f"{len(value) - _MOST_TOLD:,} more" if len(value) > _MOST_TOLD else "")
        return text.translate({ord("{"): "(", ord("}"): ")"})

    def literal(self, parameter: Parameter, pointer: str) -> str:
        if not self.not_regex(parameter, pointer):
            return "''"
        return json.dumps(self.values[parameter.name], ensure_ascii=False)

    def pattern(self, parameter: Parameter, pointer: str) -> str:
        value = self.values[parameter.name]
        if parameter.format == "regex":
            return f"(?:{value})"
        if isinstance(value, list):
            return "(?:" + "|".join(map(escaped, value)) + ")"
        return escaped(value if isinstance(value, str) else json.dumps(value))


def names_in(value: Json) -> Iterator[str]:
    """Every `{{name}}` in a value."""
    if isinstance(value, str):
        if "{{" in value:
            yield from PLACEHOLDER.findall(value)
    elif isinstance(value, list):
        for each in value:
            yield from names_in(each)
    elif isinstance(value, dict):
        yield from names_in(list(value.values()))


def escaped(text: str) -> str:
    """A pattern that matches exactly this text, in RE2 syntax."""
    return re.sub(
        r"([\\.+*?()|\[\]{}^$\-#&~ ])", lambda found: "\\x20" if found[1] == " " else "\\" + found[1], text
    )
