"""How many calls count in rate limits and how many wait for people, with those of a batch itself."""

from __future__ import annotations

from api.clock import Leaps
from api.database.connection import Database
from api.database.lanes.guards import lock_buckets
from api.database.transaction import Transaction
from api.ingestion.rows import RateHitRow
from api.store import recorded_calls
from engine.matching.rate_limit import is_over, window_start
from engine.model import RateLimit

_TOGETHER = 256  # times of calls that are read at once: to find one goes through all that are newer


class CallCounts:
    """Of one batch. A rate limit counts in a bucket; what waits for people is counted by key.

    Where a batch assumes what is in the database, only its own calls are counted, and how many may be there
    already is noted in what it assumed."""

    def __init__(self, store: Database, transaction: Transaction, leaps: Leaps | None) -> None:
        self._store, self._transaction, self._leaps = store, transaction, leaps
        self._counted: dict[str, int] = {}
        """Bucket to the calls that count in its window now, or as many as fit."""
        self._own: dict[str, int] = {}
        """The same of this batch alone."""
        self._times: dict[str, tuple[int, list[float]]] = {}
        """Bucket to times of calls that count in it, newest first, and how many are newer than those."""
        self._pending: dict[str, int] = {}
        """API key to its approvals that wait."""
        self.rows: list[RateHitRow] = []
        """To be written."""

    @property
    def is_assumed(self) -> bool:
        """Whether what is in the database was assumed, and not looked at."""
        return self._transaction.assumed is not None

    def is_over(self, bucket: str, limit: RateLimit) -> bool:
        """Whether a call lies beyond a rate limit."""
        since = window_start(limit, self._transaction.now) - self._ahead(limit)
        counted = self._counted.get(bucket)
        if counted is None:
            counted = self._counted[bucket] = self._count(bucket, since, limit.limit)
        over = is_over(limit, counted)
        if not over and self._transaction.assumed is not None:
            self._transaction.assumed.limits[bucket] = (since, limit.limit - 1 - counted)
        return over

    def hit(self, bucket: str, limit: RateLimit) -> None:
        """One more call counts in a bucket that `is_over` was asked of."""
        now = self._transaction.now
        self._counted[bucket] += 1
        self._own[bucket] = self._own.get(bucket, 0) + 1
        self.rows.append(RateHitRow(bucket, now, now + limit.window_seconds))

    def free_at(self, bucket: str, limit: RateLimit) -> float:
        """When a call that `is_over` a limit would not be so any more, if no other came before it."""
        now = self._transaction.now
        # When the newest calls but one are so many as fit; those of this batch are the newest of all.
        newer = limit.limit - 1 - self._own.get(bucket, 0)
        if newer >= 0 and not self.is_assumed:
            since = window_start(limit, now) - self._ahead(limit)
            first, times = self._times.get(bucket, (0, []))
            if not first <= newer < first + len(times):
                first = max(0, newer - _TOGETHER)
                times = recorded_calls.newest(self._store, bucket, since, newer + 1 - first, first)
                self._times[bucket] = first, times
            now = min(now, *times[newer - first :][:1])
        return now + limit.window_seconds + self._ahead(limit)

    def may_hold(self, key_id: str, most: int) -> bool:
        """Whether one more call of a key may wait for a person, as it does then."""
        if (held := self._pending.get(key_id)) is None:
            held = self._held(key_id)
        may = held < most
        self._pending[key_id] = held + may
        if may and self._transaction.assumed is not None:
            self._transaction.assumed.pending[key_id] = most - 1 - held
        return may

    def _count(self, bucket: str, since: float, most: int) -> int:
        if self.is_assumed:
            return 0
        if not self._store.is_sqlite:
            # Known before, as a rule, and locked with all others: then this is nothing new.
            self._store.rows(*lock_buckets([bucket]))
        return recorded_calls.counted(self._store, bucket, since, most)

    def _held(self, key_id: str) -> int:
        if self.is_assumed:
            return 0
        rows = self._store.rows(
            "SELECT COUNT(*) FROM approvals WHERE key_id = ? AND status = 'pending'", (key_id,)
        )
        return int(rows[0][0])

    def _ahead(self, limit: RateLimit) -> float:
        """INVARIANT: calls of before a leap of the clock count as long as if it had not leapt."""
        return 0.0 if self._leaps is None else self._leaps.ahead(limit.window_seconds)
