"""Canonical JSON: compact, keys sorted, UTF-8. What digests, hashes and comparisons of values cover."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Final

import msgspec

_encode: Final = msgspec.json.Encoder(order="sorted").encode


def canonical_json(value: Any) -> bytes:
    """The same bytes for the same value, of dataclasses and structs too. Raises RecursionError for what is
    nested too deeply."""
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError):
        # What the fast encoder does not write: integers beyond 64 bits, half of a character.
        return json.dumps(value, sort_keys=True, separators=(",", ":"), default=_members).encode()


def _members(value: Any) -> dict[str, Any]:
    return msgspec.structs.asdict(value) if isinstance(value, msgspec.Struct) else asdict(value)
