"""A circuit breaker for PostgreSQL: nobody waits twice for a network that takes bytes and brings none.

Whoever has waited in silence for `SUSPECT_SECONDS` has the breaker ask the database by a connection of its
own. Only when that meets silence too is the breaker open: all that waits fails then, and what comes fails at
once, until the database says anything again. A database that is slow, full of locks or refuses connections
opens it never.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic
from typing import Final

from psycopg import Error, OperationalError
from psycopg.errors import ConnectionTimeout

log = logging.getLogger("governance")

SUSPECT_SECONDS: Final = 3.0
PROBE_SECONDS: Final = 3
"""Within which a probe must connect, and be answered."""
PAUSE_SECONDS: Final = 0.5
"""Between two probes while it is open."""
SLOW_SECONDS: Final = 1.0
"""Which no server takes to close a connection without a word."""
_CLOSED: Final = "server closed the connection unexpectedly"
"""What libpq says, after some seconds, of a host that its network does not find any more."""


class Silence(OperationalError):
    """Nothing was heard of the server for too long."""

    def __init__(self) -> None:
        super().__init__("the database does not answer in time")


def is_silence(error: Exception, seconds: float) -> bool:
    """Whether nothing was heard of a server for so long, until `error`."""
    if isinstance(error, (Silence, ConnectionTimeout)):
        return True
    return isinstance(error, OperationalError) and seconds >= SLOW_SECONDS and _CLOSED in str(error)


class CircuitBreaker:
    """One per `Postgres`; for any thread. `probe` asks the database something and raises what comes of it."""

    def __init__(self, probe: Callable[[], None]) -> None:
        self._probe = probe
        self._lock = threading.Lock()
        self._probing = False
        self._probed = float("-inf")
        """When the last probe ended."""
        self.is_open = False
        self.on_open: Callable[[], None] = lambda: None
        """Told on a thread of the breaker's; must not raise."""

    def check(self) -> None:
        """Raises `Silence` while it is open."""
        if self.is_open:
            raise Silence

    def suspect(self) -> None:
        """Somebody has waited for long: look, unless that was done just now."""
        with self._lock:
            if self._probing or monotonic() - self._probed < SUSPECT_SECONDS:
                return
            self._probing = True
        threading.Thread(target=self._look, name="database-probe", daemon=True).start()

    def _look(self) -> None:
        pause = threading.Event()
        while self._is_silent():
            if not self.is_open:
                log.warning("the database is silent; requests are refused until it answers")
                self.is_open = True
                self.on_open()
            pause.wait(PAUSE_SECONDS)
        if self.is_open:
            log.warning("the database answers again")
        with self._lock:
            self.is_open, self._probing, self._probed = False, False, monotonic()

    def _is_silent(self) -> bool:
        begun = monotonic()
        try:
            self._probe()
        except (Error, OSError) as error:
            return is_silence(error, monotonic() - begun)  # else whoever tries is told so at once
        return False
