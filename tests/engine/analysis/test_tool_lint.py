"""Findings about sets of tools: patterns that decide nothing, sets that disagree."""

from __future__ import annotations

from typing import Any

import pytest

from api.cli.commands import lint as command
from engine.analysis.tool_lint import RankedToolSet, lint_tools
from engine.model import ToolDeclaration, ToolSet
from schemas.lint_codes import TOOL_CODES

SEND = {"kind": "mail", "effect": "send"}
READ = {"kind": "files", "effect": "read"}


def ranked(
    name: str, *tools: tuple[tuple[str, ...], dict[str, Any]], rank: int = 1, **more: Any
) -> RankedToolSet:
    declared = tuple(ToolDeclaration(names, **shape) for names, shape in tools)
    return RankedToolSet(rank, f"tools/{name}.yaml", ToolSet(name, name, declared), **more)


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ([ranked("a", (("send mail", "=read", "get*", "* query"), SEND))], []),
        ([ranked("a", (("read file",), READ)), ranked("b", (("readFile",), READ))], []),
        (
            [ranked("a", (("read file",), READ)), ranked("b", (("readFile",), SEND))],
            [("sets-disagree", "tools/a.yaml", "/tools/0/names/0")],
        ),
        ([ranked("a", (("read file",), READ), rank=0), ranked("b", (("readFile",), SEND))], []),
        ([ranked("a", (("read",), READ), (("read file",), SEND))], []),
        ([ranked("a", (("=read",), READ)), ranked("b", (("read",), SEND))], []),
        (
            [
                ranked("a", (("read",), READ), examples=[{"toolName": "read_file", "kind": "files"}]),
                ranked("b", (("read file",), SEND), examples=[{"toolName": "x", "kind": "unknown"}]),
            ],
            [("overruled-example", "tools/a.yaml", "/examples/0/kind")],
        ),
    ],
)
def test_findings(sets: list[RankedToolSet], expected: list[tuple[str, str, str]]) -> None:
    found = list(lint_tools(sets))
    assert [(each.code, each.path, each.pointer) for each in found] == expected
    for finding in found:
        assert finding.level == "warning"


def test_every_code_has_a_line_of_help() -> None:
    for code, (level, text) in TOOL_CODES.items():
        assert any(line.split() == [code, level, *text.split()] for line in command.EPILOG.splitlines()), code
