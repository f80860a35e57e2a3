"""What the writer asks of those beside it, and how answers go back to those who wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from api import loops
from api.database import audit_chain
from api.database.errors import DatabaseUnavailable
from api.database.inline_commit import Entry
from api.database.lanes.session import Statement
from api.database.transaction import Transaction
from api.loops import call_on

log = logging.getLogger("governance")


class Overloaded(DatabaseUnavailable):
    """Too much waits for the disk already; nothing was changed."""


class Follower(Protocol):
    """Follows what other processes commit (`api/updates/feed.py`), and must know what is ours."""

    def about_to_commit(self, spans: audit_chain.Spans) -> None: ...

    def rolled_back(self, spans: audit_chain.Spans) -> None: ...


class Ingest(Protocol):
    """Decides and records many events at once (`api/ingestion/pipeline.py`)."""

    def prepare(self, events: Sequence[Any]) -> None:
        """What can be done outside the lock."""

    def apply(self, transaction: Transaction, events: Sequence[Any], *, repeatable: bool) -> list[Any]:
        """Inside the lock: one result per event, an answer or an exception. A repeatable transaction may
        raise `NotRepeatable`."""

    def look_ups(self, events: Sequence[Any]) -> list[Statement]:
        """What PostgreSQL is asked about them, together with the lock."""

    def is_usual(self, event: Any) -> bool:
        """Whether it may be decided by what is in memory."""

    def ends_run(self, event: Any) -> bool:
        """Whether its run ends with it."""

    def limited(self, events: Sequence[Any]) -> list[bool]:
        """Prepare them; of each, whether a rate limit matches it."""

    def forget(self) -> None:
        """The runs and calls in memory: the database that they are from may be gone."""

    def catch_up(self) -> None:
        """Bring what is in memory to what the database says, outside of a transaction."""

    def versions(self) -> dict[str, int]:
        """Of what is in memory: those of `lanes/guards.py` that it decides by."""


def stopping() -> DatabaseUnavailable:
    return DatabaseUnavailable("the service is stopping; try again shortly")


@dataclass(frozen=True, slots=True)
class Failure:
    error: Exception


def settle(future: Future[Any] | asyncio.Future[Any], result: Any) -> None:
    loops.settle(future, result.error if isinstance(result, Failure) else result)


def settle_all(settled: list[tuple[Callable[[Any], None], Any]]) -> None:
    for tell, result in settled:
        try:
            tell(result)
        except Exception:
            log.exception("an answer could not be given")


def deliver(batch: Iterable[Entry], results: Iterable[Any]) -> None:
    """Tell each its result: on its loop, or here where it has none."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[Callable[[Any], None], Any]]] = {}
    for entry, result in zip(batch, results, strict=True):
        if entry.loop is None:
            entry.settle(result)
        else:
            loops.setdefault(entry.loop, []).append((entry.settle, result))
    for loop, settled in loops.items():
        call_on(loop, settle_all, settled)
