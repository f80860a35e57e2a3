"""Literals required by patterns: sound against RE2 itself, and good enough to be worth having."""

from __future__ import annotations

import re

import pytest
import re2
from hypothesis import example, given
from hypothesis import strategies as st

from engine.conditions.operators import OPERATORS
from engine.derived.facts import Facts
from engine.errors import ConditionError
from engine.fields.paths import parse
from engine.fields.pattern import compile_pattern
from engine.fields.required_literals import needs_capital, required, required_in_spaced, spaced
from tests.harness.effort import LONG, examples


def options() -> re2.Options:
    made = re2.Options()
    made.log_errors = False
    return made


OPTIONS = options()


@pytest.mark.parametrize(
    ("pattern", "clauses"),
    [
        ("DROP TABLE", [{"drop table"}]),
        (r"(?i)rm\s+-rf", [{"rm"}, {"-rf"}]),
        ("colou?r", [{"color", "colour"}]),
        ("(foo|bar)baz", [{"foobaz", "barbaz"}]),
        ("foo|bar", [{"foo", "bar"}]),
        ("foo|.*", []),
        ("(foo)*", []),
        ("(foo)+x", [{"foo"}, {"x"}]),
        ("a{3}", [{"aaa"}]),
        ("x(ab){2}y", [{"xababy"}]),
        ("a{0,3}b", [{"b"}]),
        ("ab{2,}", [{"a"}, {"b"}]),
        ("a{02}", [{"a{02}"}]),
        ("a(?i){0}", []),
        ("a{,5}", [{"a{,5}"}]),
        ("[Pp]assword", [{"password"}]),
        ("[^a]b", [{"b"}]),
        ("[a-z]+@corp", [{"@corp"}]),
        (r"\Qa.b\E+c", [{"a."}, {"b"}, {"c"}]),
        (r"a\.b", [{"a.b"}]),
        (r"\x41\x{42}", [{"ab"}]),
        (r"a\pNb", [{"a"}, {"b"}]),
        (r"^foo$", [{"foo"}]),
        (r"\bfoo\b", [{"foo"}]),
        (r"(?P<name>foo)bar", [{"foobar"}]),
        ("(?i:straße)", [{"strasse"}]),
        ("K", [{"k"}]),
        ("[]a]b", [{"]b", "ab"}]),
        ("[a-]b", [{"ab", "-b"}]),
        ("", []),
        (".+", []),
        ("(", []),
        (r"(a)\1", []),
        ("a**", []),
    ],
)
def test_what_is_found(pattern: str, clauses: list[set[str]]) -> None:
    assert sorted(map(sorted, required(pattern))) == sorted(map(sorted, clauses))


@pytest.mark.parametrize(
    ("pattern", "clauses"),
    [
        (r"\bverify\s+(?:config|wire)\s+[a-z]+", [{"verify config ", "verify wire "}]),
        (r"(?i)DROP\s+TABLE", [{"drop table"}]),
        ("a  b\t+c", [{"a b c"}]),
        (r"a\s*b", [{"a b", "ab"}]),
        (r"a\s{2,}b", [{"a b"}]),
        (r"a[ \t]+\s?b", [{"a b"}]),
        (r"(?:x\s){3}", [{"x x x "}]),
        (r"a\sx{0,9}\sb", [{"a "}, {" b"}]),
    ],
)
def test_words_with_white_space_between_them_are_one_literal(pattern: str, clauses: list[set[str]]) -> None:
    assert sorted(map(sorted, required_in_spaced(pattern))) == sorted(map(sorted, clauses))


