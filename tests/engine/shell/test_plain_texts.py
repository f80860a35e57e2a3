"""A text of plain words is one command, however it is read; so is each of a list of them."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.derived.commands.shell_commands import shell_reading
from engine.derived.derivation import Derivation
from engine.derived.tools import NO_TOOLS
from engine.shell import reading as readings
from engine.shell.reader import UNREADABLE, read
from engine.shell.scanner import is_plain
from tests.harness.effort import examples

WORDS = (
    "rm cd cat cp ln tee curl -o wget sh bash env sudo nohup time exec eval source . : true ls f paid x -rf"
    " -c -e -- a/b /etc ./x .. / @home 17.5 10:30 a,b Müller 漢字 if then do done fi else elif for in while"
    " until case esac select foreach end function coproc begin not and or set export alias unalias trap pushd"
    " popd read xargs find git psql python3"
)
BEFORE = (
    "",
    "cd sub && ls",
    "x=1 y",
    "f() { rm here; }",
    "alias paid='rm there'",
    "set -- a b",
    "rm f #",
    "if true",
)
plain = st.lists(st.sampled_from(WORDS.split()), min_size=1, max_size=5).map(" ".join)
anything = plain | st.text(st.characters(categories=["L", "N", "Zs", "P"]), max_size=12)


@examples(400, 20_000)
@given(st.lists(st.sampled_from(BEFORE) | anything, min_size=1, max_size=6))
def test_it_is_read_as_any_other_text(texts: list[str]) -> None:
    found = read(texts)
    with mock.patch.object(readings, "is_plain", lambda text: False):
        assert found == read(texts)


@examples(400, 20_000)
@given(st.lists(plain.filter(is_plain), min_size=2, max_size=6))
def test_lines_of_plain_words_run_no_more_than_each_after_the_other(lines: list[str]) -> None:
    script = "\n".join(lines)
    assert set(read([script])) - {script} <= set(read(lines))
    found = shell_reading({"toolName": "note", "inputPayload": {"values": lines}})
    assert script in found.entries


@pytest.mark.parametrize(
    "text", ["rm -rf /", "paid", "  two  words ", "call back on day 7", "17.5", "https://a.example/b"]
)
def test_these_are_plain(text: str) -> None:
    assert is_plain(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "a;b",
        "a\nb",
        "$x",
        "a|b",
        "'a",
        "a*",
        "~",
        "{a,b}",
        "a=b",
        "!a",
        "#a",
        "a&",
        "(a)",
        "if a",
        "done",
        "a\\",
        "a " * 1_000,
    ],
)
def test_these_are_not(text: str) -> None:
    assert not is_plain(text)


def test_a_list_of_six_hundred_plain_texts_is_read_whole() -> None:
    texts = [f"call back customer {number} about the invoice of last month" for number in range(590)]
    assert UNREADABLE not in shell_reading({"toolName": "note", "inputPayload": {"values": texts}}).entries


@pytest.mark.parametrize("texts", [["rm -rf etc"], ["ls", "rm -rf etc"], ["rm -rf etc; ls"]])
def test_where_another_text_went_may_have_failed(texts: list[str]) -> None:
    """What stands behind `&&` runs there or not at all; not so the next text."""
    payload = {"setup": "cd /", "before": "cd sub && ls", "then": texts}
    derived = Derivation({"toolName": "bash", "inputPayload": payload}, NO_TOOLS)
    deletes, _ = derived.value("derived", "deletes")
    assert isinstance(deletes, list) and {"/etc", "/sub/etc"} <= set(deletes)
