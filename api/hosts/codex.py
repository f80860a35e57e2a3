"""Codex: command hooks in its `hooks.json`.

Run as a whole with `@openai/codex` 0.171.0, whose binary holds the JSON Schemas of input and output; read in
the source of its `codex-rs/hooks`: an explicit `allow` is an error there, a denial needs a reason, exit code
2 needs a text on the error stream, unknown members of an answer make it void; whatever fails lets the call
through. The folder of a command (`workdir`) is no argument of the call but its `cwd`. Prompts to agents that
another one has started have an `agent_id`. `write_stdin` is asked of nobody.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from api.hosts import claude_shape
from api.hosts.report import PROBE, Entries, Host, Report, no_word

LIFECYCLE: Final = frozenset(
    ("SessionStart", "SessionEnd", "Stop", "SubagentStart", "SubagentStop", "PreCompact", "PostCompact")
)


def read(said: Mapping[str, Any]) -> Report:
    return claude_shape.read(said, LIFECYCLE)


def skipped(file: Path, entry: Mapping[str, Any]) -> str:
    """Whether a person has trusted the entry as it is now, which Codex keeps beside the place where it stands
    in `config.toml`, as a digest: without that it is skipped without a word."""
    import tomllib

    try:
        groups = json.loads(file.read_text(encoding="utf-8"))["hooks"]["PreToolUse"]
        (place, digest), *_ = (
            (f":pre_tool_use:{one}:{other}", _digest(group, each))
            for one, group in enumerate(groups)
            for other, each in enumerate(group["hooks"])
            if each == entry
        )
        home = Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex")
        config = tomllib.loads((home / "config.toml").read_text(encoding="utf-8"))
        states = [
            state for key, state in config["hooks"]["state"].items() if key.endswith(f"{file.name}{place}")
        ]
        trusted = any(
            state.get("trusted_hash") == digest and state.get("enabled") is not False for state in states
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        trusted = False
    return "" if trusted else _UNTRUSTED


def _digest(group: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
    """As `codex app-server` gives it as `currentHash` (0.171.0)."""
    matcher = {"matcher": group["matcher"]} if group.get("matcher") is not None else {}
    meant = {"event_name": "pre_tool_use", **matcher, "hooks": [{"async": False, **entry}]}
    text = json.dumps(meant, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{sha256(text.encode()).hexdigest()}"


_UNTRUSTED: Final = (
    "Codex skips it, since it is switched off, not trusted yet, or has changed since it was: start `codex`,"
    " enter `/hooks`, and trust it"
)

HOST: Final = Host(
    name="codex",
    title="Codex",
    read=read,
    allow=no_word,
    deny=claude_shape.deny,
    probe=claude_shape.probe("governance-doctor", PROBE) | {"model": "probe", "turn_id": "probe"},
    default_timeout=600,
    outputs=claude_shape.OUTPUTS,
    skipped=skipped,
    entries=Entries(
        user=".codex/hooks.json",
        project=".codex/hooks.json",
        decides={"PreToolUse": {"type": "command"}},
        reports={"PostToolUse": {"type": "command"}, "UserPromptSubmit": {"type": "command"}},
        home="CODEX_HOME",
        trust="start `codex` in it once and trust it",
        notes=(
            "start Codex and trust the hook with `/hooks`: until then, and after each change, Codex skips it",
            "Codex asks no hook about what is typed into a program that already runs, such as `bash -i`; with"
            " `unified_exec_tty = false` below `[features]` in its config.toml nothing can be typed",
        ),
    ),
)
