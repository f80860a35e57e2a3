"""Stand-ins for agent hosts: what each does with the end of its hook, as its documentation or source has it.

`cases/hosts` says of which version, and where it was seen. `settings` are the fail-closed switches that the
installer sets; without them most hosts let the call through when a hook fails.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

from api.hosts.table import NAMES
from tests.harness import case_files
from tests.harness.places import CASES


@dataclass(frozen=True, slots=True)
class Ended:
    """How a hook ended; `code` None: killed, or at the host's time-out."""

    output: str
    code: int | None = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Consequence:
    goes_ahead: bool
    text: str = ""
    """What the model reads."""


@cache
def recorded(name: str) -> dict[str, Any]:
    """The recorded inputs of a host."""
    found: dict[str, Any] = case_files.read(CASES / "hosts" / f"{name}.yaml")
    return found


def told(name: str, kind: str, *, session: str = "s-1", call: str = "c-1", command: str = "ls") -> bytes:
    """An input of the host."""
    text = json.dumps(recorded(name)[kind])
    for word, value in (("SESSION", session), ("CALL", call), ("COMMAND", command)):
        text = text.replace(word, value)
    mark = "\ufeff" if recorded(name).get("byte_order_mark") else ""
    return (mark + text).encode()


def consequence(name: str, ended: Ended, *, closed: bool = True) -> Consequence:
    """What the host does with the call; `closed`: with every fail-closed switch that it has."""
    return _CONSEQUENCES[name](ended, closed)


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _claude_code(ended: Ended, closed: bool) -> Consequence:
    if ended.code == 2:
        return Consequence(False, ended.error)
    said = _object(ended.output)
    if ended.code is None or (ended.code != 0 and said is None):
        return Consequence(not closed, "the hook failed")
    own = (said or {}).get("hookSpecificOutput") or {}
    if own and own.get("hookEventName") != "PreToolUse":
        return Consequence(not closed, "the hook failed")
    return Consequence(own.get("permissionDecision") != "deny", own.get("permissionDecisionReason", ""))


def _codex(ended: Ended, closed: bool) -> Consequence:
    if ended.code == 2 and ended.error.strip():
        return Consequence(False, ended.error)
    if ended.code != 0:
        return Consequence(True, "the hook failed")
    said = _object(ended.output) or {}
    own = said.get("hookSpecificOutput") or {}
    known = said.keys() <= {"hookSpecificOutput"} and own.keys() <= {
        "hookEventName",
        "permissionDecision",
        "permissionDecisionReason",
    }
    denies = own.get("permissionDecision") == "deny" and own.get("permissionDecisionReason", "").strip()
    assert own.get("permissionDecision") != "allow", "an explicit `allow` is an error there"
    return Consequence(not (known and denies), own.get("permissionDecisionReason", ""))


def _cursor(ended: Ended, closed: bool) -> Consequence:
    if ended.code == 2:
        return Consequence(False, ended.output)
    said = _object(ended.output)
    if ended.code != 0 or said is None or said.get("permission") not in ("allow", "deny"):
        return Consequence(not closed, "the hook failed")
    return Consequence(said["permission"] == "allow", said.get("user_message", ""))


def _gemini_cli(ended: Ended, closed: bool) -> Consequence:
    text = ended.output.strip() or ended.error.strip()
    if ended.code is None or not text:
        return Consequence(True)
    said = _object(text)
    if said is None:
        return Consequence(ended.code in (0, 1), text)
    return Consequence(said.get("decision") not in ("deny", "block"), said.get("reason", ""))


def _copilot(ended: Ended, closed: bool) -> Consequence:
    if ended.code is None:
        return Consequence(True, "the hook was too late")
    said = _object(ended.output) or {}
    if ended.code != 0:
        return Consequence(False, said.get("permissionDecisionReason", "the hook failed"))
    return Consequence(said.get("permissionDecision") != "deny", said.get("permissionDecisionReason", ""))


_CONSEQUENCES = dict(zip(NAMES, (_claude_code, _codex, _cursor, _gemini_cli, _copilot), strict=True))
