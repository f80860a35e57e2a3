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
    in_folder,
    optional,
    payload_of,
    text_of,
    tool_name,
)

_NOT_BY_A_PERSON: Final = re.compile(
    r"<(?:(?:task|subagent)[-_]notification|(?:teammate|agent|cross-session)-message|channel|system-reminder)\b"
    r"|<stdin>\n"
)
"""What the host itself puts into a prompt, such as the answer of an agent that ran in the background, or what
was piped into it."""
OUTPUTS: Final = ("tool_response", "tool_result", "error", "prompt")


def read(said: Mapping[str, Any], lifecycle: frozenset[str]) -> Report:
    """The report of an input; `lifecycle` are events that are no business of ours."""
    event = optional(said, "hook_event_name")
    model = optional(said, "model") or None
    match event:
        case "PreToolUse":
            return Report(
                CALL,
                event,
                identifier(said, "session_id"),
                optional(said, "tool_use_id"),
                tool_name(said, "tool_name"),
                _payload(said),
                model=model,
            )
        case "PostToolUse" | "PostToolUseFailure":
            failed = event == "PostToolUseFailure"
            return Report(
                RESULT,
                event,
                identifier(said, "session_id"),
                optional(said, "tool_use_id"),
                tool_name(said, "tool_name"),
                _payload(said),
                output=said.get("error" if failed else "tool_response"),
                failed=failed,
            )
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


def _payload(said: Mapping[str, Any]) -> dict[str, Any]:
    payload = payload_of(said, "tool_input")
    return payload if tool_name(said, "tool_name").startswith("mcp__") else in_folder(payload, said)


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
