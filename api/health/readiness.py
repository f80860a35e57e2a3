"""Whether the service can do what it promises - decide, and record - by what its commits have met.

A probe tries it once a second, unless events were recorded just now. A commit of an event counts for more
than the probe's, which is small and touches little: what an event has met is believed until an event is
recorded again, or - for what may pass by itself, such as a full disk - until the probe has gone well for some
seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from math import inf
from time import monotonic
from typing import Final

from api.database.connection import Database
from api.database.errors import DatabaseDamaged, DatabaseUnavailable
from api.database.writer import Writer
from api.health.schema_steps import newer_step
from api.ingestion.pipeline import Ingestion
from engine.errors import NewerDocuments

log = logging.getLogger("governance")

EVERY_SECONDS: Final = 1.0
FRESH_SECONDS: Final = 1.0
"""So long ago a commit of an event says as much as a probe would."""
HELD_SECONDS: Final = 10.0
"""So long what an event has met outweighs probes that go well."""
STUCK_SECONDS: Final = 3.0
"""A probe that has waited for so long will not do."""
AT_FAULT: Final = "events fail by a fault of the service; its log says which"
MOST_FAULTS: Final = 3
"""Events in a row that failed by a fault of ours: it is not the event's then."""


class Readiness:
    """Told by the writer and the probe, asked by `/health`; every method may be called from any thread."""

    def __init__(self) -> None:
        self._why: str | None = None
        self._until = 0.0
        """Before that no probe clears what an event has met."""
        self._faults = 0
        self._tried = 0.0
        self._waits_since: float | None = None

    def why_not(self) -> str | None:
        """Why nothing can be recorded, in words for anybody; None when it can."""
        since = self._waits_since
        if since is not None and (waited := monotonic() - since) > STUCK_SECONDS:
            return f"nothing could be recorded for {waited:.0f} seconds"
        return self._why

    @property
    def is_fresh(self) -> bool:
        """An event was recorded, or could not be, just now."""
        return monotonic() - self._tried < FRESH_SECONDS

    def event_ended(self, error: Exception | None) -> None:
        """A commit of events went well, or failed for all of them."""
        self._tried = monotonic()
        if error is None:
            if self._why is not None or self._faults:
                self._well()
        elif isinstance(error, DatabaseUnavailable):
            lasts = isinstance(error, DatabaseDamaged)
            self._ill(error, self._tried + (inf if lasts else HELD_SECONDS))
        else:
            self._faults += 1
            if self._faults >= MOST_FAULTS:
                self._ill(error, inf)

    @contextlib.contextmanager
    def probing(self) -> Iterator[None]:
        """Around a probe, which raises what it has met; nothing passes on."""
        self._waits_since = monotonic()
        try:
            yield
        except Exception as error:
            self._ill(error, self._until)
        else:
            if self._why is not None and monotonic() >= self._until:
                self._well()
        finally:
            self._waits_since = None

    @property
    def is_at_fault(self) -> bool:
        """Whether events fail and nobody knows why."""
        return self._why == AT_FAULT

    def is_behind(self, step: str) -> None:
        """What passes for a fault is that a newer version has taken the database along."""
        self._why = (
            f"a newer version of the service has taken the database along (`{step}`), and this node cannot"
            " record in it; upgrade this node"
        )
        log.error("events cannot be recorded: %s", self._why)

    def _well(self) -> None:
        if self._why is not None:
            log.warning("events can be recorded again")
        self._why, self._until, self._faults = None, 0.0, 0

    def _ill(self, error: BaseException, until: float) -> None:
        foreseen = isinstance(error, DatabaseUnavailable)
        why = str(error) if foreseen else AT_FAULT
        if isinstance(error, NewerDocuments):
            why = "the policies in force are those of a newer version of the service; upgrade this node"
        if isinstance(error, DatabaseDamaged):
            why = "the database is damaged"
        if why != self._why:
            told = error.operator_message if isinstance(error, DatabaseUnavailable) else ""
            log.error("events cannot be recorded: %s", told or why, exc_info=None if foreseen else error)
        self._why, self._until = why, until


async def probe(readiness: Readiness, writer: Writer, ingestion: Ingestion) -> None:
    """One try. Never raises."""
    with readiness.probing():
        await writer.write(ingestion.rehearse)


async def keep_probing(readiness: Readiness, writer: Writer, ingestion: Ingestion, store: Database) -> None:
    """For ever."""
    while True:
        await asyncio.sleep(EVERY_SECONDS)
        if not readiness.is_fresh:
            await probe(readiness, writer, ingestion)
        if readiness.is_at_fault:
            with contextlib.suppress(DatabaseUnavailable):
                if (step := await store.read_first(newer_step, store)) is not None:
                    readiness.is_behind(step)
