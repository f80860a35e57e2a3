"""Policies as tests send them, or write them into files."""

from __future__ import annotations

from typing import Any


def where(field: str, operator: str, *value: Any) -> dict[str, Any]:
    """A condition."""
    return {"field": field, "operator": operator, **({"value": value[0]} if value else {})}


def policy_body(name: str, action: str, *conditions: Any, **members: Any) -> dict[str, Any]:
    """A policy with these conditions, and what else it says."""
    return {"name": name, "action": action, "enabled": True, "matchConditions": [*conditions], **members}


def on_tool(name: str, action: str, tool: str, **members: Any) -> dict[str, Any]:
    """A policy about one tool."""
    return policy_body(name, action, where("toolName", "equals", tool), **members)


def on_command(name: str, action: str, command: str, **members: Any) -> dict[str, Any]:
    """A policy about calls with these words in their command."""
    return policy_body(name, action, where("inputPayload.command", "contains", command), **members)
