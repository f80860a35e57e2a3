"""Codex: command hooks in its `hooks.json`.

Run as a whole with `@openai/codex` 0.171.0, whose binary holds the JSON Schemas of input and output; read in
the source of its `codex-rs/hooks`: an explicit `allow` is an error there, a denial needs a reason, exit code
2 needs a text on the error stream, unknown members of an answer make it void; whatever fails lets the call
through. The folder of a command (`workdir`) is no argument of the call but its `cwd`. Prompts to agents that
another one has started have an `agent_id`. `write_stdin` is asked of nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from api.hosts import claude_shape
from api.hosts.report import PROBE, Entries, Host, Report, no_word

LIFECYCLE: Final = frozenset(
    ("SessionStart", "SessionEnd", "Stop", "SubagentStart", "SubagentStop", "PreCompact", "PostCompact")
)


def read(said: Mapping[str, Any]) -> Report:
    return claude_shape.read(said, LIFECYCLE)


HOST: Final = Host(
    name="codex",
    title="Codex",
    read=read,
    allow=no_word,
    deny=claude_shape.deny,
    probe=claude_shape.probe("governance-doctor", PROBE) | {"model": "probe", "turn_id": "probe"},
    default_timeout=600,
    outputs=claude_shape.OUTPUTS,
    entries=Entries(
        user=".codex/hooks.json",
        project=".codex/hooks.json",
        decides={"PreToolUse": {"type": "command"}},
        reports={"PostToolUse": {"type": "command"}, "UserPromptSubmit": {"type": "command"}},
        home="CODEX_HOME",
        notes=(
            "start Codex and trust the hook with `/hooks`: until then, and after each change, Codex skips it",
            "Codex asks no hook about what is typed into a program that already runs, such as `bash -i`; with"
            " `unified_exec_tty = false` below `[features]` in its config.toml nothing can be typed",
        ),
    ),
)