@pytest.mark.parametrize(
    ("pattern", "capital"),
    [
        (r"\b[A-Z]{2}[0-9]{2}[A-Z0-9]{10,30}\b", True),
        ("[A-CX]|ID", True),
        ("É", True),
        ("[BT]", True),
        ("[A-Z]|[0-9]", False),
        ("[A-Z]*[0-9]", False),
        ("[A-Z0-9]+", False),
        ("[^A-Z]", False),
        ("(?i)[A-Z]", False),
        ("(?s-i:[A-Z])", False),
        (r"[A-Z]\1", False),
        ("", False),
    ],
)
def test_what_needs_a_capital(pattern: str, capital: bool) -> None:
    assert needs_capital(pattern) is capital


def test_spaced() -> None:
    assert spaced("\tA  b\n\x0bC") == " a b c "
    assert spaced("") == spaced(" \n") == " "


@given(st.text(st.sampled_from("aB \t\n\x0b\x1f\x85\u2003ßé"), max_size=12))
def test_spaced_is_words_with_one_blank_between_them(text: str) -> None:
    assert spaced(text) == re.sub(r"\s+", " ", f" {text.casefold()} ")


LETTERS = "abkKsS\u212a\u017fßẞİıσςΣ.-0 \n\t_{}é"
literal = st.sampled_from(sorted(LETTERS)).map(lambda c: re2.escape(c) if c in ".-{}" else c)
piece = st.one_of(
    literal,
    st.text(st.sampled_from("abks"), min_size=2, max_size=4),
    st.sampled_from(
        [".", "^", "$", r"\b", r"\B", r"\d", r"\W", r"\s", r"\pL", r"\p{Greek}", r"\P{Lu}", r"\A", r"\z"]
    ),
    st.sampled_from(
        [r"\x41", r"\x{212a}", r"\x{1F600}", r"\Qa.b\E", r"\Q{\E", r"\n", r"\t", r"\-", r"\C", "a{,2}", "{"]
    ),
    st.sampled_from(["(?i)", "(?s)", "(?-i)", "(?im-s)", "(?U)"]),
    st.builds(
        lambda negated, members: f"[{'^' if negated else ''}{members}]",
        st.booleans(),
        st.text(st.sampled_from("abkKsßİ.0]-^[:"), min_size=1, max_size=4),
    ),
    st.sampled_from(
        [
            "[A-C]",
            "[A-CT]{2}",
            "[^A-C]",
            "[[:alpha:]]",
            "[^[:digit:]]",
            r"[\d_]",
            r"[\x{212a}k]",
            "[a-c]",
            "[k-t]",
            r"[\]a]",
            r"[\pNa]",
        ]
    ),
)


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    quantifier = st.sampled_from(
        ["*", "+", "?", "*?", "+?", "??", "{0}", "{1}", "{2}", "{0,2}", "{1,}", "{2,3}?", "{02}", "{ 1}"]
    )
    group = st.sampled_from(["(", "(?:", "(?i:", "(?-i:", "(?P<n>", "(?<m>", "(?s-i:"])
    return st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map("|".join),
        st.builds(lambda a, b: a + b, inner, quantifier),
        st.builds(lambda a, b: f"{a}{b})", group, inner),
        st.builds(lambda a, b, c: f"{a}{b}){c}", group, inner, quantifier),
    )


patterns = st.recursive(piece, grown, max_leaves=8)
PARTS = [*sorted(LETTERS + "tT^:]"), "ab", "ks", "strasse", "AB", "a.b", "aaa"]
words = st.sampled_from(PARTS)
texts = st.lists(words, max_size=24).map("".join)


@examples(1_200, 12_000)
@given(patterns, texts)
@example("(?i)k", "\u212a")
@example("(?i)\u017f", "S")
@example("(?i)ß", "ẞ")
@example("a|(?i)b", "B")
@example("(?i)[k]", "\u212a")
def test_what_re2_matches_has_every_clause(pattern: str, text: str) -> None:
    clauses = required(pattern)
    try:
        compiled = re2.compile(pattern, OPTIONS)
    except re2.error:
        return  # refused at load, so never used
    if compiled.search(text):
        folded = text.casefold()
        for clause in clauses:
            assert any(member in folded for member in clause), (pattern, text, clauses)
        for clause in required_in_spaced(pattern):
            assert any(member in spaced(text) for member in clause), (pattern, text, clause)
        assert compile_pattern(pattern).may_match(text)
        assert folded != text or not needs_capital(pattern)


