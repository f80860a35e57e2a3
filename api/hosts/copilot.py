"""GitHub Copilot, its CLI and its cloud agent: command and http hooks in files of their own.

From GitHub's reference of hooks, and run as a whole with `@github/copilot` 1.0.102. The events are
named in camelCase here, which get `toolName` and `toolArgs`; those named like Claude's get Claude's members,
which are read as well. A command that fails denies, one that is too late lets through, and so does an
http hook that fails. Calls have no id of their own. An agent that another one has started is a session of its
own, which names that of the other as `parentAgentId`; `sessionId` and `agentId` are its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from api.hosts import claude_shape
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
    ("SessionStart", "SessionEnd", "Stop", "SubagentStop", "PreCompact", "ErrorOccurred", "Notification")
)

OF_LIFECYCLE: Final = frozenset(
    ("source", "reason", "stopReason", "agentName", "errorContext", "trigger", "notification_type")
)
"""Of these each event that is no business of ours has one."""


def read(said: Mapping[str, Any]) -> Report:
    """In camelCase no member names the event, so the others tell which it is."""
    if "hook_event_name" in said:
        found = claude_shape.read(said, LIFECYCLE)
        if found.kind == RESULT and not found.failed:
            return found._replace(output=said.get("tool_result", found.output))
        return found
    if "toolName" in said or "toolArgs" in said:
        run_id, parent = identifier(said, "sessionId"), optional(said, "parentAgentId")
        tool, payload = tool_and_payload(said, "toolName", "toolArgs", MCP_TOOL["copilot"])
        if "toolResult" in said:
            return Report(RESULT, "postToolUse", run_id, "", tool, payload, said["toolResult"], parent=parent)
        if "error" in said:
            return Report(
                RESULT, "postToolUseFailure", run_id, "", tool, payload, said["error"], True, parent=parent
            )
        return Report(CALL, "preToolUse", run_id, "", tool, payload, parent=parent)
    if "prompt" in said and "transformedPrompt" not in said:
        run_id = identifier(said, "sessionId")
        if optional(said, "parentAgentId"):
            return Report(OTHER, "userPromptSubmitted")  # by the agent that has started this one
        return Report(PROMPT, "userPromptSubmitted", run_id, text=text_of(said, "prompt"))
    if "sessionId" in said and said.keys() & OF_LIFECYCLE:
        return Report(OTHER, "")
    raise Unreadable("`toolName` is missing")


def deny(event: str, text: str) -> dict[str, Any]:
    return {"permissionDecision": "deny", "permissionDecisionReason": text}


HOST: Final = Host(
    name="copilot",
    title="GitHub Copilot",
    read=read,
    allow=no_word,
    deny=deny,
    probe={
        "sessionId": "governance-doctor",
        "timestamp": 1769851800000,
        "cwd": "/",
        "toolName": PROBE,
        "toolArgs": {},
    },
    default_timeout=30,
    outputs=(*claude_shape.OUTPUTS, "toolResult"),
    entries=Entries(
        user=".copilot/hooks/governance.json",
        project=".github/hooks/governance.json",
        decides={"preToolUse": {"type": "command"}},
        reports={
            "postToolUse": {"type": "command"},
            "postToolUseFailure": {"type": "command"},
            "userPromptSubmitted": {"type": "command"},
        },
        nested=False,
        command="bash",
        timeout="timeoutSec",
        version=1,
        http=True,
        home="COPILOT_HOME",
        off=claude_shape.off,
        trust="start `copilot` in it once and trust it, or give `--trust-folder` beside `-p`",
        notes=("Copilot lets a call through when a hook is too late, whatever the hook says afterwards",),
    ),
)
