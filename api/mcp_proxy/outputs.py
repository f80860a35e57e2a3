"""What is reported of a call's result: the words, bounded, and of pictures and sounds only what they are."""

from __future__ import annotations

import json
from typing import Any, Final

MOST_TEXT: Final = 200_000
"""Characters of all texts of one result together; an event of the service holds a megabyte."""


def reported(result: dict[str, Any]) -> dict[str, Any]:
    """The output of a call as the record keeps it."""
    room = _Room(MOST_TEXT)
    found: dict[str, Any] = {}
    if isinstance(content := result.get("content"), list):
        found["content"] = [_block(each, room) for each in content]
    if "structuredContent" in result:
        found["structuredContent"] = room.whole(result["structuredContent"])
    others = {
        key: value for key, value in result.items() if key not in ("content", "structuredContent", "_meta")
    }
    return {**room.whole(others), **found} if others else found


def failure(result: dict[str, Any]) -> str:
    """The text of a tool's error."""
    content = result.get("content")
    blocks = content if isinstance(content, list) else []
    texts = [each["text"] for each in blocks if isinstance(each, dict) and isinstance(each.get("text"), str)]
    return _Room(MOST_TEXT).text("\n".join(texts)) or "the tool reported an error"


class _Room:
    def __init__(self, left: int) -> None:
        self._left = left

    def text(self, text: str) -> str:
        kept = text[: self._left]
        self._left -= len(kept)
        return kept if len(kept) == len(text) else f"{kept}... ({len(text)} characters)"

    def whole(self, value: Any) -> Any:
        """A value that is kept as it is where it fits, and as a shortened text where not."""
        text = json.dumps(value)
        if len(text) <= self._left:
            self._left -= len(text)
            return value
        return {"shortened": self.text(text)}


def _block(block: Any, room: _Room) -> Any:
    if not isinstance(block, dict):
        return room.whole(block)
    if isinstance(text := block.get("text"), str):
        return {**_plain(block, "text"), "text": room.text(text)}
    if isinstance(data := block.get("data"), str):
        return {**_plain(block, "data"), "base64Characters": len(data)}
    if isinstance(resource := block.get("resource"), dict):
        return {"type": "resource", "resource": _resource(resource, room)}
    return room.whole(block)


def _resource(resource: dict[str, Any], room: _Room) -> Any:
    if isinstance(blob := resource.get("blob"), str):
        return {**_plain(resource, "blob"), "base64Characters": len(blob)}
    if isinstance(text := resource.get("text"), str):
        return {**_plain(resource, "text"), "text": room.text(text)}
    return room.whole(resource)


def _plain(block: dict[str, Any], beside: str) -> dict[str, Any]:
    """The short members of a block, without the long one."""
    return {
        key: value
        for key, value in block.items()
        if key != beside and isinstance(value, str | int | float) and len(str(value)) < 2000
    }
