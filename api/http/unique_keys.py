"""For `json.loads`: refuses an object in which a key stands twice, of which Python would take the last."""

from __future__ import annotations

from typing import Any


class RepeatedKey(ValueError):
    """A key stands twice; says which."""


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these members. Raises RepeatedKey."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise RepeatedKey(f"the key `{key[:80]}` stands twice in one object")
        found[key] = value
    return found
