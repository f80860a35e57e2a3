"""A message in the shapes that the incoming webhooks of chats take: Slack, Teams (workflows), Mattermost.

Every text is neutral to the chat's markup: nobody is mentioned, and the only link is the message's own.
Limits, by their documentation: Slack 3000 characters a text object and 150 a header; Teams 28 KB a message;
Mattermost 16383 characters a post.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from api.notifications.texts import NoticeText

OPEN: Final = "Open in the console"
_MARKDOWN: Final = re.compile(r"([\\`*_{}\[\]()#+.!|~<>&:-])")


def slack(message: NoticeText) -> dict[str, Any]:
    """Block Kit: `plain_text` objects have no markup; the notification's `text` is escaped."""
    title = {"type": "plain_text", "text": message.title[:150], "emoji": False}
    blocks: list[dict[str, Any]] = [{"type": "header", "text": title}]
    for paragraph in message.paragraphs:
        text = {"type": "plain_text", "text": paragraph, "emoji": False}
        blocks.append({"type": "section", "text": text})
    if message.link is not None:
        link = {"type": "mrkdwn", "text": f"<{_entities(message.link)}|{OPEN}>", "verbatim": True}
        blocks.append({"type": "section", "text": link})
    return {"text": _entities(message.title), "blocks": blocks}


def _entities(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def teams(message: NoticeText) -> dict[str, Any]:
    """An Adaptive Card. Markdown counts in a `TextBlock` and a `Fact`, not in a `TextRun`."""

    def block(text: str, **look: Any) -> dict[str, Any]:
        return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text, **look}]}

    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [
            block(message.title, weight="Bolder", size="Medium"),
            *(block(paragraph) for paragraph in message.paragraphs),
        ],
    }
    if message.link is not None:
        card["actions"] = [{"type": "Action.OpenUrl", "title": OPEN, "url": message.link}]
    attachment = {
        "contentType": "application/vnd.microsoft.card.adaptive",
        "contentUrl": None,
        "content": card,
    }
    return {"type": "message", "attachments": [attachment]}


def mattermost(message: NoticeText) -> dict[str, Any]:
    """Markdown, escaped; a mention counts wherever an `@` stands, so there is none."""
    parts = [f"**{_neutral(message.title)}**", *map(_neutral, message.paragraphs)]
    if message.link is not None:
        parts.append(f"[{OPEN}]({message.link})")
    return {"text": "\n\n".join(parts)}


def _neutral(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", text.replace("@", "＠"))


SHAPES: Final[Mapping[str, Callable[[NoticeText], dict[str, Any]]]] = {
    "slack": slack,
    "teams": teams,
    "mattermost": mattermost,
}
"""Type of a channel -> its body."""
