"""No pattern that meets the text of a call takes time in the square of its length.

Python's `re` backtracks and holds the interpreter, so one such pattern lets one call stop everybody. Each
pattern, of whatever room, is tried in the way it is used on texts that make backtracking patterns slow:
every repetition of it pumped, behind what leads there, before what fails.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import re
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

import pytest

from tests.harness.effort import slowness
from tests.harness.places import ROOT

ROOMS = ("engine", "schemas", "api")
METHODS = frozenset({"search", "match", "fullmatch", "finditer", "findall", "sub", "split"})
STAGES = ((20, 0.002), (300, 0.004), (2_000, 0.02), (10_000, 0.06))
"""Characters, and seconds that they may take; what is linear takes a hundredth. A stage that takes next to
nothing is the last."""


class Use(NamedTuple):
    """A pattern and how it is used."""

    pattern: str
    flags: int
    searches: bool
    """From every place of the text, not from its beginning alone."""


@cache
def uses() -> dict[Use, str]:
    """Each use, and the file and line of one that is so."""
    found: dict[Use, str] = {}
    names: dict[str, re.Pattern[str]] = {}
    trees: dict[Path, ast.Module] = {}
    for path in sorted(file for room in ROOMS for file in (ROOT / room).rglob("*.py")):
        if path.name.startswith("make_"):
            continue
        trees[path] = ast.parse(path.read_text(encoding="utf-8"))
        module = importlib.import_module(str(path.relative_to(ROOT).with_suffix("")).replace("/", "."))
        for name, value in vars(module).items():
            for number, each in enumerate(_compiled(value)):
                names.setdefault(f"{path}:{name}:{number}", each)
                found.setdefault(Use(each.pattern, each.flags, _searches(path, name)), f"{path}: {name}")
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "re"
                and node.func.attr in METHODS
                and isinstance(node.args[0], ast.Constant)
            ):
                use = Use(node.args[0].value, 0, node.func.attr not in ("match", "fullmatch"))
                found.setdefault(use, f"{path}:{node.lineno}")
    return found


def _compiled(value: Any) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern):
        yield _of_text(value)
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _compiled(each)


def _of_text(pattern: re.Pattern[Any]) -> re.Pattern[str]:
    """One of bytes as one of text, each byte being a character."""
    if isinstance(pattern.pattern, str):
        return pattern
    return re.compile(pattern.pattern.decode("latin-1"), pattern.flags | re.ASCII)


@cache
def _sources() -> str:
    return "\n".join(
        file.read_text(encoding="utf-8") for room in ROOMS for file in sorted((ROOT / room).rglob("*.py"))
    )


def _searches(path: Path, name: str) -> bool:
    """Whether the pattern is used otherwise than from the beginning of a text, or unlike any of these."""
    text = path.read_text(encoding="utf-8") if name.startswith("_") else _sources()
    used = re.findall(rf"\b{re.escape(name)}\.(\w+)", text)
    return not used or any(method not in ("match", "fullmatch") for method in used)


# ---- texts that fit a pattern ---------------------------------------------------------------------------


def fitting(tree: Any, depth: int = 0, anything: str = "a") -> str:
    """A short text that the pattern takes, as far as it is easy to say."""
    return "".join(anything if kind is sre.ANY else _piece(kind, value, depth) for kind, value in tree)


def _piece(kind: Any, value: Any, depth: int) -> str:
    if kind is sre.LITERAL:
        return chr(value)
    if kind is sre.NOT_LITERAL:
        return "a" if value != ord("a") else "b"
    if kind is sre.IN:
        return _member(value)
    if kind is sre.BRANCH:
        return fitting(value[1][0], depth + 1)
    if kind is sre.SUBPATTERN:
        return fitting(value[3], depth + 1)
    if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        least, _, inner = value
        return fitting(inner, depth + 1) * max(1, min(least, 3))
    if kind is sre.ATOMIC_GROUP:
        return fitting(value, depth + 1)
    return ""


def _member(members: Any) -> str:
    negated = any(kind is sre.NEGATE for kind, _ in members)
    pattern = re.compile(_class_text(members, negated))
    for char in "a0 -_./:@\"'\\,;=%$+([{<\n\x00é":
        if pattern.fullmatch(char):
            return char
    return next(iter(_members(members)), "")


def _members(members: Any) -> Iterator[str]:
    for kind, value in members:
        if kind is sre.LITERAL:
            yield chr(value)
        elif kind is sre.RANGE:
            yield chr(value[0])


_CATEGORIES = {
    sre.CATEGORY_DIGIT: r"\d",
    sre.CATEGORY_NOT_DIGIT: r"\D",
    sre.CATEGORY_SPACE: r"\s",
    sre.CATEGORY_NOT_SPACE: r"\S",
    sre.CATEGORY_WORD: r"\w",
    sre.CATEGORY_NOT_WORD: r"\W",
}


def _class_text(members: Any, negated: bool) -> str:
    inside = ""
    for kind, value in members:
        if kind is sre.LITERAL:
            inside += re.escape(chr(value))
        elif kind is sre.RANGE:
            inside += f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
        elif kind is sre.CATEGORY:
            inside += _CATEGORIES[value]
    return f"[{'^' if negated else ''}{inside}]"


def pumped(tree: Any, chars: str, before: str = "") -> Iterator[tuple[str, str]]:
    """What leads to a repetition, and a text that it repeats; `chars` are those that the pattern names."""
    for kind, value in tree:
        if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            _, most, inner = value
            if most is sre.MAXREPEAT or most > 16:
                for text in texts_of(inner, chars):
                    yield before, text
            yield from pumped(inner, chars, before)
        elif kind is sre.SUBPATTERN:
            yield from pumped(value[3], chars, before)
        elif kind is sre.ATOMIC_GROUP:
            yield from pumped(value, chars, before)
        elif kind is sre.BRANCH:
            for branch in value[1]:
                yield from pumped(branch, chars, before)
        elif kind in (sre.ASSERT, sre.ASSERT_NOT):
            yield from pumped(value[1], chars, before)
        before += _piece(kind, value, 0)


def texts_of(tree: Any, chars: str) -> list[str]:
    """Some texts that one round of a repetition takes."""
    made = _filled(tree, chars)
    if len(tree) == 1 and tree[0][0] is sre.IN:
        negated = any(kind is sre.NEGATE for kind, _ in tree[0][1])
        fits = re.compile(_class_text(tree[0][1], negated)).fullmatch
        made += [char for char in chars if fits(char)]
    if len(tree) == 1 and tree[0][0] is sre.NOT_LITERAL:
        made += [char for char in chars if ord(char) != tree[0][1]]
    if len(tree) == 1 and tree[0][0] is sre.BRANCH:
        made += [text for branch in tree[0][1][1] for text in _filled(branch, chars)]
    if len(tree) == 1 and tree[0][0] is sre.SUBPATTERN:
        made += texts_of(tree[0][1][3], chars)
    return [text for text in dict.fromkeys(made) if text]


def _filled(tree: Any, chars: str) -> list[str]:
    """Some texts that a part of a pattern takes, what may be anything also being where the pattern begins."""
    fillings = chars if any(kind is sre.ANY for kind, _ in tree) else ""
    return [fitting(tree), *(fitting(tree, anything=char) for char in fillings)]


FAILS = ("\x01", "", "!", "a", '"')


def seconds(use: Use, text: str) -> float:
    compiled = re.compile(use.pattern, use.flags)
    begun = time.thread_time()
    if use.searches:
        for _ in itertools.islice(compiled.finditer(text), 100_000):
            pass
    else:
        compiled.match(text)
        compiled.fullmatch(text)
    return time.thread_time() - begun


def slow(use: Use) -> tuple[float, str] | None:
    tree = parser.parse(use.pattern, use.flags & ~re.UNICODE)
    tried = set()
    chars = "".join(dict.fromkeys('a0 .-_/"\\(\n=' + use.pattern))
    for before, pump in itertools.islice(pumped(tree, chars), 400):
        lead = {before, ""}
        for first, last in itertools.product(lead, FAILS):
            if (first, pump, last) in tried:
                continue
            tried.add((first, pump, last))
            for length, most in STAGES:
                text = first + pump * (length // len(pump)) + last
                took = seconds(use, text)
                if took > most and min(took, seconds(use, text)) > most * slowness():
                    return took, f"{first[:40]!r} + {pump[:20]!r} * {length // len(pump)} + {last!r}"
                if length > 100 and took < most / 200:
                    break
    return None


@pytest.mark.parametrize("use", uses(), ids=lambda use: uses()[use].removeprefix(f"{ROOT}/"))
def test_a_pattern_takes_time_in_the_length_of_its_text(use: Use) -> None:
    found = slow(use)
    assert found is None, f"{uses()[use]} takes {found[0]:.2f} s on {found[1]}: {use.pattern[:200]}"


@pytest.mark.parametrize("pattern", [r"-\w*d\w*", r"!\s*\(?\s*x", r"[a.]+\.[a.]+!"])
def test_a_pattern_that_is_slow_is_found(pattern: str) -> None:
    assert slow(Use(pattern, 0, False)) is not None


def test_one_that_begins_anew_within_what_it_repeats_is_found() -> None:
    assert slow(Use(r'"[^"\\]*+(?>(?:\\.[^"\\]*+)*)"', 0, True)) is not None


def test_a_pattern_that_is_linear_is_not() -> None:
    assert slow(Use(r"[a-z]++(?:-[a-z]++)*+", 0, False)) is None


def test_no_pattern_repeats_a_group_possessively() -> None:
    """Before Python 3.11.5 such a group may match less than it must (gh-106052), so that a call is read
    wrongly; an atomic group around the repetition says the same and is right in all of them."""
    repeated = [where for use, where in uses().items() if any(_possessive_groups(parser.parse(*use[:2])))]
    assert not repeated, f"write `(?>(?:...)*)` for `(?:...)*+` in {repeated}"
    assert any(_possessive_groups(parser.parse(r"a(?>b(?:c|dd)*+)"))), "one would be found"


SINGLE = frozenset((sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN, sre.CATEGORY))


def _possessive_groups(pattern: Any) -> Iterator[Any]:
    for operation, operand in pattern:
        if operation is sre.POSSESSIVE_REPEAT and any(each[0] not in SINGLE for each in operand[2]):
            yield operand[2]
        for part in _parts(operand):
            yield from _possessive_groups(part)


def _parts(operand: Any) -> Iterator[Any]:
    """The patterns within an operation."""
    if isinstance(operand, parser.SubPattern):
        yield operand
    elif isinstance(operand, tuple | list):
        for each in operand:
            yield from _parts(each)
