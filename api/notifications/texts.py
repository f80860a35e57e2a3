"""What a notice says: one message, in plain words, of everything that goes out together.

The same for every channel; how a chat or a mail spells it is theirs. What agents control is made harmless
here as far as any reader goes: no line breaks or invisible characters, no address that a reader would make a
link of, nothing that looks like a key, nothing long. Knows nothing of tables or networks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import msgspec

MOST_PARAGRAPHS: Final = 10
MOST_NAME: Final = 80
MOST_SUMMARY: Final = 160
MOST_REASON: Final = 400
MOST_TITLE: Final = 140

_ADDRESS: Final = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*):(?=//)|\b(mailto|javascript|data):|\bwww\.")
_KEY_LIKE: Final = re.compile(r"[A-Za-z0-9+/_=.-]{32,}")
_SHOWN_OF_KEY: Final = 6


@dataclass(frozen=True, slots=True)
class NoticeText:
    """`link` leads into the console; None where there is nothing to open."""

    title: str
    paragraphs: tuple[str, ...]
    link: str | None


def harmless(text: str, most: int) -> str:
    """A value that an agent may have chosen, on one line, to be read by a person."""
    line = " ".join("".join(each if each.isprintable() else " " for each in text[: 4 * most]).split())
    line = _KEY_LIKE.sub(_shortened, line)
    line = _ADDRESS.sub(lambda found: found[0][:-1] + ("[.]" if found[0].endswith(".") else "[:]"), line)
    return line if len(line) <= most else line[: most - 1] + "…"


def _shortened(found: re.Match[str]) -> str:
    text = found[0]
    is_key = any(each.isdigit() for each in text) and any(each.isalpha() for each in text)
    return f"{text[:_SHOWN_OF_KEY]}…" if is_key else text


def compose(payloads: Iterable[str], frontend: str) -> NoticeText:
    """One message of notices, oldest first; several of one approval are one paragraph."""
    said: dict[str, tuple[str, str, str | None]] = {}
    for number, payload in enumerate(payloads):
        content = msgspec.json.decode(payload)
        event, data = content["event"], content["data"]
        subject = data.get("approvalId") if event.startswith("approval.") else None
        said[subject or f"#{number}"] = _said(event, data, content["timestamp"], frontend)
    titles, paragraphs, links = zip(*said.values(), strict=True)
    if len(said) == 1:
        return NoticeText(titles[0][:MOST_TITLE], paragraphs, links[0])
    shown = list(paragraphs[:MOST_PARAGRAPHS])
    if len(paragraphs) > len(shown):
        shown.append(f"… and {len(paragraphs) - len(shown)} more.")
    waiting = sum(not subject.startswith("#") for subject in said)
    title = f"{waiting} approvals wait" if waiting == len(said) else f"{len(said)} notices"
    return NoticeText(title, tuple(shown), f"{frontend}/approvals" if waiting else frontend)


def _said(event: str, data: Mapping[str, Any], timestamp: str, frontend: str) -> tuple[str, str, str | None]:
    """Title, paragraph and link of one notice."""

    def name(member: str) -> str:
        return harmless(str(data.get(member, "")), MOST_NAME)

    reason = harmless(str(data.get("reason", "")), MOST_REASON)
    if event.startswith("approval."):
        title = {
            "approval.unseen": "Nobody has looked at an approval",
            "approval.expiring": "An approval is about to expire",
        }.get(event, "Approval needed")
        asked = _minute(data.get("requestedAt") or timestamp)
        end = f" It expires at {_minute(data['expiresAt'])}." if data.get("expiresAt") else ""
        about = f": {reason}" if reason else ""
        about += "" if about.endswith((".", "!", "?", "…")) else "."
        what = harmless(str(data.get("summary", "")), MOST_SUMMARY) or f"call {name('toolName')}"
        text = f"{name('agentId')} wants to {what}{about} Waiting since {asked}.{end}"
        link = f"{frontend}/approvals?approvalId={quote(str(data['approvalId']), safe='')}"
        return f"{title}: {name('toolName')}", text, link
    if event == "agent.halted":
        whom = {"all": "All agents are", "agent": f"{name('agentId')} is", "run": f"Run {name('runId')} is"}
        text = f"{whom[data['scope']]} halted by {name('createdBy')} since {_minute(data['createdAt'])}."
        return "Halted", f"{text} {reason}".strip(), frontend
    if event == "tool.blocked":
        text = (
            f"{name('agentId')} was not allowed to call {name('toolName')} at {_minute(timestamp)}: {reason}"
        )
        return f"Blocked: {name('toolName')}", text, frontend
    if event == "policy.reload_failed":
        first = data["errors"][0] if data["errors"] else {}
        place = ":".join(str(first[part]) for part in ("file", "line") if part in first)
        problem = harmless(f"{place}: {first.get('message', '')}".strip(": "), MOST_REASON)
        text = f"The changed policy files do not load; the last good set stays in force. {problem}"
        return "Policies do not load", text, frontend
    return "Test", f"This is a test of the channel {name('channel')}; it works.", frontend


def _minute(at: str) -> str:
    """`2026-01-31 09:30 UTC`"""
    return f"{at[:10]} {at[11:16]} UTC"
