"""The language of conditions: expressions, field paths and patterns."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from engine.cel.expression import Expression
from engine.errors import ConditionError
from engine.fields import paths
from engine.fields.pattern import compile_pattern
from engine.fields.re2_syntax import parse as parse_pattern
from engine.fields.required_literals import required
from engine.model import ToolCall
from tests.fuzz.target import Target, split_words, text_of
from tests.harness.places import CASES
from tests.test_agreement import EXPRESSIONS, FIELDS

DOCUMENTS = tuple(
    dict(call.document)
    for call in (
        ToolCall.of(toolName="wire", inputPayload={"a": 1, "b": ["k", {"c": None}], "x.y": "1e2"}),
        ToolCall.of(toolName="", inputPayload={}, agentContext={"goal": "x" * 300}),
        ToolCall.of(toolName="k", inputPayload={"a": {"b": "\ud800"}, "b": 1e308}, agentId="s"),
    )
)
CEL = split_words(
    "&& || ! ( ) [ ] { } , . ? : == != < <= >= in + - * / % has( .exists(x, .all(x, .map(x, .filter(x, size("
    " .matches( .contains( .startsWith( 'a' \"a\" r'\\' b'' '''x''' 0x1f 1u 9223372036854775808 1e400"
    " true null toolName inputPayload.a run.labels derived.hosts // timestamp( duration( int( string("
)
PATTERNS = (
    r"(?i)k+", r"rm\s+-[a-z]*r[a-z]*f", r"^(a|b)*$", r"[^\x00-\x1f]{2,5}", r"(?:a{2,4}){3}b?", r"\bfoo\b|\d",
    r"(?s).*x\z", r"\p{Greek}+", r"[[:alpha:]_]\Q.*\E", r"(?P<n>x)(?-i:Y)", r"a**", r"x{999}", r"(x{9}){20}",
)  # fmt: skip
RE2 = split_words(
    r"( ) (?: (?i) (?P<a> [ ] [^ - \ \d \pL \Q \E {1,3} {1000} * + ? *? | ^ $ . \b \z [[:alpha:]] \x{41}"
)


def expressions() -> Sequence[bytes]:
    found = [*EXPRESSIONS]
    for path in sorted(CASES.glob("expressions/*.yaml")):
        found += _texts(yaml.safe_load(path.read_text(encoding="utf-8")))
    return [each.encode("utf-8", "surrogatepass") for each in dict.fromkeys(found)]


def _texts(value: object) -> list[str]:
    """Every text in a file of cases: expressions, and words beside them, which do no harm."""
    if isinstance(value, str):
        return [value]
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for member in members for text in _texts(member)]


def check_expression(data: bytes) -> None:
    try:
        found = Expression(text_of(data))
    except ConditionError as error:
        assert str(error)
        return
    verdicts = [found.evaluate(document) for document in DOCUMENTS]
    again = [found.evaluate(document) for document in DOCUMENTS]
    assert verdicts == again
    try:
        whole = Expression(" && ".join(f"({term.text}\n)" for term in found.terms))
    except ConditionError as error:
        # The brackets may be those that are too many.
        assert "deep" in str(error) or "long" in str(error), error
        return
    assert [whole.evaluate(document) for document in DOCUMENTS] == verdicts


def check_path(data: bytes) -> None:
    try:
        path = paths.parse(text_of(data))
    except ConditionError as error:
        assert str(error)
        return
    again = paths.parse(path.text)
    assert again.text == path.text and again.steps == path.steps
    assert path.text.isprintable()


def check_pattern(data: bytes) -> None:
    """A line with a pattern, then the text to search."""
    pattern, _, text = text_of(data).partition("\n")
    parse_pattern(pattern)
    try:
        compiled = compile_pattern(pattern)
    except ConditionError as error:
        assert str(error)
        return
    if compiled.search(text) is True:
        folded = text.casefold()
        assert all(any(word in folded for word in clause) for clause in required(pattern)), (pattern, text)
        assert compiled.may_match(text), (pattern, text)


TARGETS = (
    Target("expression", check_expression, expressions, CEL, rounds=3_000),
    Target(
        "path",
        check_path,
        lambda: [each.encode() for each in FIELDS],
        split_words('. [" "] \\ 0 00 -1 [0] run derived \\u0041'),
        rounds=3_000,
    ),
    Target(
        "pattern",
        check_pattern,
        lambda: [f"{each}\nrm -rf k foo 12".encode() for each in PATTERNS],
        RE2,
        rounds=4_000,
    ),
)
