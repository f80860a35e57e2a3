"""Shipped presets are read by people who do not program: short, each intent once, shown by calls."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.cel.ast import Expr, FunctionCall, Literal, parts
from engine.cel.parser import parse
from engine.model import Condition
from tests.engine.documents.test_shipped_presets import (
    PACK_FILES,
    POLICY_FILES,
    PRESET_FILES,
    library,
    presets,
    relative,
)

LONGEST_LINE = 160
LONGEST_PATTERN = 120
FILES = [*PRESET_FILES, *PACK_FILES, *POLICY_FILES]


def patterns(condition: Condition) -> Iterator[str]:
    if condition.expression is not None:
        yield from _in(parse(condition.expression))
    elif condition.operator in ("matches", "not_matches"):
        yield condition.value


def _in(node: Expr) -> Iterator[str]:
    if isinstance(node, FunctionCall) and node.function == "matches":
        yield from (each.value for each in node.arguments if isinstance(each, Literal))
    for part in parts(node):
        yield from _in(part)


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_no_line_is_long(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > LONGEST_LINE] == []


@pytest.mark.parametrize("preset_id", presets())
def test_a_preset_says_what_it_is_for_and_shows_it(preset_id: str) -> None:
    preset = presets()[preset_id]
    assert not re.match(r"the same", preset.description, re.IGNORECASE)
    sides = Counter(example["match"] for example in preset.template["examples"])
    assert sides[True] >= 3 and sides[False] >= 3


def test_patterns_are_short_and_no_expression_is_written_twice() -> None:
    written: Counter[str] = Counter()
    for policy, _ in library():
        found = [pattern for each in policy.conditions for pattern in patterns(each)]
        assert [each for each in found if len(each) > LONGEST_PATTERN] == [], policy.policy_id
        written.update(each for each in found if len(each) > 60)
    assert [each for each, times in written.items() if times > 1] == []