@examples(1_200, 12_000)
@given(st.text(st.sampled_from(list("abkAK()[]{}|*+?.\\^$-:,0123QExpPnd<>_i \u212aß")), max_size=14), texts)
def test_any_text_as_a_pattern_is_sound(pattern: str, text: str) -> None:
    clauses = required(pattern)
    try:
        compiled = re2.compile(pattern, OPTIONS)
    except re2.error:
        return
    if compiled.search(text):
        folded = text.casefold()
        assert all(any(member in folded for member in clause) for clause in clauses), (pattern, text, clauses)
        assert compile_pattern(pattern).may_match(text)
        assert folded != text or not needs_capital(pattern)


def test_characters_re2_takes_for_each_other_casefold_alike() -> None:
    """The ground that `required_literals.py` stands on, asked for every character."""
    characters = [chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    cased = [c for c in characters if len({c, c.lower(), c.upper(), c.title(), c.casefold()}) > 1]
    among = "".join(cased)
    for char in cased:
        for other in re2.compile("(?i)" + re2.escape(char), OPTIONS).findall(among):
            assert other.casefold() == char.casefold(), (char, other)
    # The others have no partner at all: without regard to case, they match exactly what they match with it.
    plain = "".join(sorted(set(characters) - set(cased)))
    everything = "".join(characters)
    step = 65_536 if LONG else 262_144
    for start in range(0, len(plain), step):
        members = plain[start : start + step]
        ranges = "".join(rf"\x{{{low:x}}}-\x{{{high:x}}}" for low, high in _ranges(members))
        found = re2.compile(f"(?i)[{ranges}]+", OPTIONS).findall(everything)
        assert set("".join(found)) == set(members)


def _ranges(members: str) -> list[tuple[int, int]]:
    ranges: list[list[int]] = []
    for code in map(ord, members):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return [(low, high) for low, high in ranges]


few = st.lists(words, max_size=3).map("".join)
many = st.tuples(st.lists(few, min_size=1, max_size=4), st.lists(few, max_size=4)).map(
    lambda ends: ends[0] * (33 // len(ends[0]) + 1) + ends[1]
)


@examples(600, 3_000)
@given(patterns, many)
@example("^b$", ["a"] * 40 + ["b"])
@example(r"a\nb", ["a", "b"] * 20)
@example(r"\Bb", ["a", "b"] * 20)
@example(r"\Aa\z", ["aa"] * 40 + ["a", "aa"])
def test_many_texts_are_searched_like_each_by_itself(pattern: str, found: list[str]) -> None:
    try:
        each = compile_pattern(pattern)
    except ConditionError:
        return
    view = Facts({"inputPayload": {"a": found}}).at(parse("inputPayload.a"))
    assert OPERATORS["matches"].test(view, each) is any(each.search(text) is True for text in found)


@given(words, many)
def test_many_texts_contain_what_one_contains(part: str, found: list[str]) -> None:
    view = Facts({"inputPayload": {"a": found}}).at(parse("inputPayload.a"))
    for operator, holds in (("contains", str.__contains__), ("ends_with", str.endswith)):
        assert OPERATORS[operator].test(view, part) is any(holds(text, part) for text in found)


def test_deep_and_wide_patterns_stay_cheap() -> None:
    assert required("(" * 900 + "a" + ")" * 900) == ()
    assert required("|".join(f"word{n}" for n in range(3000))) == ()
    assert len(required("|".join(f"word{n}" for n in range(2000)))[0]) == 2000
    assert required("(a|b)" * 50)
    assert required("(?:" * 30 + "ab" + "){3}" * 30)
