"""Gemini CLI: command hooks in its `settings.json`.

Run as a whole with `@google/gemini-cli` 0.61.0, whose package has its documentation of hooks and the runner.
Time-outs are milliseconds and let the call through. JSON on the output counts whatever the exit code; exit
code 2 without a word lets the call through, so a text is always written. Calls have no id of their own. The
environment is cleansed of what looks like a secret, so the key comes from a file.
"""

from __future__ import annotations

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
    no_word,
    optional,
    text_of,
)
from api.hosts.table import MCP_TOOL, tool_and_payload

LIFECYCLE: Final = frozenset(
    (
        "SessionStart",
        "SessionEnd",
        "AfterAgent",
        "AfterModel",
        "BeforeModel",
        "BeforeToolSelection",
        "Notification",
        "PreCompress",
    )
)


NAME: Final = "governance"
"""Of the hook, which a person may switch off by it."""
_REFERENCED: Final = "\n--- Content from referenced files ---"
"""Behind it stands in a prompt what the files hold that a person names by `@`."""


def read(said: Mapping[str, Any]) -> Report:
    event = optional(said, "hook_event_name")
    if event in LIFECYCLE:
        return Report(OTHER, event)
    run_id = identifier(said, "session_id")
    match event:
        case "BeforeTool" | "AfterTool":
            mcp = MCP_TOOL["gemini-cli"]
            tool, payload = tool_and_payload(said, "tool_name", "tool_input", mcp, "dir_path")
            if event == "BeforeTool":
                return Report(CALL, event, run_id, "", tool, payload)
            response = said.get("tool_response")
            failed = isinstance(response, Mapping) and bool(response.get("error"))
            return Report(RESULT, event, run_id, "", tool, payload, response, failed)
        case "BeforeAgent":
            text = text_of(said, "prompt").partition(_REFERENCED)[0]
            return Report(PROMPT, event, run_id, text=text)
    raise Unreadable(f"`hook_event_name` is `{event[:60]}`, which is not understood here")


def deny(event: str, text: str) -> dict[str, Any]:
    return {"decision": "deny", "reason": text}


def off(settings: Mapping[str, Any]) -> str:
    """As `/hooks disable` leaves it, or the switch of all hooks."""
    config = settings.get("hooksConfig")
    if not isinstance(config, Mapping):
        return ""
    if config.get("enabled") is False:
        return "hooksConfig.enabled"
    disabled = config.get("disabled")
    return "hooksConfig.disabled" if isinstance(disabled, list) and NAME in disabled else ""


HOST: Final = Host(
    name="gemini-cli",
    title="Gemini CLI",
    read=read,
    allow=no_word,
    deny=deny,
    probe={
        "session_id": "governance-doctor",
        "transcript_path": "/dev/null",
        "cwd": "/",
        "hook_event_name": "BeforeTool",
        "timestamp": "2026-01-31T09:30:00Z",
        "tool_name": PROBE,
        "tool_input": {},
    },
    default_timeout=60,
    outputs=("tool_response", "prompt"),
    entries=Entries(
        user=".gemini/settings.json",
        project=".gemini/settings.json",
        decides={"BeforeTool": {"type": "command", "name": NAME}},
        reports={
            "AfterTool": {"type": "command", "name": NAME},
            "BeforeAgent": {"type": "command", "name": NAME},
        },
        timeout_unit=1_000,
        off=off,
        off_in=(".gemini/settings.json",),
        trust="start `gemini` in it once and trust it (`--skip-trust` alone leaves the hooks out)",
    ),
)
