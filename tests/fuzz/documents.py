"""The reader of YAML, and what is made of a document: formatted, edited, loaded, printed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from engine.derived.tools import Tools
from engine.detectors.examples import failures
from engine.documents import format as layout
from engine.documents.detectors import detector_as_json, load_detector
from engine.documents.edit import dump, edit, same
from engine.documents.policy import load_policy, load_policy_test, policy_as_json
from engine.documents.policy_file import created
from engine.documents.presets import load_pack, load_preset
from engine.documents.settings import load_settings
from engine.documents.tool_sets import load_tool_set
from engine.documents.yaml import YamlNode, read
from engine.errors import DocumentError
from tests.fuzz.target import Target, split_words
from tests.harness.places import CASES, SHIPPED

WORDS = (
    *split_words(
        "a: - ? ! & * << { } [ ] , # ' \" | > |- >+ %YAML --- ... ~ null true no 012 0x1f 1e400 .inf"
    ),
    *(b"\t", b"\n  ", b": ", b" #", b"\\u0000", b"\\ud800", b"\xc2\x85", b"\xe2\x80\xa8", b"!!int ", b"\r\n"),
)
LOADERS = (
    *(load_preset, load_pack, load_tool_set, load_settings, load_policy_test),
    partial(load_detector, file="", organisation_id="default"),
)
CHANGES = {"name": "x: y # z", "priority": [1, {"a": None}]}


def seeds() -> Sequence[bytes]:
    paths = sorted(
        [
            *SHIPPED.glob("policies/*.yaml"),
            *SHIPPED.glob("detectors/*.yaml"),
            *CASES.glob("documents/*/*.yaml"),
        ]
    )
    return [path.read_bytes() for path in paths]


def check_yaml(data: bytes) -> None:
    try:
        reading = read(data)
    except DocumentError as error:
        assert error.problems and all(each.line >= 1 and each.column >= 1 for each in error.problems)
        return
    _check_places(reading.root, len(reading.text))
    if reading.problems or not isinstance(reading.root.value, dict):
        return
    again = read(dump(reading.root.value).encode())
    assert not again.problems and same(again.root.value, reading.root.value)
    changed = read(edit(data, CHANGES, ["description"]))
    wanted = {key: value for key, value in reading.root.value.items() if key != "description"} | CHANGES
    assert not changed.problems and same(changed.root.value, wanted)
    try:
        formatted = layout.format_document(data)
    except layout.CannotFormat:
        return
    assert layout.format_document(formatted) == formatted
    assert same(read(formatted).root.value, reading.root.value)


def _check_places(node: YamlNode, length: int) -> None:
    pending = [node]
    while pending:
        node = pending.pop()
        assert 0 <= node.start <= node.end <= length and node.line >= 1 and node.column >= 1
        inner = [*(node.items or ()), *(each for pair in (node.entries or {}).values() for each in pair)]
        assert all(node.start <= each.start and each.end <= node.end for each in inner)
        pending += inner


def check_policy(data: bytes) -> None:
    for load in LOADERS:
        try:
            load(data)
        except DocumentError as error:
            assert error.problems
    try:
        policy = load_policy(data).policy
    except DocumentError as error:
        assert error.problems
        return
    shape = policy_as_json(policy)
    shape.pop("version", None)
    printed = created(policy.policy_id, 1, shape)
    assert load_policy(printed).policy == policy


def check_detector(data: bytes) -> None:
    """What loads reads the same when it is written again, and its examples can be run."""
    try:
        detector, version = load_detector(data, "", "default")
    except DocumentError as error:
        assert error.problems
        return
    written = {"apiVersion": "governance/v1", "kind": "Detector"} | detector_as_json(detector)
    assert load_detector(dump(written).encode(), "", "default") == (detector, None)
    assert version is None or version > 0
    examples = read(data).root.value.get("examples", ())
    assert all(message and index < len(examples) for index, message in failures(detector, examples, Tools()))


def detector_seeds() -> Sequence[bytes]:
    return [path.read_bytes() for path in sorted(SHIPPED.glob("detectors/*.yaml"))]


TARGETS = (
    Target("detector", check_detector, detector_seeds, WORDS, rounds=300),
    Target("yaml", check_yaml, seeds, WORDS, rounds=1_000),
    Target("policy", check_policy, seeds, WORDS, rounds=250),
)
