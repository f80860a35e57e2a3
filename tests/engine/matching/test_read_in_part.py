"""What is known only in part is an ERROR for those conditions alone that it may concern."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.derived import derivation
from engine.matching.ruleset import Ruleset
from engine.model import Condition, Policy, ToolCall, ToolDeclaration, ToolSet
from tests.corpus.score import EVERYTHING, outcome, ruleset
from tests.harness.places import ROOT

ROWS = {"values": [[f"Task {number}", "open", f"n{number}"] for number in range(900)]}
TOOLS = [
    ToolSet("t", "T", (ToolDeclaration(("sheet",), "files"), ToolDeclaration(("bash",), "shell", "execute")))
]
PAYING = [ToolSet("p", "P", (ToolDeclaration(("pay_invoice",), "payment", "pay"),))]
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


def test_what_is_not_asked_of_a_kind_is_not_worked_out(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def reading(document: Any, kind: str | None) -> Any:
        read.append(document["toolName"])
        return shell_reading(document, kind)

    shell_reading = derivation.shell_reading
    monkeypatch.setattr(derivation, "shell_reading", reading)
    condition = Condition(expression=f'tool.kind == "shell" && {GIT} || derived.writes == ["a"]')
    rules = Ruleset.build([Policy("p", "P", "block", (condition,))], tools=TOOLS)
    for _ in range(20):
        assert rules.evaluate(ToolCall.of(toolName="sheet", inputPayload={"path": "a"})).matches
    assert read == []
    assert rules.evaluate(ToolCall.of(toolName="bash", inputPayload={"command": "git log"})).matches
    assert read == ["bash"]


@pytest.mark.parametrize("asked", ["has(tool.words) == true", "(has(tool.words) ? 1 : 2) == 1"])
def test_every_tool_has_all_members_of_a_tool(asked: str) -> None:
    condition = Condition(expression=f'tool.kind == "shell" || {asked} && has(derived.amount)')
    rules = Ruleset.build([Policy("p", "P", "block", (condition,))], tools=PAYING)
    call = ToolCall.of(toolName="pay_invoice", inputPayload={"amount": 5})
    found = [rules.evaluate(call).matches for _ in range(20)]
    assert all(matches and not matches[0].faults for matches in found)


def test_the_first_expression_narrows_for_the_next() -> None:
    narrow, dear = (Condition(expression=each) for each in ("toolName == 'a'", "[1, 2].exists(n, n == 3)"))
    named = Condition("toolName", "equals", "a")
    rules = Ruleset.build([Policy("p", "P", "block", (named, narrow, dear))])
    assert [each.condition for each in rules.rules["p"].order] == [named, narrow, dear]
    other = Condition(expression="[1].all(n, n == 3)")
    rules = Ruleset.build([Policy("p", "P", "block", (named, dear, other, narrow))])
    assert [each.condition for each in rules.rules["p"].order] == [named, narrow, dear, other]


SOURCES = sorted((ROOT / "engine").rglob("*.py"), key=lambda path: -path.stat().st_size)[:60]


@pytest.mark.parametrize("tool", ["Write", "Edit", "mcp__github__create_or_update_file"])
@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_a_source_file_is_written_however_long_it_is(tool: str, path: Path) -> None:
    """What stands in it is no command, and that a shell could not read it whole is nobody's concern."""
    text = path.read_text(encoding="utf-8")
    payload = {
        "Write": {"file_path": f"/home/ann/shop/{path.name}", "content": text},
        "Edit": {"file_path": f"/home/ann/shop/{path.name}", "old_string": text[:200], "new_string": text},
    }.get(tool, {"owner": "ann", "repo": "shop", "path": path.name, "branch": "x", "content": text})
    found = ruleset(EVERYTHING).evaluate(ToolCall.of(toolName=tool, inputPayload=payload)).matches
    assert [each.reason for each in found if each.faults or each.policy.action != "warn"] == []


@pytest.mark.parametrize("name", ["aws_secret_access_key=settings.key", "process.env.npm_config_registry"])
def test_a_long_file_may_name_secrets(name: str) -> None:
    text = SOURCES[0].read_text(encoding="utf-8")[:12_000] * 3 + f"\nconnect({name})\n"
    call = ToolCall.of(toolName="Write", inputPayload={"file_path": "/home/ann/shop/s.py", "content": text})
    assert outcome(ruleset("starter"), call) == ("allow", [])


def test_many_rows_for_a_sheet_are_left_alone() -> None:
    for tool in ("mcp__google_sheets__append_rows", "hubspot_batch_create_contacts", "notion_create_pages"):
        for pack in ("starter", "office-agent"):
            assert outcome(ruleset(pack), ToolCall.of(toolName=tool, inputPayload=ROWS)) == ("allow", []), (
                pack
            )
