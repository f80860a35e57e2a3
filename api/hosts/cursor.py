"""Cursor: command hooks in its `hooks.json`.

From Cursor's documentation of hooks and a recording of Cursor 3.9.16 that others published; not run here, as
there is no package of it. The answer is flat. The text of a denial that reaches the model is `user_message`,
though the documentation says `agent_message`, so both carry it. With `failClosed` an answer must always be
given, also to allow. `preToolUse` is asked for every tool; `beforeShellExecution`, `beforeMCPExecution` and
`beforeReadFile` are asked after it for the same call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from api.hosts.report import (
    CALL,
    OTHER,
    PROBE,
    PROMPT,
    RESULT,
    Entries,
    Host,
    Report,
    Unreadable,
    identifier,
    optional,
    parsed,
    payload_of,
    text_of,
    tool_name,
)
from api.hosts.table import tool_and_payload

LIFECYCLE: Final = frozenset(
    (
        "sessionStart",
        "sessionEnd",
        "stop",
        "subagentStop",
        "preCompact",
        "afterAgentResponse",
        "afterAgentThought",
        "afterShellExecution",
        "afterMCPExecution",
        "afterFileEdit",
        "afterTabFileEdit",
        "workspaceOpen",
    )
)
"""Of these none is asked about a call; what a tool gave comes with `postToolUse`."""
DENIED: Final = "permission_denied"
_MCP: Final = re.compile("MCP:")
_FOLDER: Final = "working_directory"


def read(said: Mapping[str, Any]) -> Report:
    event = optional(said, "hook_event_name")
    if event in LIFECYCLE:
        return Report(OTHER, event)
    run_id = identifier(said, "conversation_id", "session_id")
    model = optional(said, "model") or None
    match event:
        case "preToolUse":
            tool, payload = _call(said)
            return Report(CALL, event, run_id, optional(said, "tool_use_id"), tool, payload, model=model)
        case "beforeShellExecution":
            payload = {"command": text_of(said, "command"), "cwd": optional(said, "cwd")}
            return Report(CALL, event, run_id, "", "Shell", payload, model=model, twin="command")
        case "beforeMCPExecution":
            tool = f"MCP:{tool_name(said, 'tool_name').removeprefix('MCP:')}"
            return Report(
                CALL, event, run_id, "", tool, payload_of(said, "tool_input"), model=model, twin="*"
            )
        case "beforeReadFile":
            payload = {"file_path": text_of(said, "file_path")}
            return Report(CALL, event, run_id, "", "Read", payload, model=model, twin="file_path")
        case "postToolUse" | "postToolUseFailure":
            failed = event == "postToolUseFailure"
            if failed and said.get("failure_type") == DENIED:
                return Report(OTHER, event)  # it was not made
            tool, payload = _call(said)
            output = said.get("error_message" if failed else "tool_output")
            return Report(
                RESULT,
                event,
                run_id,
                optional(said, "tool_use_id"),
                tool,
                payload,
                output=parsed(output) if isinstance(output, str) else output,
                failed=failed,
            )
        case "beforeSubmitPrompt":
            return Report(PROMPT, event, run_id, text=text_of(said, "prompt"), model=model)
    raise Unreadable(f"`hook_event_name` is `{event[:60]}`, which is not understood here")


def _call(said: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    return tool_and_payload(said, "tool_name", "tool_input", _MCP, _FOLDER)


def allow(event: str) -> dict[str, Any]:
    if event == "beforeSubmitPrompt":
        return {"continue": True}
    return {} if event.startswith("post") or event in LIFECYCLE else {"permission": "allow"}


def deny(event: str, text: str) -> dict[str, Any]:
    return {"permission": "deny", "user_message": text, "agent_message": text}


HOST: Final = Host(
    name="cursor",
    title="Cursor",
    read=read,
    allow=allow,
    deny=deny,
    probe={
        "conversation_id": "governance-doctor",
        "generation_id": "probe",
        "hook_event_name": "preToolUse",
        "cursor_version": "probe",
        "workspace_roots": [],
        "tool_name": PROBE,
        "tool_input": {},
        "tool_use_id": "probe",
    },
    default_timeout=60,
    outputs=("tool_output", "error_message", "prompt"),
    entries=Entries(
        user=".cursor/hooks.json",
        project=".cursor/hooks.json",
        decides={"preToolUse": {"failClosed": True}},
        reports={"postToolUse": {}, "postToolUseFailure": {}, "beforeSubmitPrompt": {}},
        nested=False,
        version=1,
    ),
)
