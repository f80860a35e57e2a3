"""Span edits: comments, order and untouched bytes survive whatever the API changes."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.documents import edit as edit_
from engine.documents.edit import dump, edit, flow, same, scalar
from engine.documents.yaml import read
from engine.errors import DocumentError
from tests.harness.effort import examples

COMMENTED = """\
# Head of the file.

apiVersion: governance/v1
kind: Policy
policyId: p        # equals the file stem
# about the name
name: "Hold wires" # quoted
description: |     # a block
  First line.
    # not a comment

  Last line.

action: block
scope:   action_only   # odd spaces
enabled: true

matchConditions:   # all must hold
  # the tools
  - {field: toolName, operator: in, value: [wire, 'pay # now', "x"]}   # in a row
  - field: inputPayload.amount
    operator: greater_than   # more than
    value: 100

  # the country
  - expression: >-
      inputPayload.country != "CH" &&
      inputPayload.country != "LI"
  - toolName != "x"
rateLimit:
  limit: 5          # five
  windowSeconds: 60
  per: [
    agentId,        # who
    runId           # where
  ]
examples: []
# Foot of the file.
"""
FLOW = """\
{apiVersion: governance/v1, kind: Policy, "policyId": p, name: a, action: block,
 matchConditions: [a == 1]}  # one
