"""What the log says while work on the database cannot be done: when that begins, when it is over, and at most
once a minute in between."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final

from api.database.errors import DatabaseUnavailable

log = logging.getLogger("governance")

AGAIN_SECONDS: Final = 60.0


class Outage:
    """Of one task, which `what` names; the database's faults are told in the operator's words. It is over
    once the work was done and has not failed for `settles` seconds: of several connections one may go on."""

    def __init__(self, what: str, settles: float = 0.0) -> None:
        self._what = what
        self._settles = settles
        self._met = 0.0
        """When the work failed last."""
        self._told: float | None = None
        """When the log was last told; None while all is well."""

    def met(self, error: Exception) -> None:
        """The work failed, and will be tried again."""
        now = self._met = monotonic()
        if self._told is not None and now - self._told < AGAIN_SECONDS:
            return
        waits = "waits" if self._told is None else "still waits"
        self._told = now
        if isinstance(error, DatabaseUnavailable):
            log.warning("%s %s: %s", self._what, waits, error.operator_message or error)
        else:
            log.error("%s %s and is tried again", self._what, waits, exc_info=error)

    def over(self) -> None:
        """The work was done."""
        if self._told is not None and monotonic() - self._met >= self._settles:
            self._told = None
            log.warning("%s goes on", self._what)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Around the work; what it raises passes on."""
        try:
            yield
        except DatabaseUnavailable as error:
            self.met(error)
            raise
        self.over()
