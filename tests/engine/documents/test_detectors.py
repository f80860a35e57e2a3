"""Detectors as documents: read, written back, and refused with the place and the way out."""

from __future__ import annotations

import pytest

from engine.documents.detectors import detector_as_json, load_detector
from engine.errors import DocumentError
from engine.repository.checkout import checkout
from schemas.validation import violations
from tests.harness.watching import DETECTORS, TOOLS

HEAD = (
    "apiVersion: governance/v1\nkind: Detector\ndetectorId: d\nname: D\nseverity: high\nwindowSeconds: 60\n"
)


def refusals(text: str) -> list[str]:
    found = checkout({"detectors/d.yaml": text.encode()})
    return [str(problem) for problem in found.problems]


@pytest.mark.parametrize("path", DETECTORS)
def test_shipped_detectors_say_what_they_are_about(path: str) -> None:
    detector, _ = load_detector(DETECTORS[path].encode(), path, "default")
    assert detector.description and detector.message and detector.enabled
    shape = detector_as_json(detector)
    for key in ("detectorId", "name", "description"):
        del shape[key]
    for key, value in shape.items():
        assert not list(violations("documents/detector", value, f"/$defs/{key}")), key
    found = checkout({path: DETECTORS[path].encode()} | {name: text.encode() for name, text in TOOLS.items()})
    assert not found.problems
    examples = DETECTORS[path].split("examples:")[1]
    assert "alerts: 1" in examples and "alerts: 0" in examples


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("on: calls\n", "detectors/d.yaml:7:5: "),
        ("on: tool.called\nwindow: 5\n", "detectors/d.yaml:8:1: "),
        ("on: tool.called\ndistinct: agentId\n", "detectors/d.yaml:8:11: one `agentId` has one `agentId`"),
        ("on: agent.new\ndistinct: toolName\nper: organisationId\n", "`on: agent.new` has no `toolName`"),
        ("on: tool.called\nof: [model]\n", "detectors/d.yaml:8:1: `of` is for `on: agent.changed`"),
        ("on: tool.called\nunseenSeconds: 90\n", "`unseenSeconds` is for `on: approval.unseen`"),
        ("on: tool.called\nfirst: true\nusual: {times: 3}\n", "leave out `first` or `usual`"),
        (
            "on: tool.called\nmatchConditions:\n  - {field: inputPayload.to, operator: exists}\n",
            "detectors/d.yaml:9:5: a detector reads what is on record of `tool.called`, and",
        ),
        (
            "on: tool.called\nmatchConditions: ['toolName == \"x\" && inputPayload.n > 1']\n",
            "`inputPayload` is not",
        ),
        ("on: agent.new\nmatchConditions: [{field: toolName, operator: exists}]\n", "there are `agentId`"),
        ("on: tool.called\nmatchConditions: [{field: toolNam, operator: exists}]\n", "did you mean"),
        (
            "on: tool.called\nthreshold: 3\nexamples:\n  - {alerts: 1, happens: [{times: 2}]}\n",
            "detectors/d.yaml:10:14: this must lead to 1 alerts, but leads to 0",
        ),
    ],
)
def test_refused(text: str, problem: str) -> None:
    assert any(problem in each for each in refusals(HEAD + text)), refusals(HEAD + text)


def test_a_detector_stands_in_its_folder_under_its_name() -> None:
    source = (HEAD + "on: tool.called\n").encode()
    with pytest.raises(DocumentError, match=r"the file is named `e\.yaml`"):
        load_detector(source, "detectors/e.yaml", "default")
    found = checkout({"detectors/a/d.yaml": source, "organisations/acme/detectors/d.yaml": source})
    assert not found.problems and len(found.detectors) == 2
    found = checkout({"detectors/a/d.yaml": source, "detectors/b/d.yaml": source})
    assert [problem.code for problem in found.problems] == ["duplicate_id"]


def test_expressions_over_what_is_on_record() -> None:
    text = 'on: tool.called\nmatchConditions: [\'tool.effect == "send" || toolName.startsWith("x")\']\n'
    detector, _ = load_detector((HEAD + text).encode(), "detectors/d.yaml", "acme")
    assert detector.organisation_id == "acme" and len(detector.conditions) == 1
