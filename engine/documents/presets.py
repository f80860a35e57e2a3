"""Presets and packs: ready-made policies with parameters, and curated sets of them.

Decides what `{{name}}` becomes when a preset turns into a policy, and whether a preset or pack file is
good: a preset must load as a policy, examples included, with its default parameters. It must not know which
presets are active or where files live.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from engine.conditions.message import listed
from engine.derived.tools import Tools
from engine.documents.policy import (
    Defect,
    check_body,
    digest_of,
    failing_examples,
    header_defects,
    policy_from_json,
    reads_tools,
    refuse,
    refuse_id,
)
from engine.documents.yaml import read
from engine.errors import DocumentError, Problem
from engine.model import Json
from schemas.suggestion import suggestion
from schemas.validation import shown

PLACEHOLDER: Final = re.compile(r"\{\{\s*([A-Za-z][A-Za-z0-9_]*)\s*\}\}")
PATTERN_OPERATORS: Final = frozenset({"matches", "not_matches"})
POLICY_KEYS: Final = (
    *("name", "description", "message", "action", "scope", "mode", "matchConditions"),
    *("rateLimit", "approval", "failurePolicy", "examples"),
)


_DOMAIN: Final = re.compile(
    r"(?=.{1,253}\Z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]", re.I
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a preset lets its user set. `type` is string, number, integer, boolean or list (of texts);
    `format` is text, regex or domain."""

    name: str
    description: str
    default: Json
    type: str = "string"
    format: str = "text"
    minimum: float | None = None
    maximum: float | None = None

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
                    return f"`{self.name}` must be a domain such as `corp.example`; it is {shown(entry)}"
        if self.minimum is not None and value < self.minimum:
            return f"`{self.name}` must be at least {self.minimum}; it is {value}"
        if self.maximum is not None and value > self.maximum:
            return f"`{self.name}` must be at most {self.maximum}; it is {value}"
        return None


@dataclass(frozen=True, slots=True)
class Preset:
    """A ready-made policy. `template` holds the policy's members with `{{name}}` still in them."""

    preset_id: str
    category: str
    name: str
    description: str
    template: Mapping[str, Json]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    file: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Pack:
    """A curated set of presets, in the order of the file."""

    pack_id: str
    name: str
    presets: tuple[str, ...]
    description: str | None = None
    category: str | None = None
    file: str = ""
    digest: str = ""
    places: tuple[tuple[int, int], ...] = field(default=(), compare=False)
    """Line and column of each entry of `presets`."""


def instantiate(
    preset: Preset, parameters: Mapping[str, Json], policy_id: str, tools: Tools | None = None
) -> dict[str, Json]:
    """The JSON body of the policy that a preset makes with these parameters; missing ones have defaults.

    Examples were written for the defaults: with other parameters, or other `tools`, only those that still
    hold are kept.
    Raises DocumentError with pointers into `parameters`, or into the policy when it does not compile.
    """
    values, problems = _values(preset.parameters, parameters)
    if problems:
        raise DocumentError(problems)
    findings: list[Defect] = []
    chosen = {name: value for name, value in parameters.items() if value != preset.parameters[name].default}
    body = {
        "policyId": policy_id,
        "presetId": preset.preset_id,
        "enabled": True,
        **({"presetParameters": chosen} if chosen else {}),
        **_Filler(preset.parameters, values, findings).fill(preset.template),
    }
    checked, found = check_body(body, tools=tools)
    failing = {int(each.pointer.split("/")[2]) for each in found if each.code == "example_fails"}
    findings += [each for each in found if each.code != "example_fails"]
    if checked is None or findings:
        raise DocumentError(Problem(each.message, each.pointer, each.code) for each in findings)
    body["examples"] = [each for index, each in enumerate(body["examples"]) if index not in failing]
    if not body["examples"]:
        del body["examples"]
    return body


def failing_preset_examples(preset: Preset, tools: Tools) -> list[Defect]:
    """The examples of a good preset that do not hold by these declarations of tools."""
    policy = policy_from_json(instantiate(preset, {}, preset.preset_id))
    return failing_examples(policy, tools) if reads_tools(policy) else []


def names_in(value: Json) -> Iterator[str]:
    """Every `{{name}}` in a template's value."""
    if isinstance(value, str):
        yield from PLACEHOLDER.findall(value)
    elif isinstance(value, list):
        for each in value:
            yield from names_in(each)
    elif isinstance(value, dict):
        yield from names_in(list(value.values()))


def load_preset(source: bytes, file: str = "") -> Preset:
    """The preset of a YAML file. Raises DocumentError with every problem, at file:line:column."""
    reading = read(source, file)
    findings = header_defects(reading, "documents/preset", "presetId")
    value = reading.root.value
    if findings:
        refuse(reading, findings)
    if message := refuse_id(value["presetId"], "presetId"):
        findings.append(Defect("/presetId", message, "wrong_form"))
    parameters = {
        name: Parameter(name=name, **{key: entry[key] for key in entry})
        for name, entry in value.get("parameters", {}).items()
    }
    for name, parameter in parameters.items():
        pointer = f"/parameters/{name}"
        if message := parameter.refuse(parameter.default):
            findings.append(Defect(f"{pointer}/default", message, "wrong_type"))
        if parameter.format == "domain" and parameter.type not in ("string", "list"):
            findings.append(
                Defect(f"{pointer}/format", "`format: domain` goes with `type: string` or `list`", "invalid")
            )
        if parameter.format == "regex" and parameter.type != "string":
            findings.append(
                Defect(f"{pointer}/format", "`format: regex` goes only with `type: string`", "invalid")
            )
    template = {key: value[key] for key in POLICY_KEYS if key in value}
    if not findings:
        findings += _check_template(template, parameters)
    refuse(reading, findings)
    return Preset(
        preset_id=value["presetId"],
        category=value["category"],
        name=value["name"],
        description=value["description"],
        template=template,
        parameters=parameters,
        file=file,
        digest=digest_of(source),
    )


