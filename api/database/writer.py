"""The writer of a process: drains what is queued into one transaction (group commit).

Whoever changes the database hands in a job - a function of the open `Transaction` - and waits for its result,
which arrives only after the commit. While one commit waits for the disk, the next jobs queue up and share the
next commit; there is no fixed window, so an idle service answers at once and a busy one pays one fsync for
many. Events are jobs too, but are handed over together, so that their rows go in by `executemany`.

The writer is a thread, since a job may take long, and other processes, the network or the disk may keep it
waiting. Events that need none of that are committed on the event loop: on SQLite by `inline_commit.py`, on
PostgreSQL, where several connections write side by side, by `lanes/dispatch.py`.

INVARIANT: a result is delivered only after its transaction is committed, and a failed commit fails every job
in it; nothing is ever half done. A job that raises is undone alone, by its savepoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

import peewee

from api import metrics
from api.clock import Clock, Ids
from api.database import audit_chain
from api.database.connection import Database
from api.database.errors import Conflict, DatabaseUnavailable
from api.database.fair_share import FairShare
from api.database.hand_over import (
    Failure,
    Follower,
    Ingest,
    Overloaded,
    deliver,
    settle,
    settle_all,
    stopping,
)
from api.database.inline_commit import Arrivals, Entry
from api.database.lanes.dispatch import Assembled, Lanes
from api.database.lanes.guards import Assumed
from api.database.lanes.lease import LANE, Lane, lease, release
from api.database.lanes.loop_lane import LoopLane
from api.database.transaction import COUNTERS, Job, NotRepeatable, Outbox, Transaction
from api.telemetry.correlation import kept

log = logging.getLogger("governance")
T = TypeVar("T")
MOST_IN_ONE_COMMIT = 512
MOST_BYTES_IN_ONE_COMMIT = 32 * 2**20
MOST_TRIES = 5
"""Of a transaction that others stand in the way of; then each of its jobs and events is tried alone."""
MOST_WAITING = 10_000
MOST_BYTES_WAITING = 256 * 2**20
"""Beyond either, a newcomer is refused for now: a disk that cannot keep up must not fill the memory."""


class Writer:
    """See the module. `start` makes the thread; `close` finishes what is queued and stops it."""

    def __init__(
        self,
        store: Database,
        clock: Clock,
        ids: Ids,
        *,
        ingest: Ingest | None = None,
        outbox: Outbox | None = None,
        publish: Callable[[Transaction], None] | None = None,
        lanes: int = 0,
    ) -> None:
        """`lanes`: how many the event loop writes by, on PostgreSQL."""
        self.store = store
        self.clock = clock
        self.ids = ids
        self.ingest = ingest
        self.outbox = outbox
        self.publish = publish
        self.follower: Follower | None = None
        self.on_events: Callable[[Exception | None], None] = lambda error: None
        """Told of every commit of events: None, or what it failed by. Must not raise."""
        self.on_bump: dict[str, Callable[[], None]] = {}
        """Counter -> what to refresh on the writer thread once we moved it, before anybody is answered."""
        self.writing = threading.Lock()
        """Held by whoever writes: the thread, or the event loop."""
        self.arrivals: Arrivals | Lanes = Arrivals(self) if store.is_sqlite else Lanes(self, lanes)
        self.shares = FairShare(self.arrivals)
        self._name = f"{secrets.token_hex(8)}:"
        """Of this process among the owners of lanes."""
        self._lane: Lane | None = None  # of the thread
        self._queue: queue.SimpleQueue[Entry | None] = queue.SimpleQueue()
        self._bytes_waiting = self._handed_over = 0
        self._counting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
            self._thread.start()

    def close(self) -> None:
        if self._thread is not None:
            self.arrivals.close()
            self._closed = True
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    @property
    def waiting(self) -> int:
        """How many jobs and events wait to be written."""
        return self._queue.qsize() + len(self.shares)

    def _put(self, entry: Entry) -> None:
        self._refuse_if_full()
        self._queue_up(entry)

    def _refuse_if_full(self) -> None:
        if self._closed:
            raise stopping()
        if self.waiting >= MOST_WAITING or self._bytes_waiting + self.shares.size > MOST_BYTES_WAITING:
            raise Overloaded("too many requests wait for the disk; try again shortly")

    def _queue_up(self, entry: Entry) -> None:
        self._weigh(entry.size, 1)
        self._queue.put(entry)

    def _weigh(self, size: int, count: int) -> None:
        with self._counting:
            self._bytes_waiting += size
            self._handed_over += count

    async def write(self, job: Callable[[Transaction], T]) -> T:
        """Run a job in the next transaction; returns its result once committed."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._put(Entry(kept(job), None, loop, partial(settle, future)))
        return await future

    def write_here(self, job: Callable[[Transaction], T]) -> T:
        """The same from a thread that is not an event loop's (command line, watchers)."""
        if self._thread is threading.current_thread():
            raise RuntimeError("a job must not wait for another job")
        future: Future[T] = Future()
        self._put(Entry(kept(job), None, None, partial(settle, future)))
        return future.result()

    def ingested(self, event: Any, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Any]:
        """Hand over one event; the future holds its answer once committed."""
        future: asyncio.Future[Any] = loop.create_future()
        self.ingest_then(event, loop, partial(settle, future))
        return future

    def ingest_then(self, event: Any, loop: asyncio.AbstractEventLoop, settle: Callable[[Any], None]) -> None:
        """Hand over one event; `settle` gets its answer, or an exception, on the loop once committed."""
        if self._closed or self._handed_over or self.shares.size > 50 * MOST_WAITING:
            self._refuse_if_full()  # an event has more than 50 bytes, so else there are few
        self.shares.add(Entry(None, event, loop, settle, len(event.raw)), loop)

    # For `inline_commit.py` and `lanes/dispatch.py` ---------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether the thread has nothing to write, nor is about to."""
        return self._handed_over == 0 and not self._closed

    def take(self, entries: Iterable[Entry]) -> None:
        """Events that the loop has not written."""
        if self._closed:
            settle_all([(entry.settle, stopping()) for entry in entries])
            return
        for entry in entries:
            self._queue_up(entry)

    def lane_owner(self) -> str:
        """The name of another lane of this process."""
        return f"{self._name}{secrets.token_hex(4)}"

    def assemble(self, batch: Sequence[Entry], lane: LoopLane) -> Assembled:
        """Decide events by what is in memory, and gather what is to be written; see `dispatch.py`."""
        assert self.ingest is not None and self.outbox is not None
        begun = perf_counter()
        events = [entry.event for entry in batch]
        numbers = 2 * len(events)
        # INVARIANT: they are read before anything is decided by what they stand for.
        assumed = Assumed(self.ingest.versions() | {"webhooks": self.outbox.version})
        with self.store.collecting() as statements:
            counters = list(assumed.counters.items())
            fixed = (self.store, self.clock(), self.ids, self.outbox, lane.lane)
            transaction = Transaction(*fixed, numbers, counters, assumed)
            results = self.ingest.apply(transaction, events, repeatable=True)
            transaction.flush()
        if self.follower is not None:
            self.follower.about_to_commit(transaction.audited)
        return Assembled([*assumed.guarded(lane.lane, numbers), *statements], results, transaction, begun)

    def assembled_ended(self, batch: Sequence[Entry], assembled: Assembled, *, committed: bool) -> None:
        transaction = assembled.transaction
        if not committed:
            if self.follower is not None:
                self.follower.rolled_back(transaction.audited)
            return
        self._committed(transaction)
        self.on_events(None)
        settle_all([(e.settle, result) for e, result in zip(batch, assembled.results, strict=True)])
        self._report(batch, transaction, assembled.begun)

    def commit_at_once(self, batch: list[Entry]) -> bool:
        """Commit events on this thread, without waiting for other processes; False: nothing was done.
        INVARIANT: it succeeds or leaves no trace; who sent an event is told by the thread, which tries again.
        """
        begun = perf_counter()
        try:
            results, transaction = self._transact(batch, repeatable=True, wait=False)
        except (NotRepeatable, DatabaseUnavailable):
            return False
        except Exception:
            log.exception("events could not be written together; they are tried again")
            return False
        settle_all([(entry.settle, result) for entry, result in zip(batch, results, strict=True)])
        self._report(batch, transaction, begun)
        return True

    # The thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            entry = self._queue.get()
            if entry is None:
                break
            batch = [entry]
            size, stop = entry.size, False
            with contextlib.suppress(queue.Empty):
                while len(batch) < MOST_IN_ONE_COMMIT and size < MOST_BYTES_IN_ONE_COMMIT:
                    following = self._queue.get_nowait()
                    if following is None:
                        stop = True
                        break
                    batch.append(following)
                    size += following.size
            with self.writing:
                for part in self._parts(batch):
                    self._commit(part)
                self._weigh(0, -len(batch))
            self.arrivals.wake()
            if stop:
                break
        # What came behind the end mark would wait for ever.
        with contextlib.suppress(queue.Empty):
            while True:
                if (late := self._queue.get_nowait()) is not None:
                    self._deliver([late], [stopping()])
        with contextlib.suppress(Exception):
            if not self.store.is_sqlite:
                release(self.store.rows_changed, self._name)
            self.store.leave()

    def _parts(self, batch: list[Entry]) -> list[list[Entry]]:
        """What goes into one transaction. On PostgreSQL events and jobs wait for different locks."""
        if self.store.is_sqlite:
            return [batch]
        events = [entry for entry in batch if entry.job is None]
        jobs = [entry for entry in batch if entry.job is not None]
        return [part for part in (events, jobs) if part]

    def _commit(self, batch: list[Entry]) -> None:
        begun = perf_counter()
        transaction = None
        try:
            results, transaction = self._settled(batch)
        except DatabaseUnavailable as error:
            metrics.commit_failed()
            results = [error] * len(batch)
            self._events_failed(batch, error)
        except Exception as error:
            if len(batch) > 1:
                # One job broke the transaction that all shared: run each in one of its own, so that a bad
                # one fails alone.
                for entry in batch:
                    self._commit([entry])
                return
            results = [error]
            self._events_failed(batch, error)
        self._deliver(batch, results)
        if transaction is not None:
            self._report(batch, transaction, begun)

    def _settled(self, batch: list[Entry]) -> tuple[list[Any], Transaction]:
        """One transaction, made again when another one was in its way."""
        repeatable = all(entry.job is None for entry in batch)
        for _ in range(MOST_TRIES):
            try:
                return self._transact(batch, repeatable=repeatable)
            except NotRepeatable:
                if self.store.is_sqlite or self.ingest is None:
                    repeatable = False
                else:
                    self.ingest.catch_up()  # it may take long, and a lock that others want is not held for it
            except Conflict:
                pass
            except peewee.IntegrityError:
                if self.store.is_sqlite or batch[0].job is not None:
                    raise
        return self._transact(batch, repeatable=False)

    def _report(self, batch: Sequence[Entry], transaction: Transaction, begun: float) -> None:
        """Report to those who only watch. INVARIANT: nothing in here undoes or repeats a commit."""
        try:
            metrics.committed(len(batch), perf_counter() - begun)
            if self.publish is not None:
                self.publish(transaction)
        except Exception:
            log.exception("what was committed could not be reported to those who watch")

    def _events_failed(self, batch: Sequence[Entry], error: Exception) -> None:
        if any(entry.job is None for entry in batch):
            self.on_events(error)

    def _transact(
        self, batch: list[Entry], *, repeatable: bool, wait: bool = True
    ) -> tuple[list[Any], Transaction]:
        events = [entry.event for entry in batch if entry.job is None]
        if events and self.ingest is not None:
            self.ingest.prepare(events)
        audited: audit_chain.Spans = {}
        lane, numbers, first = None, 2 * len(events), []
        if not self.store.is_sqlite:
            lane = self._lane = self._lane or self._leased()
            first = [lane.advance(numbers), COUNTERS]
            if events and self.ingest is not None:
                first += self.ingest.look_ups(events)
        try:
            size = sum(entry.size for entry in batch)
            with self.store.transaction(wait=wait, size=size, first=first, shared=bool(events)) as begun:
                counters = begun[1] if begun else None
                fixed = (self.store, self.clock(), self.ids, self.outbox, lane)
                transaction = Transaction(*fixed, numbers, counters)
                transaction.looked_up = begun[2:]
                # INVARIANT: events come first: caches never learn what a job of the same transaction changed.
                answered: Iterator[Any] = iter(())
                if events:
                    assert self.ingest is not None
                    answered = iter(self.ingest.apply(transaction, events, repeatable=repeatable))
                results = [
                    next(answered) if entry.job is None else self._job(transaction, entry.job)
                    for entry in batch
                ]
                transaction.flush()
                if self.follower is not None:
                    audited = transaction.audited
                    self.follower.about_to_commit(audited)
        except BaseException as error:
            if self.follower is not None and audited:
                self.follower.rolled_back(audited)
            if not (isinstance(error, Conflict) and error.state != LANE):
                self._lane = None  # what has become of it shows when it is leased again
            raise
        self._committed(transaction)
        if events:
            self.on_events(None)
        return results, transaction

    def _leased(self) -> Lane:
        with self.store.guarded(), self.store.peewee.atomic():
            return lease(self.store.rows, self._name)

    def _committed(self, transaction: Transaction) -> None:
        """What follows a commit. INVARIANT: no failure in here makes the commit look failed."""
        steps = [transaction.committed, *(self.on_bump[n] for n in transaction.bumped & self.on_bump.keys())]
        for step in steps:
            try:
                step()
            except Exception:
                log.exception("a step after a commit failed; the commit stands")

    def _job(self, transaction: Transaction, job: Job) -> Any:
        self.store.send()  # what failed of it is not the job's fault
        mark = transaction.mark()
        try:
            with self.store.peewee.savepoint():
                return job(transaction)
        except Exception as error:
            if self.store.is_outage(error):
                raise
            transaction.undo(mark)
            return Failure(error)

    def _deliver(self, batch: list[Entry], results: list[Any]) -> None:
        self._weigh(-sum(entry.size for entry in batch), 0)
        deliver(batch, results)
