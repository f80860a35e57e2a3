"""Events on PostgreSQL: the event loop writes the usual ones by its lanes, in one way to the server each.

A lane that is free takes all that waits. What it has decided rests on what is in memory, and guards fail the
transaction where that is not so any more; it then goes to the writer's thread, which looks up and locks
first. So does whatever is unusual: the outcome of a call that is not remembered, an event that was reported
before.

INVARIANT: events of one run keep their order: one that is the thread's, or ends the run, waits for those on
the loop's lanes, and no event overtakes those of its run that the thread has, that make or end the run, or
that go to the thread if they turn out to be beyond a limit.
INVARIANT: an event is in one place at a time - here, on a lane, or the thread's - and is decided again only
when nothing of it is committed, or by look-ups that find what is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from time import perf_counter, thread_time
from typing import Any, Final, NamedTuple, Protocol

from psycopg import Error

from api.database.connection import Database
from api.database.errors import Conflict, DatabaseUnavailable, NeedsAnswer
from api.database.hand_over import Ingest
from api.database.inline_commit import Entry, cost_of_event
from api.database.lanes.deadlines import Deadlines
from api.database.lanes.guards import LIMIT
from api.database.lanes.lease import LANE
from api.database.lanes.loop_lane import LoopLane, opened
from api.database.lanes.session import Statement
from api.database.postgres import Postgres
from api.database.transaction import NotRepeatable, Transaction
from api.loops import call_on

log = logging.getLogger("governance")

MOST: Final = 256
"""Events of one transaction."""
MOST_BYTES: Final = 2 * 2**20
MOST_OF_A_KEY: Final = 128
"""That are here, on lanes or the thread's, while other keys are there (`fair_share.py`). With fewer the lanes
have too little each."""
GROUPS: Final = 4
"""That are under way at even distances."""
ENOUGH: Final = 64
"""Events that need not wait for others."""
LIMIT_SECONDS: Final = 1.0
"""For which a limit that was reached is taken to be so."""
AGAIN_SECONDS: Final = 1.0
"""Between two attempts to open lanes."""
CLOSE_SECONDS: Final = 20.0

Place = tuple[str, str]
"""Organisation and run."""


class Assembled(NamedTuple):
    """A transaction to send: what was decided, and what is to be written."""

    statements: list[Statement]
    results: list[Any]
    transaction: Transaction
    begun: float


class LaneThread(Protocol):
    """What the lanes ask of the writer (`writer.py`)."""

    store: Database
    ingest: Ingest | None

    def take(self, entries: Iterable[Entry]) -> None: ...

    def lane_owner(self) -> str: ...

    def assemble(self, batch: Sequence[Entry], lane: LoopLane) -> Assembled: ...

    def assembled_ended(self, batch: Sequence[Entry], assembled: Assembled, *, committed: bool) -> None: ...


class Lanes:
    """One per writer, used on one event loop; `close` is called by another thread."""

    most = MOST
    most_of_a_key = MOST_OF_A_KEY

    def __init__(self, writer: LaneThread, count: int) -> None:
        self._writer = writer
        self._count = count
        self._entries: list[Entry] = []
        self.size = 0
        """Bytes of the events that are here."""
        self.cost = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looks = False
        self._idle: list[LoopLane] = []
        self._open: set[LoopLane] = set()
        """Lanes that are idle or have something under way."""
        self._opening = False
        self._flying: Counter[Place] = Counter()
        """Runs with events on lanes."""
        self._changing: set[Place] = set()
        """Those of them that are new, or end, or may be beyond a limit."""
        self._away: Counter[Place] = Counter()
        """Runs with events on the thread."""
        self._closing: threading.Event | None = None
        self._deadlines = Deadlines()
        self._database = writer.store.peewee
        if isinstance(self._database, Postgres):
            self._database.breaker.on_open = self._on_silence
        self._sent = self._trip = self._limits_until = 0.0
        """When the last group was sent, how long one is under way on average, and until when limits are known
        to be reached."""

    @property
    def _ingest(self) -> Ingest:
        assert self._writer.ingest is not None
        return self._writer.ingest

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Entry, loop: asyncio.AbstractEventLoop) -> None:
        entry.settle = self._deadlines.bounded(entry.settle, loop)
        self._entries.append(entry)
        self.size += entry.size
        self._loop = loop
        self._look_soon()

    def connected(self) -> None:
        """Somebody has connected; a lane waits for nobody."""

    def wake(self) -> None:
        """The thread has written; each of its answers is told for itself."""

    def close(self) -> None:
        """Finish what is under way and close the lanes; what comes later is the thread's."""
        loop = self._loop
        if loop is None or not loop.is_running():
            return
        closing = threading.Event()
        call_on(loop, self._close, closing)
        with contextlib.suppress(RuntimeError):
            if asyncio.get_running_loop() is loop:
                return
        closing.wait(CLOSE_SECONDS)

    def _close(self, closing: threading.Event) -> None:
        self._closing = closing
        self._look()

    # Taking ---------------------------------------------------------------------------------------

    def _look_soon(self) -> None:
        if not self._looks and self._loop is not None:
            self._looks = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._looks = False
        if self._closing is not None or not self._open:
            # With no lane everything is the thread's.
            self._to_thread(self._off(set(range(len(self._entries)))))
        if self._closing is not None:
            self._close_lanes(self._closing)
            return
        if len(self._open) < self._count:
            self._open_lanes()
        while self._idle and self._entries:
            if (pause := self._pause()) > 0:
                self._look_later(pause)
                break
            usual, unusual = self._chosen()
            if unusual:
                self._to_thread(self._off(unusual))
            elif usual:
                begun = thread_time()
                self._take(self._off(usual))
                self.cost = cost_of_event(self.cost, thread_time() - begun, len(usual), MOST_OF_A_KEY)
            else:
                break

    def _pause(self) -> float:
        """Seconds until the next group. Groups under way follow each other at even distances: a large one
        costs little more than a small one, and waits hardly longer."""
        if not self._flying or len(self._entries) >= ENOUGH:
            return 0.0
        return self._sent + self._trip / GROUPS - perf_counter()

    def _look_later(self, pause: float) -> None:
        if not self._looks and self._loop is not None:
            self._looks = True
            self._loop.call_later(pause, self._look)

    def _take(self, batch: list[Entry]) -> None:
        """Calls that a rate limit matches go apart, since its guard may fail them, and with each all that is
        of its run, which keeps its order; while the guard fails them, they are the thread's at once."""
        try:
            limited = self._ingest.limited([entry.event for entry in batch])
        except Exception:
            log.exception("events could not be evaluated together; they are tried again")
            self._to_thread(batch)
            return
        places = {_place(entry) for entry, is_limited in zip(batch, limited, strict=True) if is_limited}
        apart = [entry for entry in batch if _place(entry) in places] if places else []
        rest = [entry for entry in batch if _place(entry) not in places] if places else batch
        if rest:
            self._send(self._idle.pop(), rest, set())
        if apart and (not self._idle or perf_counter() < self._limits_until):
            self._to_thread(apart)
        elif apart:
            self._send(self._idle.pop(), apart, places)

    def _chosen(self) -> tuple[set[int], set[int]]:
        """Which entries a lane may take now, else which ones the thread; in either case the others wait. With
        what is the thread's goes what stands behind it in its run: each for itself would have all that waits
        gone through again."""
        usual: set[int] = set()
        unusual: set[int] = set()
        waiting: set[Place] = set()
        going: set[Place] = set()
        size = 0
        for number, entry in enumerate(self._entries):
            place = _place(entry)
            waits = place in waiting or self._away[place] or place in self._changing
            if place in going:
                unusual.add(number)
            elif waits or (self._flying[place] and self._ingest.ends_run(entry.event)):
                waiting.add(place)
            elif self._ingest.is_usual(entry.event):
                usual.add(number)
                size += entry.size
                if len(usual) == MOST or size > MOST_BYTES:
                    break
            elif self._flying[place] or usual:
                waiting.add(place)
            else:
                going.add(place)
                unusual.add(number)
            if len(unusual) == MOST:
                break
        return (set(), unusual) if unusual else (usual, set())

    def _off(self, numbers: set[int]) -> list[Entry]:
        """Take these off."""
        if len(numbers) == len(self._entries):
            taken, self._entries, self.size = self._entries, [], 0
            return taken
        taken = [entry for number, entry in enumerate(self._entries) if number in numbers]
        self._entries = [entry for number, entry in enumerate(self._entries) if number not in numbers]
        self.size -= sum(entry.size for entry in taken)
        return taken

    # The lanes ------------------------------------------------------------------------------------

    def _send(self, lane: LoopLane, batch: list[Entry], limited: set[Place]) -> None:
        """`limited`: runs that go on at the thread, should a limit fail the group."""
        try:
            assembled = self._writer.assemble(batch, lane)
        except (NeedsAnswer, NotRepeatable):
            self._idle.append(lane)
            self._to_thread(batch)
            return
        except Exception:
            log.exception("events could not be written together; they are tried again")
            self._idle.append(lane)
            self._to_thread(batch)
            return
        self._sent = perf_counter()
        places = [_place(entry) for entry in batch]
        self._flying.update(places)
        assumed = assembled.transaction.assumed
        changing = limited if assumed is None else set(assumed.changed_runs) & set(places) | limited
        self._changing |= changing
        lane.run(assembled.statements, partial(self._ended, lane, batch, assembled, changing))

    def _ended(
        self,
        lane: LoopLane,
        batch: list[Entry],
        assembled: Assembled,
        changing: set[Place],
        error: Exception | None,
    ) -> None:
        self._trip += (perf_counter() - assembled.begun - self._trip) / 8
        self._flying.subtract(_place(entry) for entry in batch)
        self._flying += Counter()  # what has come to nothing goes
        self._changing -= changing
        try:
            self._writer.assembled_ended(batch, assembled, committed=error is None)
        finally:
            if isinstance(error, Conflict) and error.state == LIMIT:
                self._limits_until = perf_counter() + LIMIT_SECONDS
            if lane.closed or (isinstance(error, Conflict) and error.state == LANE):
                lane.close()
                self._gone(lane)
            else:
                self._idle.append(lane)
            if error is not None:
                self._to_thread(batch)
            self._look_soon()

    def _open_lanes(self) -> None:
        if self._opening or self._loop is None:
            return
        self._opening = True
        threading.Thread(
            target=self._open_there,
            args=(self._loop, self._count - len(self._open)),
            name="lanes",
            daemon=True,
        ).start()

    def _open_there(self, loop: asyncio.AbstractEventLoop, count: int) -> None:
        made: list[LoopLane] = []
        try:
            for _ in range(count):
                assert isinstance(self._database, Postgres)
                made.append(opened(self._database, self._writer.lane_owner()))
        except (Error, OSError, DatabaseUnavailable) as error:
            log.debug("a lane could not be opened: %s", error)
        call_on(loop, self._opened, made)

    def _opened(self, lanes: list[LoopLane]) -> None:
        assert self._loop is not None
        for lane in lanes:
            lane.attach(self._loop)
            lane.on_loss = self._lost
            self._idle.append(lane)
        self._open.update(lanes)
        if len(self._open) < self._count:
            self._loop.call_later(AGAIN_SECONDS, self._may_open_again)
        else:
            self._opening = False
        self._look_soon()

    def _may_open_again(self) -> None:
        self._opening = False

    def _lost(self, lane: LoopLane) -> None:
        if lane in self._idle:
            self._idle.remove(lane)
            self._gone(lane)

    def _gone(self, lane: LoopLane) -> None:
        """What the next one leads to may be another database, a copy that lacks the last commits."""
        self._open.discard(lane)
        self._ingest.forget()

    def _on_silence(self) -> None:
        """On any thread: nothing that is under way will be answered."""
        if self._loop is not None:
            call_on(self._loop, self._give_up)

    def _give_up(self) -> None:
        for lane in list(self._open):
            self._lost(lane)
            lane.give_up()

    def _close_lanes(self, closing: threading.Event) -> None:
        while self._idle:
            lane = self._idle.pop()
            lane.close()
            self._open.discard(lane)
        if not self._open:
            closing.set()

    # The thread -----------------------------------------------------------------------------------

    def _to_thread(self, batch: list[Entry]) -> None:
        if not batch:
            return
        self._away.update(_place(entry) for entry in batch)
        self._writer.take(
            [Entry(None, entry.event, self._loop, partial(self._back, entry), entry.size) for entry in batch]
        )

    def _back(self, entry: Entry, result: Any) -> None:
        place = _place(entry)
        self._away[place] -= 1
        if self._away[place] <= 0:
            del self._away[place]
        if self._entries or self._closing is not None:
            self._look_soon()
        entry.settle(result)


def _place(entry: Entry) -> Place:
    return entry.event.caller.organisation_id, entry.event.body.runId
