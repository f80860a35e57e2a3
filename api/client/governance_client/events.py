"""Events as they are sent: one JSON text each, made once, so that every retry sends the same bytes."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_text: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True, eq=False)
class ClientEvent:
    """One event of a run. `line` is the run with those that started it, or that it goes on from, before it:
    what they report must be known before this. `plainer` makes what is sent instead, should the service be
    unable to read it, under the same id: it is recorded once, whoever tells it how often."""

    event_id: str
    event_type: str
    line: tuple[str, ...]
    content: bytes
    plainer: Callable[[], ClientEvent] | None = None
    at: str = ""
    """When it happened, where that is asked for: of what was kept in several files."""

    @property
    def run_id(self) -> str:
        return self.line[-1]


def new_id() -> str:
    return str(uuid.uuid4())


def now() -> str:
    """The time, ISO 8601 in UTC with microseconds."""
    seconds = time.time()
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{int(seconds % 1 * 1e6):06d}Z"


def event(
    event_type: str,
    line: tuple[str, ...],
    agent_id: str,
    metadata: Mapping[str, Any],
    written: Mapping[str, str] | None = None,
    plainer: Callable[[], ClientEvent] | None = None,
    event_id: str | None = None,
) -> ClientEvent:
    """A new event of now. What is None in the metadata is left out; `written` is JSON text already. Raises
    ValueError for what has no form in JSON."""
    event_id = event_id or new_id()
    parts = [f"{_text(name)}:{_text(value)}" for name, value in metadata.items() if value is not None]
    parts += [f"{_text(name)}:{text}" for name, text in (written or {}).items()]
    about = {
        "eventId": event_id,
        "runId": line[-1],
        "agentId": agent_id,
        "timestamp": now(),
        "eventType": event_type,
    }
    content = f'{_text(about)[:-1]},"metadata":{{{",".join(parts)}}}}}'
    return ClientEvent(event_id, event_type, line, content.encode(), plainer)


def batch(events: Sequence[ClientEvent]) -> bytes:
    """The body of `POST /v1/events/batch`."""
    return b'{"events":[' + b",".join(each.content for each in events) + b"]}"
