"""What lint says of `after` where tools are declared; the other cases stand in `cases/lint`."""

from __future__ import annotations

from engine.analysis.lint import lint
from engine.model import ToolDeclaration, ToolSet
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
