"""Settings of an organisation, and policies that read them as `{{companyDomains}}`.

Decides which settings there are (the schema is their table), what each is while nobody has set it, and what
a policy becomes by them. A policy that reads a setting without a value is inactive: nothing is invented. Its
conditions then have the setting's sample, so that it can be shown and checked all the same. It must not know
files or organisations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

import schemas
from engine.conditions.placeholders import Filler, Parameter, names_in
from engine.errors import Problem
from engine.model import Condition, Json, OrganisationSettings, Policy

READERS: Final = ("message", "matchConditions")
"""The members of a policy that may read a setting."""

_ADVICE: Final = "; where braces are meant, write `[{][{]` in a pattern"


def _table() -> dict[str, Parameter]:
    document = schemas.load("documents/organisation_settings")
    found = {}
    for name, shape in document["$defs"]["settings"]["properties"].items():
        common = document["$defs"][shape["$ref"].rpartition("/")[2]] if "$ref" in shape else {}
        if (common | shape)["type"] == "object":
            continue  # of no use to a policy: who is told of what
        kind = {"array": "list"}.get((common | shape)["type"], (common | shape)["type"])
        found[name] = Parameter(
            name,
            shape["description"],
            shape.get("x-sample", shape.get("default")),
            kind,
            "domain" if shape.get("$ref") == "#/$defs/domains" else "text",
        )
    return found


SETTINGS: Final = _table()
"""Every setting that policies read, by name. `default` is the sample, by which examples and tests go."""

SHIPPED: Final[Mapping[str, Json]] = {
    name: shape["default"]
    for name, shape in schemas.load("documents/organisation_settings")["$defs"]["settings"][
        "properties"
    ].items()
    if "default" in shape
}
"""What a setting is while nobody has set it. One that is not here has no value then."""

NO_SETTINGS: Final = OrganisationSettings()
SAMPLES: Final = OrganisationSettings({name: each.default for name, each in SETTINGS.items()})
"""By which examples, tests and lint are decided, whatever an organisation has set."""


def value_of(settings: OrganisationSettings, name: str) -> Json:
    """None: nobody has set it, and no value of it is shipped."""
    return settings.values.get(name, SHIPPED.get(name))


def reads(policy: Policy) -> tuple[str, ...]:
    """The settings that a policy reads."""
    found: dict[str, None] = {}
    for condition in policy.conditions:
        text = condition.expression if condition.expression is not None else condition.value
        if text.__class__ is str:
            if "{{" in text:
                found.update(dict.fromkeys(names_in(text)))
        elif isinstance(text, (list, dict)) and _may_read(text):
            found.update(dict.fromkeys(names_in(text)))
    if policy.message is not None and "{{" in policy.message:
        found.update(dict.fromkeys(names_in(policy.message)))
    return tuple(found) if found else ()


def missing(names: Iterable[str], settings: OrganisationSettings) -> tuple[str, ...]:
    """Those of the settings that have no value."""
    return tuple(name for name in names if value_of(settings, name) is None)


def told(names: Iterable[str]) -> str:
    """The settings that are to be set, as the end of a sentence that says what waits for them."""
    shown = [f"`{name}`" for name in names]
    listed = shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
    return f"the organisation's {listed} {'is' if len(shown) == 1 else 'are'} set"


def how_to_set(name: str, organisation_id: str = "default") -> str:
    """What to type."""
    values = SETTINGS[name].default
    sample = " ".join(values) if isinstance(values, list) else str(values)
    whose = "" if organisation_id == "default" else f" --organisation {organisation_id}"
    return f"governance settings set {name} {sample}{whose}"


def _as_derived(name: str, value: Json) -> Json:
    """Domains as `derived.recipientDomains` has them: in lower case, however somebody has set them."""
    if SETTINGS[name].format == "domain" and isinstance(value, list):
        return [str(each).lower() for each in value]
    return value


def in_force(policy: Policy, settings: OrganisationSettings) -> Policy:
    """The policy with the settings that it reads filled in; disabled where one of them has no value.

    Its examples were written for the samples, so it has none where they are something else.
    """
    names = reads(policy)
    if not names:
        return policy
    values = {name: each.default for name, each in SETTINGS.items()}
    lacking = missing(names, settings)
    if not lacking:
        values |= {name: _as_derived(name, value_of(settings, name)) for name in names}
    body: dict[str, Any] = {"matchConditions": [each.as_json() for each in policy.conditions]}
    if policy.message is not None:
        body["message"] = policy.message
    filled = Filler(SETTINGS, values).fill(body)
    conditions = tuple(
        Condition(each.get("field"), each.get("operator"), each.get("value"), each.get("expression"))
        for each in filled["matchConditions"]
    )
    as_written = all(values[name] == SETTINGS[name].default for name in names)
    return replace(
        policy,
        conditions=conditions,
        message=filled.get("message"),
        enabled=policy.enabled and not lacking,
        examples=policy.examples if as_written else (),
    )


def sampled(body: Mapping[str, Json]) -> tuple[dict[str, Any], list[Problem]]:
    """A policy's body with samples in place of settings, and the placeholders that are none."""
    if not any(_may_read(body.get(key)) for key in READERS):
        return dict(body), []
    filler = Filler(SETTINGS, SAMPLES.values, advice=_ADVICE, kind="setting")
    filled = {key: filler.member(key, value) if key in READERS else value for key, value in body.items()}
    return filled, filler.problems


def _may_read(value: Json) -> bool:
    """False where no text in a value has the braces of a placeholder."""
    try:
        return value is not None and b"{{" in msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return True  # what is no JSON, or not easily written as such
