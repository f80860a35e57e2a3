"""Text of strangers on a terminal: everything is there, and nothing of it hides or steers."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.cli.spelling import escape, json_text, remarks, spelled
from api.cli.terminal import say_error, show
from tests.harness.effort import examples

texts = st.text(st.characters())
values = st.recursive(
    st.none() | st.integers() | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=8,
)


@examples(300, 5_000)
@given(values)
def test_json_means_the_same_and_hides_nothing(value: object) -> None:
    for indent in (2, None):
        text = json_text(value, indent)
        assert json.loads(text) == value
        assert all(character.isprintable() or character == "\n" for character in text)


def test_hidden_characters_are_spelled_and_letters_are_not() -> None:
    assert spelled("plain") == "plain"
    assert spelled("Grüße, 日本 👍 עברית") == "Grüße, 日本 👍 עברית"
    assert spelled("a\x1b[2Jb\x9b\u202e\u2028\xa0\ud800") == "a\\u001b[2Jb\\u009b\\u202e\\u2028\\u00a0\\ud800"
    assert spelled("a\nb\tc") == "a\nb\\u0009c" and spelled("a\nb", "") == "a\\u000ab"
    assert escape("\U000e0041") == "\\udb40\\udc41"
    assert spelled("\u3164\ufe0f\u115f") == "\\u3164\\ufe0f\\u115f"
    assert spelled("e" + "\u0301" * 6) == "e" + "\u0301" * 4 + "\\u0301" * 2


def test_tables_and_errors_are_spelled(capsys: pytest.CaptureFixture[str]) -> None:
    show([{"a": "x\x1b[31m", "b": ["\u202e"]}], {"a": "A", "b": "B"}, "table")
    say_error("no `\x1b]0;x\x07`\nsecond line\r")
    printed = capsys.readouterr()
    assert "x\\u001b[31m" in printed.out and "\\u202e" in printed.out
    assert printed.err == "governance: no `\\u001b]0;x\\u0007`\ngovernance: second line\\u000d\n"


def test_remarks_name_what_hides_or_pretends() -> None:
    assert remarks([{"a": ["plain", 1, None, "Grüße"]}]) == []
    assert remarks(["x\u200by"]) == [
        "it holds \\u200b, zero width space, which is not seen or steers the terminal"
    ]
    assert remarks([{"\x07": 1}]) == [
        "it holds \\u0007, a control character u+0007, which is not seen or steers the terminal"
    ]
    assert remarks(["аdmin привет"]) == ["`аdmin` looks like `admin`, and has letters of another alphabet"]
