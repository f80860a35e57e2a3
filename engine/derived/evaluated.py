"""An evaluation of AuthZEN among calls. Tool and payload are not all that makes it the call it is: whom it is
about and what they want to do stand in its context, as `subject`, `action` and `context`, which no ordinary
call has together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from engine.fields.scalars import shorten
from engine.model import Json, ToolCall

_MEMBERS: Final = frozenset(("subject", "action", "context"))
_LONGEST: Final = 60


def evaluated(context: Json) -> Mapping[str, Any] | None:
    """The `agentContext` of an evaluation; None when it is of another call."""
    return context if isinstance(context, dict) and context.keys() >= _MEMBERS else None


def asked_as(call: ToolCall) -> str:
    """` (asked as “delete” for “alice”)`, as far as tool and agent do not say so; empty for other calls."""
    context = evaluated(call.document.get("agentContext"))
    if context is None:
        return ""
    action, subject = context["action"], context["subject"]
    who = subject.get("id") if isinstance(subject, dict) else None
    said = [f"as {_quoted(action)}"] if action != call.tool_name else []
    said += [f"for {_quoted(who)}"] if who is not None and who != call.document["agentId"] else []
    return f" (asked {' '.join(said)})" if said else ""


def _quoted(value: Json) -> str:
    text = (value if isinstance(value, str) else repr(value))[: 4 * _LONGEST]
    return f"“{shorten(' '.join(text.split()), _LONGEST)}”"
