"""What is reported of an MCP tool's result: words, bounded, and of pictures and sounds only what they are."""

from __future__ import annotations

import json
from typing import Any, Final

MOST_TEXT: Final = 200_000
"""Characters of all texts of one result together; an event of the service holds a megabyte."""

SHORT: Final = 2_000
"""Characters of a member that stays as it is."""


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
    """A tool's error: its text, and behind that whatever else it holds, as JSON."""
    room = _Room(MOST_TEXT)
    content = result.get("content")
    blocks = content if isinstance(content, list) else []
    is_text = [isinstance(each, dict) and each.keys() == {"type", "text"} for each in blocks]
    texts = [each["text"] for each, alone in zip(blocks, is_text, strict=True) if alone]
    said = [room.text("\n".join(text for text in texts if isinstance(text, str)))]
    rest = {
        name: each
        for name, each in result.items()
        if name not in ("content", "isError", "resultType", "_meta")
    }
    if others := [each for each, alone in zip(blocks, is_text, strict=True) if not alone]:
        rest["content"] = [_block(each, room) for each in others]
    if rest:
        said.append(json.dumps(room.whole(rest), ensure_ascii=False))
    return "\n".join(filter(None, said)) or "the tool reported an error"


def problem(error: Any) -> str:
    """An error of the protocol, or what stands in its place: the message, and behind that whatever else it
    holds, which some clients show as well."""
    room = _Room(MOST_TEXT)
    rest = {key: each for key, each in error.items() if key != "code"} if isinstance(error, dict) else error
    said: list[str] = []
    if isinstance(rest, dict) and isinstance(message := rest.get("message"), str):
        said.append(room.text(message))
        del rest["message"]
    if rest:
        said.append(json.dumps(room.whole(rest), ensure_ascii=False))
    return "\n".join(filter(None, said)) or "the server answered with an error"


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
    """A block, or the resource in one. INVARIANT: no member is left out: which of them its client shows to a
    model, the server chooses, and not what it calls them."""
    if not isinstance(block, dict):
        return room.whole(block)
    encoded = [name for name in ("data", "blob") if isinstance(block.get(name), str)]
    found: dict[str, Any] = {"base64Characters": sum(len(block[name]) for name in encoded)} if encoded else {}
    for name, value in block.items():
        if name in encoded:
            continue
        if name == "resource" and isinstance(value, dict):
            found[name] = _block(value, room)
        elif name != "text" and isinstance(value, str | int | float) and len(str(value)) < SHORT:
            found[name] = value
        elif name != "_meta":
            found[name] = room.text(value) if isinstance(value, str) else room.whole(value)
    return found
