"""What a notice says: one message, in plain words, of everything that goes out together.

The same for every channel; how a chat or a mail spells it is theirs. What agents control is made harmless
here as far as any reader goes: no line breaks or invisible characters, no address that a reader would make a
link of, nothing that looks like a key, nothing long. Knows nothing of tables or networks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Final
from urllib.parse import quote

import msgspec

from engine.fields.visible import one_line

MOST_PARAGRAPHS: Final = 10
MOST_NAME: Final = 80
MOST_SUMMARY: Final = 160
MOST_REASON: Final = 400
MOST_TITLE: Final = 140

_ADDRESS: Final = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*):(?=//)|\b(mailto|javascript|data):|\bwww\.")
_SITE: Final = re.compile(
    r"(?i)(?<![\w-])(?<![\w-]\.)(?:[\w-]++\.)+(?:[a-z]{2,}(?=[/?#])|(?:com|net|org|info|biz|io|dev|app|co|me|eu|ru|cn|xyz|top|site|online"
    r"|click|link|live|shop|club|page|cloud|tech|ai|ar|at|au|be|br|ca|ch|cl|cz|de|dk|es|fi|fr|gr|hk|hu|ie|il|in"
    r"|it|jp|kr|lt|mx|nl|no|nz|pt|ro|se|sg|si|sk|su|tk|to|tr|tv|tw|ua|uk|us|za)\b)"
)
"""What mail programs make a link of though no scheme stands before it."""
_KEY_LIKE: Final = re.compile(r"[A-Za-z0-9+/_=.-]{32,}")
_SHOWN_OF_KEY: Final = 6


@dataclass(frozen=True, slots=True)
class NoticeText:
    """`link` leads into the console; None where there is nothing to open."""

    title: str
    paragraphs: tuple[str, ...]
    link: str | None


def harmless(text: str, most: int) -> str:
    """A value that an agent may have chosen, on one line, to be read by a person, who sees what was cut."""
    line = one_line(text[: 4 * most])
    if text[4 * most :].strip():
        line += " …"
    line = _KEY_LIKE.sub(_shortened, line)
    line = _ADDRESS.sub(lambda found: found[0][:-1] + ("[.]" if found[0].endswith(".") else "[:]"), line)
    line = _SITE.sub(lambda found: "[.]".join(found[0].rsplit(".", 1)), line)
    return line if len(line) <= most else line[: most - 1] + "…"


def _shortened(found: re.Match[str]) -> str:
    text = found[0]
    is_key = any(each.isdigit() for each in text) and any(each.isalpha() for each in text)
    return f"{text[:_SHOWN_OF_KEY]}…" if is_key else text


def compose(payloads: Iterable[str], frontend: str) -> NoticeText:
    """One message of notices; several of one approval are one paragraph. Approvals come first, those of each
    API key in its turn, the oldest first: of very many that one asks for, none hides that of another."""
    said: dict[str, _Paragraph] = {}
    whose: dict[str, str] = {}
    for number, payload in enumerate(payloads):
        content = msgspec.json.decode(payload)
        event, data = content["event"], content["data"]
        subject = data.get("approvalId") if event.startswith("approval.") else None
        notice = _Notice(event, data, content["timestamp"], frontend)
        said[subject or f"#{number}"] = WRITERS[event](notice)
        if subject is not None:
            whose[subject] = data.get("keyId") or data["agentId"]
    said = {subject: said[subject] for subject in _in_turns(whose, said)}
    titles, paragraphs, links = zip(*said.values(), strict=True)
    if len(said) == 1:
        return NoticeText(titles[0][:MOST_TITLE], paragraphs, links[0])
    shown = list(paragraphs[:MOST_PARAGRAPHS])
    if len(paragraphs) > len(shown):
        shown.append(f"… and {len(paragraphs) - len(shown)} more.")
    waiting = sum(not subject.startswith("#") for subject in said)
    title = f"{waiting} approvals wait" if waiting == len(said) else f"{len(said)} notices"
    return NoticeText(title, tuple(shown), f"{frontend}/approvals" if waiting else frontend)


def _in_turns(whose: Mapping[str, str], said: Iterable[str]) -> list[str]:
    """What is said, the first of everybody before the second of anybody; last what is nobody's."""
    turns: Counter[str] = Counter()
    places: dict[str, float] = {}
    for subject in said:
        who = whose.get(subject)
        places[subject] = inf if who is None else turns[who]
        if who is not None:
            turns[who] += 1
    return sorted(places, key=places.__getitem__)


