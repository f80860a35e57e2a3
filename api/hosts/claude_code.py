"""Claude Code: command and http hooks in its `settings.json`.

Run as a whole with `@anthropic-ai/claude-code` 2.1.332, and read in its documentation of hooks. A hook that
fails or is killed at its time-out lets the call through, except with `onFailure: "block"`, which versions
before 2.1.295 do not know. No output is no verdict, also then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from api.hosts import claude_shape
from api.hosts.report import PROBE, Entries, Host, Report, no_word

LIFECYCLE: Final = frozenset(
    (
        "SessionStart",
        "SessionEnd",
        "Setup",
        "Stop",
        "StopFailure",
        "SubagentStart",
        "SubagentStop",
        "Notification",
        "PreCompact",
        "PostCompact",
    )
)


def read(said: Mapping[str, Any]) -> Report:
    return claude_shape.read(said, LIFECYCLE)


HOST: Final = Host(
    name="claude-code",
    title="Claude Code",
    read=read,
    allow=no_word,
    deny=claude_shape.deny,
    probe=claude_shape.probe("governance-doctor", PROBE),
    default_timeout=600,
    outputs=claude_shape.OUTPUTS,
    schedules=("CronCreate", "ScheduleWakeup"),
    entries=Entries(
        user=".claude/settings.json",
        project=".claude/settings.json",
        decides={"PreToolUse": {"type": "command", "onFailure": "block"}},
        reports={
            "PostToolUse": {"type": "command"},
            "PostToolUseFailure": {"type": "command"},
            "UserPromptSubmit": {"type": "command"},
        },
        http=True,
        home="CLAUDE_CONFIG_DIR",
        off=claude_shape.off,
        off_in=(".claude/settings.json", ".claude/settings.local.json"),
        notes=("needs Claude Code 2.1.295 or newer: older ones do not know `onFailure`",),
    ),
)
