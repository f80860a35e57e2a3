"""Records that this process has committed lately, at hand for the detectors, so that they need not be read.

Nothing depends on it: what is not at hand is in the log.

INVARIANT: only what is committed is put here, and never another record under the same position.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from typing import Final

from api.database.audit_chain import ChainName, Record

MOST: Final = 20_000
"""Records; of more the oldest go."""


class Recent:
    """`add` may be called from any thread, all else by the one that reads."""

    def __init__(self) -> None:
        self._arrived: deque[list[Record]] = deque()
        self._count = 0
        self._lock = threading.Lock()
        self._chains: defaultdict[ChainName, deque[Record]] = defaultdict(deque)

    def add(self, records: list[Record]) -> None:
        """A transaction is committed."""
        if records:
            with self._lock:
                self._arrived.append(records)
                self._count += len(records)
                while self._count > MOST:
                    self._count -= len(self._arrived.popleft())

    def clear(self) -> None:
        with self._lock:
            self._arrived.clear()
            self._count = 0
        self._chains.clear()

    def take_in(self) -> None:
        """Put what has arrived where it is looked for."""
        with self._lock:
            arrived, self._arrived, self._count = self._arrived, deque(), 0
        if sum(map(len, self._chains.values())) > MOST:
            self._chains.clear()  # the reader is far behind them, and finds them in the log
        for records in arrived:
            for record in records:
                self._chains[record.organisationId, record.chain].append(record)

    def take(self, chain: ChainName, first: int, last: int) -> list[Record]:
        """Those from `first` on, without a gap, at most up to `last`; they are not kept any longer."""
        waiting = self._chains[chain]
        found: list[Record] = []
        while waiting and waiting[0].sequence < first:
            waiting.popleft()
        if (
            waiting
            and waiting[0].sequence == first
            and waiting[-1].sequence == first + len(waiting) - 1 <= last
        ):
            found.extend(waiting)  # the usual case: in the order of their commits, without a gap
            waiting.clear()
        while waiting and waiting[0].sequence == first + len(found) <= last:
            found.append(waiting.popleft())
        return found
