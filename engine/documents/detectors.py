"""Detectors as people write them: strict YAML -> `Detector`, and back to the shape of the contract.

Decides whether a document is a detector: its shape by `schemas/`, its conditions by compiling them, and which
members go together. Whether its examples hold is decided where detectors run. It must not know where files
live, nor which of two detectors with the same id counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from engine.conditions.compiled import CompiledCondition, compile_condition
from engine.documents.document import Defect, read_shaped
from engine.documents.policy import condition_from_json
from engine.errors import ConditionError
from engine.model import Detector, Json, Usual

UNSEEN_SECONDS: Final = 900
_OF_CALLS: Final = ("toolName", "tool.kind", "tool.effect", "tool.words", "agentId", "runId")
_OF_KEYS: Final = ("key.id", "user.id")
_CALLS: Final = ("tool.called", "tool.refused")


def load_detector(source: bytes, file: str, organisation_id: str) -> tuple[Detector, int | None]:
    """The detector of a YAML file, and the version it declares. Raises DocumentError with every problem, at
    file:line:column."""
    document, findings = read_shaped(source, file, "documents/detector", "detectorId")
    value = document.value
    document.refuse([*findings, *_members(value), *_conditions(value)])
    return replace(_detector(value), organisation_id=organisation_id), document.version


def _detector(value: Mapping[str, Json]) -> Detector:
    usual = value.get("usual")
    unseen = UNSEEN_SECONDS if value["on"] == "approval.unseen" else 0
    return Detector(
        detector_id=value["detectorId"],
        name=value["name"],
        on=value["on"],
        severity=value["severity"],
        window_seconds=int(value["windowSeconds"]),
        threshold=int(value.get("threshold", 1)),
        per=value.get("per", "agentId"),
        distinct=value.get("distinct"),
        conditions=tuple(map(condition_from_json, value.get("matchConditions", ()))),
        of=tuple(sorted(value.get("of", ()))),
        usual=usual and Usual(float(usual["times"]), int(usual.get("windows", 5))),
        first=value.get("first", False),
        established=int(value.get("established", 0)),
        unseen_seconds=int(value.get("unseenSeconds", unseen)),
        enabled=value.get("enabled", True),
        description=value.get("description"),
        message=value.get("message"),
    )


def detector_as_json(detector: Detector) -> dict[str, Json]:
    """The shape of the contract; optional members without a value are absent."""
    usual = detector.usual
    shape: dict[str, Json] = {
        "detectorId": detector.detector_id,
        "version": detector.version or None,
        "name": detector.name,
        "description": detector.description,
        "message": detector.message,
        "severity": detector.severity,
        "enabled": detector.enabled,
        "on": detector.on,
        "of": list(detector.of) or None,
        "unseenSeconds": detector.unseen_seconds or None,
        "matchConditions": [each.as_json() for each in detector.conditions] or None,
        "distinct": detector.distinct,
        "per": detector.per,
        "windowSeconds": detector.window_seconds,
        "threshold": detector.threshold,
        "usual": usual and {"times": usual.times, "windows": usual.windows},
        "first": detector.first or None,
        "established": detector.established or None,
    }
    return {key: value for key, value in shape.items() if value is not None}


def _members(value: Mapping[str, Json]) -> Iterator[Defect]:
    """Members that do not go together."""
    on, per = value["on"], value.get("per", "agentId")
    for key, wanted in (("of", "agent.changed"), ("unseenSeconds", "approval.unseen")):
        if key in value and on != wanted:
            yield Defect(f"/{key}", f"`{key}` is for `on: {wanted}`; leave it out", "unknown", at_key=True)
    for key in ("distinct", "first"):
        if "usual" in value and value.get(key):
            message = f"`usual` compares counts of all there is; leave out `{key}` or `usual`"
            yield Defect(f"/{key}", message, "unknown", at_key=True)
    if value.get("distinct") == per:
        message = f"one `{per}` has one `{per}`; count other values, or `per` something else"
        yield Defect("/distinct", message, "wrong_value")
    if value.get("distinct") == "toolName" and on not in _CALLS:
        message = f"`on: {on}` has no `toolName`; it is for {' and '.join(map('`{}`'.format, _CALLS))}"
        yield Defect("/distinct", message, "wrong_value")


def _conditions(value: Mapping[str, Json]) -> Iterator[Defect]:
    readable = (*_OF_CALLS, *_OF_KEYS) if value["on"] in _CALLS else ("agentId",)
    for index, entry in enumerate(value.get("matchConditions", ())):
        pointer = f"/matchConditions/{index}"
        try:
            compiled = compile_condition(condition_from_json(entry))
        except ConditionError as error:
            part = "" if isinstance(entry, str) else f"/{error.part}" if error.part in entry else ""
            yield Defect(pointer + part, error.message, "invalid_condition", offset=error.offset)
            continue
        if unknown := _beyond(compiled, readable):
            message = (
                f"a detector reads what is on record of `{value['on']}`, and `{unknown}` is not; there are"
                f" {', '.join(map('`{}`'.format, readable))}. Have a policy look at it, and count what that"
                " blocks"
            )
            yield Defect(pointer, message, "invalid_condition")


def _beyond(compiled: CompiledCondition, readable: tuple[str, ...]) -> str | None:
    """What a condition reads that is not known."""
    if compiled.path is not None:
        return None if compiled.path.text in readable else compiled.path.text
    assert compiled.expression is not None
    computed = {".".join(each) for each in compiled.expression.computed}
    roots = compiled.roots - {each.partition(".")[0] for each in computed}
    return next((each for each in sorted(computed | roots) if each not in readable), None)
