"""The shape of Claude Code's hooks, which Codex and others have taken over: reading what is common to it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from api.hosts.report import (
    CALL,
    OTHER,
    PROMPT,
    RESULT,
    Report,
    Unreadable,
    identifier,
    optional,
    text_of,
)
from api.hosts.table import MCP_TOOL, tool_and_payload

_NOT_BY_A_PERSON: Final = re.compile(
    r"<(?:(?:task|subagent)[-_]notification|(?:teammate|agent|cross-session)-message|channel|system-reminder)\b"
    r"|<stdin>\n"
)
"""What the host itself puts into a prompt, such as the answer of an agent that ran in the background, or what
was piped into it."""
OUTPUTS: Final = ("tool_response", "tool_result", "error", "prompt")
_OFF: Final = "disableAllHooks"


def off(settings: Mapping[str, Any]) -> str:
    return _OFF if settings.get(_OFF) is True else ""


def read(said: Mapping[str, Any], lifecycle: frozenset[str]) -> Report:
    """The report of an input; `lifecycle` are events that are no business of ours."""
    event = optional(said, "hook_event_name")
    model = optional(said, "model") or None
    match event:
        case "PreToolUse" | "PostToolUse" | "PostToolUseFailure":
            run_id, call_id = identifier(said, "session_id"), optional(said, "tool_use_id")
            tool, payload = tool_and_payload(said, "tool_name", "tool_input", MCP_TOOL["claude-code"])
            if event == "PreToolUse":
                return Report(CALL, event, run_id, call_id, tool, payload, model=model)
            failed = event == "PostToolUseFailure"
            output = said.get("error" if failed else "tool_response")
            return Report(RESULT, event, run_id, call_id, tool, payload, output, failed)
        case "UserPromptSubmit":
            run_id, text = identifier(said, "session_id"), text_of(said, "prompt")
            if optional(said, "agent_id"):
                return Report(OTHER, event)  # to an agent that another one has started, by that one
            if (found := _NOT_BY_A_PERSON.search(text)) is not None:
                text = text[: found.start()].strip()
                if not text:
                    return Report(OTHER, event)
            return Report(PROMPT, event, run_id, text=text, model=model)
    if event in lifecycle:
        return Report(OTHER, event)
    raise Unreadable(f"`hook_event_name` is `{event[:60]}`, which is not understood here")


def deny(event: str, text: str) -> dict[str, Any]:
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": text,
        }
    }


def probe(session: str, tool: str) -> dict[str, Any]:
    return {
        "session_id": session,
        "transcript_path": "/dev/null",
        "cwd": "/",
        "hook_event_name": "PreToolUse",
        "permission_mode": "default",
        "tool_name": tool,
        "tool_input": {},
        "tool_use_id": "probe",
    }
