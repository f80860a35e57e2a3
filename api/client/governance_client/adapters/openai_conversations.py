"""Which run of a runner a conversation goes on from, by what its model reads again.

Ids of calls alone do not tell: many models count them anew in each conversation. So a run is known by all
that it has read, and the one that has read most of a conversation is the one that it goes on from. Of what
was read only digests are kept.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

MOST_RUNS: Final = 2_000
"""That are remembered."""
_CONVERSATIONS: Final = ("conversation_id", "previous_response_id")
"""Options that name what the provider keeps of what went before."""

Read = tuple[str, ...]
"""What one thing that a model reads is known by."""


class Conversations:
    """See the module."""

    def __init__(self) -> None:
        self._read: OrderedDict[str, set[bytes]] = OrderedDict()
        """By runs, the one that has read last behind the others."""

    def remember(self, run_id: str, read: Iterable[Read]) -> None:
        """A run's model has read this, too."""
        self._read.setdefault(run_id, set()).update(map(_digest, read))
        self._read.move_to_end(run_id)
        while len(self._read) > MOST_RUNS:
            self._read.popitem(last=False)

    def latest_run(self, read: list[Read]) -> str | None:
        """The run that has read most of this, among those that have read the last of it that any has; of
        several the latest. By the id of a call alone only where nothing else is known."""
        marks = {_digest(each): len(each) > 1 for each in reversed(read)}
        shared = {run_id: marks.keys() & known for run_id, known in reversed(self._read.items())}
        found = set[bytes]().union(*shared.values())
        lasts = [mark for mark in marks if mark in found]
        last = next(filter(marks.get, lasts), lasts[0] if lasts else None)
        knowing = (run_id for run_id, known in shared.items() if last in known)
        return max(knowing, key=lambda run_id: len(shared[run_id]), default=None)


def conversation(items: list[Any], options: Mapping[str, Any]) -> list[Read]:
    """What the model reads of calls before."""
    found: list[Read] = []
    for item in items:
        if isinstance(item, dict) and isinstance(call_id := item.get("call_id"), str):
            found.append((call_id,))
            if item.get("type") == "function_call":
                found.append(call_read(call_id, str(item.get("name")), str(item.get("arguments"))))
            elif isinstance(output := item.get("output"), str):
                found.append((call_id, output))
    return found + names_read(options)


def names_read(options: Mapping[str, Any]) -> list[Read]:
    """A conversation, or an answer in one, that the provider keeps."""
    return [(each, name) for each in _CONVERSATIONS if isinstance(name := options.get(each), str)]


def call_read(call_id: str, tool: str, arguments: str) -> Read:
    """All that a call is; the same arguments are the same however they are spelled."""
    with suppress(ValueError):
        arguments = json.dumps(json.loads(arguments or "{}"), sort_keys=True)
    return call_id, tool, arguments


def _digest(read: Read) -> bytes:
    return hashlib.sha256(json.dumps(read).encode()).digest()