def _check_template(template: Mapping[str, Json], parameters: Mapping[str, Parameter]) -> list[Defect]:
    findings: list[Defect] = []
    filler = _Filler(parameters, {name: each.default for name, each in parameters.items()}, findings)
    body = filler.fill(template)
    if findings:
        return findings
    for name in parameters:
        if name not in filler.used:
            message = f"`{name}` is used nowhere; write `{{{{{name}}}}}` where it belongs, or remove it"
            findings.append(Defect(f"/parameters/{name}", message, "unused", at_key=True))
    # Offsets are into the filled-in text, so they say nothing where a parameter was filled in.
    _, found = check_body({"policyId": "preset", **body})
    changed = json.dumps(body) != json.dumps(template)
    return findings + [
        Defect(each.pointer, each.message, each.code, each.at_key, None if changed else each.offset)
        for each in found
    ]


def _values(
    parameters: Mapping[str, Parameter], given: Mapping[str, Json]
) -> tuple[dict[str, Json], list[Problem]]:
    problems = [
        Problem(
            f"`{name}` is not a parameter of this preset" + suggestion(name, parameters),
            f"/{name}",
            "unknown_key",
        )
        for name in given
        if name not in parameters
    ]
    values: dict[str, Json] = {}
    for name, parameter in parameters.items():
        values[name] = given.get(name, parameter.default)
        if message := parameter.refuse(values[name]):
            problems.append(Problem(message, f"/{name}", "wrong_type"))
    return values, problems


class _Filler:
    """Replaces `{{name}}` everywhere in a template, by the rules of the schema's description."""

    def __init__(
        self, parameters: Mapping[str, Parameter], values: Mapping[str, Json], findings: list[Defect]
    ) -> None:
        self.parameters = parameters
        self.values = values
        self.findings = findings
        self.used: set[str] = set()

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
        if entry.get("operator") in PATTERN_OPERATORS and isinstance(entry.get("value"), str):
            return {**entry, "value": self.text(entry["value"], f"{pointer}/value", self.pattern)}
        return {
            key: self.plain(value, f"{pointer}/{key}") if key == "value" else value
            for key, value in entry.items()
        }

    def plain(self, value: Json, pointer: str) -> Json:
        if isinstance(value, str):
            whole = PLACEHOLDER.fullmatch(value)
            if whole and (parameter := self.known(whole[1], pointer)):
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

    def text(self, text: str, pointer: str, render: Any) -> str:
        def replace(found: re.Match[str]) -> str:
            parameter = self.known(found[1], pointer)
            return render(parameter, pointer) if parameter else ""

        return PLACEHOLDER.sub(replace, text)

    def known(self, name: str, pointer: str) -> Parameter | None:
        if name in self.parameters:
            self.used.add(name)
            return self.parameters[name]
        near = suggestion(name, self.parameters) or "; add it to `parameters`"
        self.findings.append(Defect(pointer, f"there is no parameter `{name}`{near}", "unknown_parameter"))
        return None

    def not_regex(self, parameter: Parameter, pointer: str) -> bool:
        if parameter.format == "regex":
            message = f"`{parameter.name}` is a pattern, only for the value of `matches` or `not_matches`"
            self.findings.append(Defect(pointer, message, "misplaced_parameter"))
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
        if self.not_regex(parameter, pointer) and isinstance(value, list):
            return _without_braces(listed(value, f"{len(value) - 3:,} more" if len(value) > 3 else ""))
        return _without_braces(self.words(parameter, pointer))

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


def _without_braces(text: str) -> str:
    return text.translate({ord("{"): "(", ord("}"): ")"})


def escaped(text: str) -> str:
    """A pattern that matches exactly this text, in RE2 syntax."""
    return re.sub(
        r"([\\.+*?()|\[\]{}^$\-#&~ ])", lambda found: "\\x20" if found[1] == " " else "\\" + found[1], text
    )


def load_pack(source: bytes, file: str = "") -> Pack:
    """The pack of a YAML file. Raises DocumentError with every problem, at file:line:column."""
    reading = read(source, file)
    findings = header_defects(reading, "documents/pack", "packId")
    if not findings and (message := refuse_id(reading.root.value["packId"], "packId")):
        findings.append(Defect("/packId", message, "wrong_form"))
    refuse(reading, findings)
    value = reading.root.value
    nodes = [reading.find(f"/presets/{index}")[0] for index in range(len(value["presets"]))]
    return Pack(
        pack_id=value["packId"],
        name=value["name"],
        presets=tuple(value["presets"]),
        description=value.get("description"),
        category=value.get("category"),
        file=file,
        digest=digest_of(source),
        places=tuple((node.line, node.column) for node in nodes),
    )
