"""What one call may cost is bounded as a whole, and a bound that is met is an ERROR, which fails closed."""

from __future__ import annotations

import time
from typing import Any

import pytest

from engine.derived.commands.shell_commands import shell_commands
from engine.matching.ruleset import Ruleset
from engine.model import Condition, Policy, ToolCall
from engine.shell.reader import UNREADABLE

NESTED = "inputPayload.l.all(a, inputPayload.l.all(b, a + b >= 0))"
LISTS = Condition("toolName", "equals", "lists")
CALL = ToolCall.of(toolName="lists", inputPayload={"l": list(range(9_000))})


def policies(count: int, action: Any) -> list[Policy]:
    return [
        Policy(
            policy_id=f"p{number}",
            name=f"P{number}",
            action=action,
            conditions=(LISTS, Condition(expression=f"{NESTED} && {number} >= 0")),
        )
        for number in range(count)
    ]


def seconds(ruleset: Ruleset) -> float:
    begun = time.process_time()
    ruleset.evaluate(CALL)
    return time.process_time() - begun


def test_many_dear_expressions_cost_what_one_does() -> None:
    one, many = Ruleset.build(policies(1, "block")), Ruleset.build(policies(16, "block"))
    assert min(seconds(many) for _ in range(3)) < 4 * min(seconds(one) for _ in range(3))


@pytest.mark.parametrize(("action", "matched"), [("block", 16), ("require_approval", 16), ("allow", 0)])
def test_what_is_left_out_counts_as_met_except_for_what_allows(action: str, matched: int) -> None:
    evaluation = Ruleset.build(policies(16, action)).evaluate(CALL)
    assert len(evaluation.matches) == matched
    told = " ".join(match.reason for match in evaluation.matches)
    assert not matched or "all policies together take too many steps" in told


def test_the_same_expression_is_asked_once() -> None:
    expression = Condition(expression="inputPayload.l.all(a, a >= 0)")
    same = [
        Policy(policy_id=f"p{number}", name="P", action="block", conditions=(LISTS, expression))
        for number in range(200)
    ]
    evaluation = Ruleset.build(same).evaluate(CALL)
    assert len(evaluation.matches) == 200
    assert not any(match.faults for match in evaluation.matches)


@pytest.mark.parametrize(
    "payload",
    [
        {"command": "echo $'" + "\\x72" * 200_000 + "'"},
        {"command": "echo -e '" + "\\x72" * 200_000 + "' | sh"},
        {"command": "printf '" + "\\x72" * 200_000 + "' | sh"},
        {"input": "$'" + "\\x72" * 200_000 + "'"},
        {"commands": ["echo $'" + "\\x72" * 1_000 + "'"] * 200},
        {"argv": [["ls", "b"]] * 70_000},
    ],
)
def test_no_text_is_dear_to_read(payload: dict[str, Any]) -> None:
    begun = time.process_time()
    entries = shell_commands({"inputPayload": payload})
    assert time.process_time() - begun < 2  # usually below 0.05
    assert entries[-1] == UNREADABLE


def test_a_long_file_with_escapes_is_read() -> None:
    text = "printf '" + "a line of some fifty characters, as files have\\n" * 10_000 + "' > notes.txt"
    assert shell_commands({"inputPayload": {"command": text}})[-1] != UNREADABLE
