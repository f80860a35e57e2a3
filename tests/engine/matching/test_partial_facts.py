"""What is known of a call only in part is an ERROR for the index as it is for the plain loop."""

from __future__ import annotations

from typing import Any

import pytest

from engine.conditions.operators import OPERATORS
from engine.derived import payload, provenance
from engine.errors import ConditionError
from engine.matching.matcher import CompiledPolicy
from engine.matching.ruleset import Ruleset
from engine.model import Condition, Policy, ToolCall
from tests.engine.derived.declared import SET

FIELDS = (
    *("derived.provenance", "derived.provenance.to", "derived.provenance.account", "derived.targets"),
    *("derived.targets.0", "derived.untrustedTargets", "derived.unaskedTargets", "derived.recipients"),
    *("derived.recipientDomains", "derived.amount", "derived.commands.program", "derived.commands.inCode"),
    *("derived.commands.options.0", "derived.sql.verb", "derived.sql.tables", "derived.hosts"),
    *("derived.deletes", "derived.text", "derived.shellCommands", "derived.written"),
)
VALUES: tuple[Any, ...] = ("untrusted", "m@evil.example", "rm", 500, True, ["task", "x"], None)
DEEP = '{"to": ' * 2_000
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("pay", {"to": ["a", "b", "c", "d", "m@evil.example"]}),
    ("pay", {"to": DEEP, "account": "m@evil.example"}),
    ("pay", {"to": "a", "amount": "ten"}),
    ("send_email", {"to": [f"{name}@acme.example" for name in "abcdef"]}),
    ("bash", {"command": DEEP}),
    ("sql", {"query": "select " + "(" * 3_000}),
)


def policies() -> list[Policy]:
    found: list[Policy] = []
    for field in FIELDS:
        for operator in OPERATORS:
            for value in VALUES:
                name = f"p{len(found)}"
                policy = Policy(name, name, "block", (Condition(field, operator, value),))
                try:
                    CompiledPolicy.of(policy)
                except ConditionError:
                    continue
                found.append(policy)
    return found


def test_the_index_offers_what_may_be_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "MOST_TARGETS", 3)
    monkeypatch.setattr(payload, "MOST_FOUND", 4)
    ruleset = Ruleset.build(policies(), 0, [SET])
    for tool, arguments in CALLS:
        call = ToolCall.of(toolName=tool, inputPayload=arguments)
        asked = {match.policy.policy_id for match in ruleset.scan(call).matches}
        offered = {match.policy.policy_id for match in ruleset.evaluate(call).matches}
        assert offered == asked, (tool, [ruleset.policies[each].conditions for each in asked - offered][:3])


def test_padding_hides_no_target() -> None:
    condition = Condition("derived.provenance.to", "equals", "untrusted")
    ruleset = Ruleset.build([Policy("hold", "Hold", "block", (condition,))], 0, [SET])
    many = [f"{number}@acme.example" for number in range(provenance.MOST_TARGETS + 1)]
    call = ToolCall.of(toolName="pay", inputPayload={"to": many})
    (match,) = ruleset.evaluate(call).matches
    assert "cannot be evaluated" in match.reason


def test_what_was_too_much_says_that_the_tool_is_not_declared() -> None:
    conditions = (Condition(expression='derived.commands.exists(each, each.program == "rm")'),)
    ruleset = Ruleset.build([Policy("p", "p", "block", conditions)], 0, [SET])
    advice = "(each text of a tool that no tool set declares is read as commands and as SQL: declare"
    for tool, is_told in (("import_rows", True), ("bash", False)):
        payload = {"command": [f"say {number}" for number in range(1_000)]}
        (match,) = ruleset.evaluate(ToolCall.of(toolName=tool, inputPayload={"rows": [payload]})).matches
        assert "too many or too intricate to be read whole" in match.faults[0]
        assert (advice in match.faults[0]) is is_told
