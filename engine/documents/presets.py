"""Presets and packs: ready-made policies with parameters, and curated sets of them.

Decides what `{{name}}` becomes when a preset turns into a policy, and whether a preset or pack file is
good: a preset must load as a policy, examples included, with its default parameters. It must not know which
presets are active or where files live.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from engine.conditions.examples import reads_tools
from engine.conditions.placeholders import Filler, Parameter, names_in
from engine.conditions.settings import READERS, SAMPLES, SETTINGS, missing
from engine.derived.tools import Tools
from engine.documents.document import Defect, digest_of, read_shaped
from engine.documents.policy import check_body, failing_examples, policy_from_json
from engine.errors import DocumentError, Problem
from engine.model import Json, OrganisationSettings
from schemas.suggestion import suggestion

POLICY_KEYS: Final = (
    *("name", "description", "message", "action", "scope", "mode", "matchConditions"),
    *("rateLimit", "approval", "failurePolicy", "on", "labels", "after", "examples"),
)
_ADVICE: Final = "; add it to `parameters`"


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
    chosen = {name: value for name, value in parameters.items() if value != preset.parameters[name].default}
    filled, problems, _ = _filled(preset.template, preset.parameters, values)
    findings = [Defect(each.pointer, each.message, each.code) for each in problems]
    body = {
        "policyId": policy_id,
        "presetId": preset.preset_id,
        "enabled": True,
        **({"presetParameters": chosen} if chosen else {}),
        **filled,
    }
    checked, found = check_body(body, tools=tools)
    failing = {int(each.pointer.split("/")[2]) for each in found if each.code == "example_fails"}
    findings += [each for each in found if each.code != "example_fails"]
    if checked is None or findings:
        raise DocumentError(each.problem() for each in findings)
    body["examples"] = [each for index, each in enumerate(body["examples"]) if index not in failing]
    if not body["examples"]:
        del body["examples"]
    return body


def failing_preset_examples(preset: Preset, tools: Tools) -> list[Defect]:
    """The examples of a good preset that do not hold by these declarations of tools."""
    policy = policy_from_json(instantiate(preset, {}, preset.preset_id))
    return failing_examples(policy, tools) if reads_tools(policy) else []


def load_preset(source: bytes, file: str = "") -> Preset:
    """The preset of a YAML file. Raises DocumentError with every problem, at file:line:column."""
    document, findings = read_shaped(source, file, "documents/preset", "presetId")
    value = document.value
    parameters = {
        name: Parameter(name=name, **{key: entry[key] for key in entry})
        for name, entry in value.get("parameters", {}).items()
    }
    for name, parameter in parameters.items():
        pointer = f"/parameters/{name}"
        if message := _refuse_default(parameter):
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
    document.refuse(findings)
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


def _refuse_default(parameter: Parameter) -> str | None:
    """Why a default does not fit; a setting must be of the parameter's kind."""
    name = parameter.setting
    if name is None:
        return parameter.refuse(parameter.default)
    setting = SETTINGS.get(name)
    if setting is None:
        near = suggestion(name, SETTINGS) or "; known are " + ", ".join(f"`{each}`" for each in SETTINGS)
        return f"there is no setting `{name}`{near}"
    if parameter.format == "regex" or parameter.refuse(setting.default):
        kind = f"{setting.type} of domains" if setting.format == "domain" else setting.type
        return f"the setting `{name}` is a {kind}, which is no value of `{parameter.name}`"
    return None


def settings_of(preset: Preset, given: Mapping[str, Json] | None = None) -> tuple[str, ...]:
    """The settings of the organisation that a preset reads where these parameters are given."""
    chosen = given or {}
    found: dict[str, None] = {}
    for member in READERS:
        for name in names_in(preset.template.get(member)):
            parameter = preset.parameters.get(name)
            setting = name if parameter is None else parameter.setting
            if setting is not None and setting in SETTINGS and (parameter is None or name not in chosen):
                found[setting] = None
    return tuple(found)


def needs(preset: Preset, settings: OrganisationSettings) -> tuple[str, ...]:
    """The settings without which a preset would be inactive in an organisation."""
    return missing(settings_of(preset), settings)


def _filled(
    template: Mapping[str, Json], parameters: Mapping[str, Parameter], values: Mapping[str, Json]
) -> tuple[dict[str, Json], list[Problem], set[str]]:
    """The members of a policy, what is wrong with the template, and the parameters it uses. Settings stay as
    they are, to be filled in when the policy is in force; examples have their samples."""
    filler = Filler(parameters, values, kept=SETTINGS, advice=_ADVICE)
    by_sample = {**SAMPLES.values} | {name: _sample(each, values[name]) for name, each in parameters.items()}
    examples = Filler({**SETTINGS, **parameters}, by_sample, advice=_ADVICE)
    filled: dict[str, Json] = {}
    problems: list[Problem] = []
    for key, value in template.items():
        filled[key] = (examples if key == "examples" else filler).member(key, value)
        if key not in READERS and (left := [each for each in names_in(filled[key]) if each in SETTINGS]):
            message = f"`{left[0]}` is a setting, which only `matchConditions` and `message` may read"
            problems.append(Problem(message, f"/{key}", "misplaced_setting"))
    return filled, [*filler.problems, *examples.problems, *problems], filler.used | examples.used


def _sample(parameter: Parameter, value: Json) -> Json:
    """What an example has in a parameter's place: of a setting its sample."""
    setting = SETTINGS.get(parameter.setting or "")
    return value if setting is None or value != parameter.default else setting.default


def _check_template(template: Mapping[str, Json], parameters: Mapping[str, Parameter]) -> list[Defect]:
    defaults = {name: each.default for name, each in parameters.items()}
    body, problems, used = _filled(template, parameters, defaults)
    if problems:
        return [Defect(each.pointer, each.message, each.code) for each in problems]
    findings: list[Defect] = []
    for name in parameters:
        if name not in used:
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
        if (name in given or parameter.setting is None) and (message := parameter.refuse(values[name])):
            problems.append(Problem(message, f"/{name}", "wrong_type"))
    return values, problems


def load_pack(source: bytes, file: str = "") -> Pack:
    """The pack of a YAML file. Raises DocumentError with every problem, at file:line:column."""
    document, findings = read_shaped(source, file, "documents/pack", "packId")
    document.refuse(findings)
    value = document.value
    nodes = [document.reading.find(f"/presets/{index}")[0] for index in range(len(value["presets"]))]
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
