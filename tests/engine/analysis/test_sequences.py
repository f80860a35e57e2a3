"""What lint says of `after` where tools are declared; the other cases stand in `cases/lint`."""

from __future__ import annotations

import time

from engine.analysis.lint import lint
from engine.analysis.sequences import Sequences
from engine.matching.ruleset import Ruleset
from engine.model import After, Condition, Policy, ToolDeclaration, ToolSet
from tests.engine.analysis.test_lint import policy_of


def test_a_tool_that_no_set_knows_is_no_tool_to_come_after() -> None:
    sets = [ToolSet("mail", "Mail", (ToolDeclaration(("send email", "=read"), "mail", "send"),))]
    where = [{"field": "toolName", "operator": "equals", "value": "wire"}]

    def said(name: str) -> list[str]:
        shape = {"name": "p", "action": "block", "matchConditions": where, "after": {"tool": name}}
        found = (each for each in lint([policy_of(shape)], tools=sets) if each is not None)
        return [each.message for each in found if each.code == "after-unknown"]

    assert said("send email") == said("=Read") == said("gmail send email") == []
    assert said("send emial") == [
        "no tool set knows a tool that is called like `send emial`; did you mean `send email`?"
    ]


def test_many_policies_that_wait_for_one_label_are_looked_at_once_each() -> None:
    """Eight times as many take no 24 times as long; each was held against all that add the label."""
    where = (Condition("toolName", "equals", "wire"),)

    def seconds(count: int) -> float:
        gives, waits = After("label", "nobodys"), After("label", "given")
        policies = [
            Policy(f"g{n}", "gives", "warn", where, labels=("given",), after=gives) for n in range(count)
        ]
        policies += [Policy(f"w{n}", "waits", "block", where, after=waits) for n in range(count)]
        ruleset = Ruleset.build(policies)
        begun = time.process_time()
        found = list(Sequences(ruleset.rules, ruleset.tools).never_begins())
        assert len(found) == 2 * count
        return time.process_time() - begun

    assert min(seconds(4_000) for _ in range(2)) < 24 * min(seconds(500) for _ in range(3))