"""


def comments(source: bytes) -> list[str]:
    reading = read(source)
    return [reading.text[start:end].rstrip() for start, end in reading.comments()]


def changed_lines(before: str, after: str) -> tuple[list[str], list[str]]:
    a, b = before.splitlines(), after.splitlines()
    return [line for line in a if line not in b], [line for line in b if line not in a]


@pytest.mark.parametrize(
    ("changes", "removed", "gone", "new"),
    [
        ({"action": "warn"}, (), ["action: block"], ["action: warn"]),
        ({"name": "x: y"}, (), ['name: "Hold wires" # quoted'], ["name: 'x: y' # quoted"]),
        ({"enabled": False}, (), ["enabled: true"], ["enabled: false"]),
        ({"version": 4}, (), [], ["version: 4"]),
        ({"mode": "shadow"}, (), [], ["mode: shadow"]),
        ({"scope": "all"}, (), ["scope:   action_only   # odd spaces"], ["scope:   all   # odd spaces"]),
        ({}, ("scope",), ["scope:   action_only   # odd spaces"], ["# odd spaces"]),
        (
            {"description": "One.\nTwo.\n"},
            (),
            ["description: |     # a block", "  First line.", "    # not a comment", "  Last line."],
            ["description: |  # a block", "  One.", "  Two."],
        ),
        (
            {"rateLimit": {"limit": 6, "windowSeconds": 60, "per": ["agentId", "runId"]}},
            (),
            ["  limit: 5          # five"],
            ["  limit: 6          # five"],
        ),
    ],
)
def test_only_the_changed_lines_change(
    changes: dict[str, Any], removed: tuple[str, ...], gone: list[str], new: list[str]
) -> None:
    after = edit(COMMENTED.encode(), changes, removed).decode()
    assert changed_lines(COMMENTED, after) == (gone, new)


def test_conditions_change_one_by_one() -> None:
    value = read(COMMENTED.encode()).root.value["matchConditions"]
    value[0]["value"][1] = "mail"
    value[1]["value"] = 250
    value.append({"field": "runId", "operator": "exists"})
    after = edit(COMMENTED.encode(), {"matchConditions": value}).decode()
    assert changed_lines(COMMENTED, after) == (
        [
            "  - {field: toolName, operator: in, value: [wire, 'pay # now', \"x\"]}   # in a row",
            "    value: 100",
        ],
        [
            '  - {field: toolName, operator: in, value: [wire, mail, "x"]}   # in a row',
            "    value: 250",
            "  - {field: runId, operator: exists}",
        ],
    )


def test_a_removed_condition_leaves_its_comments() -> None:
    value = read(COMMENTED.encode()).root.value["matchConditions"]
    del value[1]
    after = edit(COMMENTED.encode(), {"matchConditions": value})
    assert sorted(comments(after)) == sorted(comments(COMMENTED.encode()))
    assert b"inputPayload.amount" not in after


def test_a_document_on_one_line_stays_there() -> None:
    after = edit(FLOW.encode(), {"version": 2, "action": "warn"}, ["name"]).decode()
    assert after == (
        '{apiVersion: governance/v1, kind: Policy, "policyId": p, version: 2, action: warn,\n'
        " matchConditions: [a == 1]}  # one\n"
    )


def test_line_ends_and_byte_order_mark_stay() -> None:
    source = ("\ufeff" + COMMENTED.replace("\n", "\r\n")).encode()
    after = edit(source, {"version": 2, "enabled": False})
    assert after.startswith(b"\xef\xbb\xbf#") and after.count(b"\n") == after.count(b"\r\n")
    assert edit(source, {}) == source


def test_a_file_without_a_last_line_end() -> None:
    after = edit(b"kind: Policy\nname: a # c", {"mode": "shadow"})
    assert after == b"kind: Policy\nname: a # c\nmode: shadow"


def test_unreadable_files_are_not_edited() -> None:
    with pytest.raises(DocumentError):
        edit(b"a: [", {"a": 1})


# ---- properties -----------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=30) | st.sampled_from(
    [
        "no",
        "~",
        "1",
        "1.0",
        "- a",
        "a: b",
        "a #b",
        "#a",
        "'",
        '"',
        "\n",
        "a\nb\n",
        " a",
        "a ",
        "{x",
        "null",
        "\t",
        "",
    ]
)
VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False, min_value=-1e9, max_value=1e9)
    | TEXT,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(TEXT.filter(lambda t: len(t) < 20), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(VALUE)
@examples(250, 5_000)
def test_what_is_written_is_read_again(value: Any) -> None:
    assert same(read(f"a: {flow(value)}\n".encode()).root.value, {"a": value})
    assert same(read(dump({"a": value, "matchConditions": [value]}).encode()).root.value["a"], value)


@given(TEXT)
def test_plain_texts_are_text_for_other_readers_too(text: str) -> None:
    import yaml

    assert yaml.safe_load(scalar(text)) == text


@given(
    st.dictionaries(st.sampled_from(["name", "version", "description", "x", "mode"]), VALUE, max_size=3),
    VALUE,
)
@examples(200, 4_000)
def test_any_change_is_made_and_keeps_all_comments(changes: dict[str, Any], nested: Any) -> None:
    for source in (COMMENTED.encode(), FLOW.encode(), COMMENTED.replace("\n", "\r\n").encode()):
        target = {"matchConditions": [nested, *read(source).root.value["matchConditions"][1:]]} | changes
        after = edit(source, target)
        assert same(read(after).root.value, read(source).root.value | target)
        assert sorted(comments(after)) == sorted(comments(source))


def random_change(rng: random.Random, value: Any) -> Any:
    """One random change somewhere inside a value: what an admin does through the API."""
    if isinstance(value, dict) and value:
        changed = dict(value)
        key = rng.choice(list(changed))
        match rng.randrange(4):
            case 0 if len(changed) > 1:
                del changed[key]
            case 1:
                changed[f"k{rng.randrange(5)}"] = rng.choice([1, "new text", [1, 2], {"a": "b"}])
            case _:
                changed[key] = random_change(rng, changed[key])
        return changed
    if isinstance(value, list) and value:
        changed_list = list(value)
        at = rng.randrange(len(changed_list))
        match rng.randrange(4):
            case 0 if len(changed_list) > 1:
                del changed_list[at]
            case 1:
                changed_list.insert(at, rng.choice(["one more", 3, {"field": "runId", "operator": "exists"}]))
            case _:
                changed_list[at] = random_change(rng, changed_list[at])
        return changed_list
    return rng.choice([True, 7, 2.5, "plain", "it's: quoted", "two\nlines\n", ["a"], {"k": "v"}, ""])


def test_a_thousand_random_edits_in_a_row_keep_comments_order_and_untouched_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Order: keys that stay keep their order. Bytes: top-level members that do not change keep theirs."""
    rewritten = 0
    whole = edit_.dump

    def counted(*arguments: Any) -> str:
        nonlocal rewritten
        rewritten += 1
        return whole(*arguments)

    monkeypatch.setattr(edit_, "dump", counted)
    rng = random.Random(20)
    for round_number in range(1000):
        if round_number % 10 == 0:
            source = COMMENTED.encode()
        value = read(source).root.value
        target = copy.deepcopy(value)
        for _ in range(rng.randint(1, 2)):
            key = rng.choice([each for each in target if each not in ("apiVersion", "kind", "policyId")])
            target[key] = random_change(rng, target[key])
        changes = {key: each for key, each in target.items() if not same(each, value.get(key))}
        before_rewritten = rewritten
        after = edit(source, changes)
        assert same(read(after).root.value, target)
        assert sorted(comments(after)) == sorted(comments(source)), source.decode()
        if rewritten == before_rewritten:
            assert list(read(after).root.value) == list(value), "order of keys"
            for key in value.keys() - changes.keys():
                assert _span(after, key) == _span(source, key), key
        source = after
    assert rewritten == 0, f"{rewritten} of 1000 edits had to write the file anew"


def _span(source: bytes, key: str) -> str:
    reading = read(source)
    assert reading.root.entries is not None
    name, value = reading.root.entries[key]
    return reading.text[name.start : value.end].rstrip()
