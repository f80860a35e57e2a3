"""What is known only in part is an ERROR for those conditions alone that it may concern."""

from __future__ import annotations

from typing import Any

import pytest

from engine.matching.ruleset import Ruleset
from engine.model import Condition, Policy, ToolCall, ToolDeclaration, ToolSet
from tests.corpus.score import outcome, ruleset

ROWS = {"values": [[f"Task {number}", "open", f"n{number}"] for number in range(900)]}
TOOLS = [
    ToolSet("t", "T", (ToolDeclaration(("sheet",), "files"), ToolDeclaration(("bash",), "shell", "execute")))
]
GIT = 'derived.commands.exists(command, command.program == "git")'


@pytest.mark.parametrize(
    ("expression", "tool", "matches"),
    [
        (f'tool.effect == "pay" || tool.kind == "shell" && {GIT}', "sheet", False),
        (f'tool.effect == "pay" || tool.kind == "shell" && {GIT}', "bash", True),
        (f'tool.effect == "pay" || !(tool.kind != "shell" || !{GIT})', "sheet", False),
        (f'tool.effect == "pay" || !(tool.kind != "shell" || !{GIT})', "bash", True),
        (f'tool.effect == "pay" || {GIT}', "sheet", True),
        (f'tool.effect == "pay" || tool.kind == "files" && {GIT}', "sheet", True),
        (f'tool.effect == "pay" || [1].exists(n, tool.kind == "shell" && {GIT})', "sheet", False),
    ],
)
def test_a_kind_of_tools_decides_what_is_asked(expression: str, tool: str, matches: bool) -> None:
    policy: Any = Policy(
        policy_id="p", name="P", action="block", conditions=(Condition(expression=expression),)
    )
    rules = Ruleset.build([policy], tools=TOOLS)
    for _ in range(20):  # a term is compiled for a tool that is seen often
        found = rules.evaluate(ToolCall.of(toolName=tool, inputPayload=ROWS))
        assert bool(found.matches) is matches


def test_many_rows_for_a_sheet_are_left_alone() -> None:
    for tool in ("mcp__google_sheets__append_rows", "hubspot_batch_create_contacts", "notion_create_pages"):
        for pack in ("starter", "office-agent"):
            assert outcome(ruleset(pack), ToolCall.of(toolName=tool, inputPayload=ROWS)) == ("allow", []), (
                pack
            )