@dataclass(frozen=True, slots=True)
class _Notice:
    """One notice as it was enqueued, and where links lead."""

    event: str
    data: Mapping[str, Any]
    timestamp: str
    frontend: str

    def name(self, member: str) -> str:
        return harmless(str(self.data.get(member, "")), MOST_NAME)

    @property
    def reason(self) -> str:
        return harmless(str(self.data.get("reason", "")), MOST_REASON)


_Paragraph = tuple[str, str, str | None]
"""Title, paragraph and link of one notice."""


def _approval(notice: _Notice) -> _Paragraph:
    data, tool = notice.data, notice.name("toolName")
    title = {
        "approval.unseen": "Nobody has looked at an approval",
        "approval.expiring": "An approval is about to expire",
        "approval.escalated": "An approval waits for an admin",
    }.get(notice.event, "Approval needed")
    asked = _minute(data.get("requestedAt") or notice.timestamp)
    end = f" It expires at {_minute(data['expiresAt'])}." if data.get("expiresAt") else ""
    about = f": {notice.reason}" if notice.reason else ""
    about += "" if about.endswith((".", "!", "?", "…")) else "."
    what = harmless(str(data.get("summary", "")), MOST_SUMMARY) or f"call {tool}"
    text = f"{notice.name('agentId')} wants to {what}{about} Waiting since {asked}.{end}"
    link = f"{notice.frontend}/approvals?approvalId={quote(str(data['approvalId']), safe='')}"
    return f"{title}: {tool}", text, link


def _halted(notice: _Notice) -> _Paragraph:
    agent, run = notice.name("agentId"), notice.name("runId")
    whom = {"all": "All agents are", "agent": f"{agent} is", "run": f"Run {run} is"}[notice.data["scope"]]
    text = f"{whom} halted by {notice.name('createdBy')} since {_minute(notice.data['createdAt'])}."
    return "Halted", f"{text} {notice.reason}".strip(), notice.frontend


def _alert(notice: _Notice) -> _Paragraph:
    severity, name = notice.data["severity"], notice.name("name")
    what = harmless(str(notice.data["summary"]), MOST_REASON)
    text = f"{severity.capitalize()}: {what}. {harmless(str(notice.data.get('message', '')), MOST_REASON)}"
    link = f"{notice.frontend}/alerts?alertId={quote(str(notice.data['alertId']), safe='')}"
    return f"Alert: {name}", text.strip(), link


def _blocked(notice: _Notice) -> _Paragraph:
    agent, tool = notice.name("agentId"), notice.name("toolName")
    text = f"{agent} was not allowed to call {tool} at {_minute(notice.timestamp)}: {notice.reason}"
    return f"Blocked: {tool}", text, notice.frontend


def _reload_failed(notice: _Notice) -> _Paragraph:
    first = notice.data["errors"][0] if notice.data["errors"] else {}
    place = ":".join(str(first[part]) for part in ("file", "line") if part in first)
    problem = harmless(f"{place}: {first.get('message', '')}".strip(": "), MOST_REASON)
    text = f"The changed policy files do not load; the last good set stays in force. {problem}"
    return "Policies do not load", text, notice.frontend


def _test(notice: _Notice) -> _Paragraph:
    text = f"This is a test of the channel {notice.name('channel')}; it works."
    return "Test", text, notice.frontend


WRITERS: Final[Mapping[str, Callable[[_Notice], _Paragraph]]] = {
    "approval.requested": _approval,
    "approval.expiring": _approval,
    "approval.unseen": _approval,
    "approval.escalated": _approval,
    "agent.halted": _halted,
    "alert.raised": _alert,
    "tool.blocked": _blocked,
    "policy.reload_failed": _reload_failed,
    "notification.test": _test,
}
"""Event -> what a notice of it says."""


def _minute(at: str) -> str:
    """`2026-01-31 09:30 UTC`"""
    return f"{at[:10]} {at[11:16]} UTC"
