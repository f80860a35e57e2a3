"""A few declarations of tools, and what a call of one of them shows; for the tests of derived facts."""

from __future__ import annotations

from typing import Any

from engine.derived.derivation import Derivation
from engine.derived.tools import Tools
from engine.model import ToolDeclaration, ToolSet

SET = ToolSet(
    "common",
    "Common tools",
    (
        ToolDeclaration(("bash", "shell", "run command", "terminal"), "shell", "execute"),
        ToolDeclaration(("python *", "execute * code"), "code", "execute"),
        ToolDeclaration(("send email", "mail"), "mail", "send"),
        ToolDeclaration(("slack",), "chat", "send"),
        ToolDeclaration(("calendar",), "calendar"),
        ToolDeclaration(("=read", "read file"), "files", "read"),
        ToolDeclaration(("=write", "write file", "move file"), "files"),
        ToolDeclaration(("delete file",), "files", "delete"),
        ToolDeclaration(("sql", "apply migration"), "sql"),
        ToolDeclaration(("http", "fetch"), "http", "read"),
        ToolDeclaration(("transfer", "pay"), "payments", "pay", where=("to",)),
    ),
)
TOOLS = Tools([SET])


def shown(tool: str, payload: Any, member: str) -> Any:
    """What `derived.<member>` has, for an expression."""
    return Derivation({"toolName": tool, "inputPayload": payload}, TOOLS).value("derived", member)[0]


def is_partial(tool: str, payload: Any, member: str) -> bool:
    return Derivation({"toolName": tool, "inputPayload": payload}, TOOLS).value("derived", member)[1]
