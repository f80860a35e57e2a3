"""How much one API key may send and take: events in a minute, bytes to be kept in a day, processor time; and
how many of its calls may wait for people.

The last is counted in the database. Each of the others is a bucket that empties steadily, so a key that was
quiet may send a whole minute's events at once. It is counted in each process for itself, since it guards the
process; limits of policies are exact instead.

While its time is spent, a key's requests are checked, evaluated and read beside the event loop, where the
keys take turns (`turns.py`): what it sends then costs the others next to nothing, however it is spelt. Time
is that of the processor, never that of the clock, so that a busy machine makes no key dear.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from time import monotonic, thread_time
from typing import Final, TypeVar

from api.clock import DAY
from api.ingestion.known.counts import CallCounts

T = TypeVar("T")

MINUTE: Final = 60.0

ORDINARY: Final = 0.000_25
"""Seconds that one check, evaluation or read may take without being counted, or more where the policies take
longer (`evaluation.OrdinaryCall`); how many of them there are is bounded by the quota of events."""
MOST_AT_ONCE: Final = 0.25
"""Seconds that a key may take at once."""
PER_SECOND: Final = 0.1
"""Seconds of each second that it may take in the long run."""
LONGEST_DEBT: Final = 30.0
"""Seconds after which a key that sends nothing more is like any other."""
LATELY: Final = 30.0
"""Seconds after which what a key has taken counts for a third in whose turn it is."""
MOST_OF_A_COMMIT: Final = 0.02
"""Seconds that the dear ones of its events may take, of one key or of many; those beyond are put off, and
those of keys that have taken least lately come first. All others wait as long, several times over where other
threads work beside it."""
FULL_SECONDS: Final = 1.0
"""So long nobody looks again whether a key that keeps too many approvals waiting has fewer."""

_NOTHING: Final = 0.0, 0.0


class OverQuota(Exception):
    """A key has sent too much for now; `retry_after` are the seconds to wait."""

    code = "rate_limited"

    def __init__(self, detail: str, seconds: float) -> None:
        self.retry_after = max(1, math.ceil(seconds))
        super().__init__(f"{detail}; try again in {self.retry_after} seconds")


class Quotas:
    """One per process; 0 means that there is no limit."""

    def __init__(
        self, events_per_minute: int, bytes_per_day: int, clock: Callable[[], float] = monotonic
    ) -> None:
        self._of_an_event = MINUTE / events_per_minute if events_per_minute else 0.0
        self._of_a_byte = DAY / bytes_per_day if bytes_per_day else 0.0
        self._clock = clock
        self._full: dict[str, tuple[float, float]] = {}
        """Key to when its buckets will be empty."""
        self._seen: dict[str, tuple[float, float]] = {}
        """What they were when `used` was last asked."""

    def used(self) -> list[str]:
        """The keys that were used since this was last asked."""
        now = dict(self._full)
        used = [key_id for key_id, full in now.items() if self._seen.get(key_id) != full]
        self._seen = now
        return used

    def take(self, key_id: str, size: int) -> None:
        """One event of so many bytes. Raises OverQuota, and then takes nothing."""
        now = self._clock()
        events, kept = self._full.get(key_id, (now, now))
        events = (events if events > now else now) + self._of_an_event
        kept = (kept if kept > now else now) + size * self._of_a_byte
        if events - now > MINUTE:
            raise OverQuota(
                "this API key has sent as many events as it may in a minute", events - now - MINUTE
            )
        if kept - now > DAY:
            raise OverQuota("this API key has sent as many bytes as it may in a day", kept - now - DAY)
        self._full[key_id] = (events, kept)

    def keeps(self, key_id: str, size: int) -> None:
        """So many bytes are kept of a key beside what it has sent; on any thread."""
        now = self._clock()
        events, kept = self._full.get(key_id, (now, now))
        self._full[key_id] = events, (kept if kept > now else now) + size * self._of_a_byte


class PendingQuota:
    """One per process, used by whoever commits; 0 means that there is no limit. Nodes that commit at the very
    same moment may go beyond it by what they commit."""

    def __init__(self, most: int, clock: Callable[[], float] = monotonic) -> None:
        self.most = most
        self._clock = clock
        self._full: dict[str, float] = {}
        """Key to when it is looked at again; a key that asks and asks costs others next to nothing."""

    def is_full(self, key_id: str) -> bool:
        """Whether as many as may were waiting, when it was looked at last."""
        return bool(self._full) and self._full.get(key_id, 0.0) > self._clock()

    def may_hold(self, counts: CallCounts, key_id: str) -> bool:
        """Whether one more call of a key may wait for a person."""
        if not self.most:
            return True
        if self.is_full(key_id):
            return False
        if counts.may_hold(key_id, self.most):
            self._full.pop(key_id, None)
            return True
        if not counts.is_assumed:
            self._full[key_id] = self._clock() + FULL_SECONDS
        return False


class ProcessorTime:
    """What each key has taken lately, beyond what belongs to every event. One per process, for any thread."""

    def __init__(self) -> None:
        self._even: dict[str, float] = {}
        """Key to the time at which its bucket will be empty."""
        self._taken: dict[str, float] = {}
        """Key to the seconds that it has taken, ever."""
        self._lately: dict[str, tuple[float, float]] = {}
        """Key to what `lately` said when it took something last, and when that was."""
        self._ordinary: dict[str, float] = {}
        """Key to what belongs to each of its events."""
        self._guard = threading.Lock()

    def expect(self, key_id: str, seconds: float) -> None:
        """What one check, evaluation or read of a key may take without being counted, where its policies take
        long; see `evaluation.OrdinaryCall`."""
        if seconds != self._ordinary.get(key_id, ORDINARY):
            self._ordinary[key_id] = seconds

    def took(self, key_id: str, seconds: float) -> None:
        """Something that was done for a key took so long."""
        if seconds > self._ordinary.get(key_id, ORDINARY):
            now = time.monotonic()
            with self._guard:
                even = max(self._even.get(key_id, now), now) + seconds / PER_SECOND
                self._even[key_id] = min(even, now + LONGEST_DEBT)
                self._taken[key_id] = self._taken.get(key_id, 0.0) + seconds
                self._lately[key_id] = self.lately(key_id) + seconds, now

    def is_spent(self, key_id: str) -> bool:
        """Whether the key has taken more than it may."""
        even = self._even.get(key_id)
        return even is not None and even - time.monotonic() > MOST_AT_ONCE / PER_SECOND

    def lately(self, key_id: str) -> float:
        """Seconds that the key has taken, those of before counting less and less. Many keys that each take no
        more than they may can want more together than there is, so it is by this that they take turns."""
        seconds, at = self._lately.get(key_id, _NOTHING)
        return seconds and seconds * math.exp((at - time.monotonic()) / LATELY)

    def taken(self, key_id: str) -> float:
        """Seconds that the key has taken so far, wherever."""
        return self._taken.get(key_id, 0.0)

    def timed(self, key_id: str, work: Callable[[], T]) -> T:
        """The result of some work of this thread, which is counted, also when it fails."""
        begun = thread_time()
        try:
            return work()
        finally:
            self.took(key_id, thread_time() - begun)
