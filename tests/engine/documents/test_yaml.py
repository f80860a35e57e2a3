"""YAML is read strictly: JSON values only, errors instead of crashes, whatever the bytes."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.documents.policy import (
    load_policy,
)
from engine.documents.yaml import MAX_BYTES, read
from engine.errors import DocumentError
from engine.model import Policy
from tests.harness import places
from tests.harness.effort import examples


@pytest.mark.parametrize(
    ("written", "value"),
    [
        *[
            (text, text)
            for text in ("yes", "no", "on", "off", "~", "True", "NULL", "012", "0x1f", "1_000", "0o17")
        ],
        *[
            (text, text)
            for text in (".inf", "-.Inf", ".nan", "NaN", "2026-01-01", "12:30:00", "+1", ".5", "5.", "1e")
        ],
        *[("true", True), ("false", False), ("null", None), ("0", 0), ("-0", 0), ("12", 12), ("1.0", 1.0)],
        *[("-1.5e3", -1500.0), ("1E2", 100.0), ("'1'", "1"), ('"true"', "true"), ("9" * 300, int("9" * 300))],
    ],
)
def test_only_json_scalars_are_not_text(written: str, value: Any) -> None:
    found = read(f"a: {written}\n".encode()).root.value["a"]
    assert found == value and type(found) is type(value)


def test_keys_are_always_text() -> None:
    assert read(b"{1: a, true: b, null: c, 2026-01-01: d}").root.value == {
        "1": "a",
        "true": "b",
        "null": "c",
        "2026-01-01": "d",
    }


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False, width=32)
    | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=("Cs",))), inner)
    ),
    max_leaves=20,
)


@given(JSON)
@examples(150, 3_000)
def test_all_json_is_read_as_json_would_read_it(value: Any) -> None:
    """But for the keys `<<`, which are refused, and characters that a file may only hold escaped."""
    text = json.dumps({"a": value}, ensure_ascii=True)
    if '"<<"' not in text and len(max(text.split('"'), key=len)) < 900:
        try:
            assert read(text.encode()).root.value == {"a": value}
        except DocumentError as error:
            assert "\\ud8" in text or "\\ud" in text, error  # surrogate pairs are JSON's own escape


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
@examples(250, 5_000)
def test_whatever_bytes_are_a_document_error_or_a_policy(source: bytes) -> None:
    try:
        load_policy(source, "p.yaml")
    except DocumentError as error:
        assert error.problems
        for problem in error.problems:
            assert problem.message and str(problem).isprintable()


def test_mutilated_documents_are_refused_or_loaded_never_a_crash() -> None:
    whole = (places.SHIPPED / "policies").rglob("*.yaml")
    sources = [path.read_bytes() for path in whole if not path.name.endswith("_test.yaml")]
    rng = random.Random(4)
    for _ in range(400):
        source = bytearray(rng.choice(sources))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(source))
            source[at : at + rng.randint(0, 3)] = rng.choice(
                [b"", b"\t", b"\n", b": ", b"-", b"'", b"\xff", b"{"]
            )
        try:
            load_policy(bytes(source), "policies/p.yaml")
        except DocumentError as error:
            assert error.problems


@pytest.mark.parametrize(
    "source",
    [
        b"[" * 500_000,
        b"{a: " * 200_000,
        b"- " * 400_000,
        b"a: " + b"x" * 1_000_000,
        b"a: '" + b"''" * 400_000,
        b"? " * 300_000,
        b"a: &b [" + b"*b, " * 200_000,
        b"#" * 1_000_000,
        b"a: |\n" + b" x\n" * 300_000,
        b"x" * (10 * MAX_BYTES),
    ],
    ids=["brackets", "braces", "dashes", "long", "quotes", "keys", "aliases", "comment", "lines", "huge"],
)
def test_hostile_sizes_are_answered_soon(source: bytes) -> None:
    begun = time.monotonic()
    with pytest.raises(DocumentError):
        load_policy(source, "p.yaml")
    assert time.monotonic() - begun < 5


def test_line_ends_do_not_change_the_meaning_or_the_lines() -> None:
    text = "apiVersion: governance/v1\nkind: Policy\npolicyId: p\nname: x\naction: blok\n"
    text += "matchConditions: [toolName == 1]\n"
    for ending in ("\n", "\r\n", "\r"):
        for mark in ("", "\ufeff"):
            with pytest.raises(DocumentError) as caught:
                load_policy((mark + text.replace("\n", ending)).encode(), "p.yaml")
            assert [(p.line, p.column) for p in caught.value.problems] == [(5, 9)]


@pytest.mark.parametrize("odd", ["\r", "\x85", "\u2028", "\u2029"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_line_end_that_nobody_sees_begins_no_entry(odd: str, ending: str) -> None:
    text = "apiVersion: governance/v1\nkind: Policy\npolicyId: p\nname: x\nDESCRIPTIONaction: block\n"
    text += "matchConditions:\n  - {field: toolName, operator: equals, value: a}\n"

    def loaded(description: str) -> Policy:
        written = text.replace("DESCRIPTION", description).replace("\n", ending)
        return load_policy(written.encode(), "p.yaml").policy

    for hidden in (
        f"description: it stays{odd}mode: shadow\n",
        f"description: |\n  it stays{odd}enabled: false\n",
        f"# it stays{odd}mode: shadow\n",
        f'description: "it stays"{odd}enabled:{odd}  false\n',
    ):
        with pytest.raises(DocumentError) as caught:
            loaded(hidden)
        assert f"U+{ord(odd):04X} ends the line here" in str(caught.value)
        assert caught.value.problems[0].line in (5, 6)
    for harmless in (
        f"description: |\n  it{odd}  stays\n",
        f"description: it{odd}  stays\n",
        f"description: it stays{odd}\n",
        f'description: "it{odd}  stays"\n',
        f"# it stays{odd}# as it is\n",
    ):
        assert loaded(harmless).mode == "enforce"
