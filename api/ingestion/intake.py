"""How an event gets in: counted, checked, and handed to the writer; what is dear is done in turns.

A large body, and all of a key that has taken much of the processor's time, is checked and evaluated beside
the event loop. The rest is checked on the loop, which is quicker, and evaluated with its neighbours.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from time import thread_time
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from api.caller import Caller
from api.clock import Clock
from api.database.connection import Database
from api.database.writer import MOST_WAITING, Writer
from api.ingestion.evaluation import Evaluator, PutOff
from api.ingestion.event import Answer, Incoming
from api.ingestion.quotas import OverQuota, ProcessorTime, Quotas
from api.ingestion.slices import BatchSlices, Rounds
from api.ingestion.turns import LARGE, Turns
from api.ingestion.validation import Admitted, admitted, event_for_user, event_of
from api.shared_looks import SharedLooks
from api.store import accounts

T = TypeVar("T")

MOST_ROUNDS = 1_000
"""An event is put off so many times, then refused: in each commit there may be a dear one of another key, or
some of the approvals that end with a run."""
DEAR = 4 * 2**10
"""Bytes of an event from which it is checked and evaluated in turns while many keys send something, since all
of theirs together would keep the loop. It takes twice as long as with the others on the loop."""
MOST_OF_A_KEY = 4_000
"""Events of one key that wait to be written. All that wait are bounded (`database/writer.py`), so batches of
one key would leave no room for the others."""
MOST_AHEAD = 256
"""Of these, beyond which batches hand over no more: what the key sends singly comes in between."""
MOST_AHEAD_OF_ALL = 1_024
"""The same of all keys that have any, of which each has its part."""


class Intake:
    """One per process."""

    def __init__(
        self,
        store: Database,
        writer: Writer,
        clock: Clock,
        quotas: Quotas,
        processor_time: ProcessorTime,
        evaluator: Evaluator,
    ) -> None:
        self._store = store
        self._writer = writer
        self._clock = clock
        self._evaluator = evaluator
        self.quotas = quotas
        self.processor_time = processor_time
        self.turns = Turns("turns", 1, processor_time)
        self._waiting: Counter[str] = Counter()
        """Key to its events that wait to be written."""
        self._room: dict[str, asyncio.Future[None]] = {}
        """Key to what is done when fewer of them wait."""
        self._looks = SharedLooks()
        self._rounds = Rounds()
        self._slices: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def is_dear(self, key_id: str, size: int) -> bool:
        """Whether what this key sends, with so many bytes, is better looked at beside the event loop."""
        return size > LARGE or self.processor_time.is_spent(key_id)

    def is_dear_event(self, key_id: str, size: int) -> bool:
        """The same of an event, whose call is evaluated too."""
        return self.is_dear(key_id, size) or (size > DEAR and self._writer.shares.is_crowded)

    async def done(self, key_id: str, size: int, work: Callable[[], T]) -> T:
        """The result of some work for this key, which has sent so many bytes: at once, or in its turn."""
        if self.is_dear(key_id, size):
            return await self.turns.run(key_id, work, size=size)
        return self.processor_time.timed(key_id, work)

    async def event(
        self, caller: Caller, raw: bytes, *, worded: bool = True, taking: bool = False
    ) -> Incoming:
        """The checked event of a body; raises 4xx. With `worded` False nobody finds the words for what is
        wrong with it; with `taking` it is the service's own. A dear one is evaluated, too."""
        key_id, size = caller.key_id, len(raw)
        self.quotas.take(key_id, size)
        check = partial(admitted, caller, raw, worded=worded, taking=taking)
        if self.is_dear_event(key_id, size):
            return await self._dear_event(caller, raw, check)
        body, metadata = self.processor_time.timed(key_id, check)
        make = partial(event_of, caller, raw, body, metadata)
        if "userToken" in metadata:
            make = partial(
                event_for_user, caller, raw, body, metadata, await self._rule(caller), self._clock()
            )
        return self.processor_time.timed(key_id, make)

    async def _dear_event(self, caller: Caller, raw: bytes, check: Callable[[], Admitted]) -> Incoming:
        """In one turn, unless its user's token needs a look at the database between."""

        def work() -> Incoming | Admitted:
            body, metadata = admitted_body = check()
            if "userToken" in metadata:
                return admitted_body
            return self._evaluated(event_of(caller, raw, body, metadata))

        found = await self._in_turn(caller.key_id, work, len(raw))
        if isinstance(found, Incoming):
            return found
        make = partial(event_for_user, caller, raw, *found, await self._rule(caller), self._clock())
        return await self._in_turn(caller.key_id, lambda: self._evaluated(make()), len(raw))

    async def _in_turn(self, key_id: str, work: Callable[[], T], size: int) -> T:
        """INVARIANT: an event of the usual size is not refused for how many others of its key wait here, as
        long as the key's time is not spent: a crowd of agents may have one key, and a host goes ahead where
        the outcome that it tells is refused."""
        usual = size <= LARGE and not self.processor_time.is_spent(key_id)
        return await self.turns.run(key_id, work, size=size, usual=usual)

    async def _rule(self, caller: Caller) -> Any:
        organisation_id = caller.organisation_id
        look = partial(self._store.read_first, accounts.user_token_rule, organisation_id)
        return await self._looks.of(organisation_id, look)

    def evaluate(self, event: Incoming) -> None:
        """Evaluate a call on this thread, as what its key has taken."""
        begun = thread_time()
        try:
            self._evaluator.evaluate(event)
        finally:
            self._evaluator.took(event, thread_time() - begun)

    def _evaluated(self, event: Incoming) -> Incoming:
        self._evaluator.evaluate(event)
        self._evaluator.expects(event)
        return event

    def slices(self, key_id: str) -> BatchSlices:
        """For a batch of this key."""
        return BatchSlices(self._slices.setdefault(key_id, asyncio.Lock()), self._rounds)

    async def make_room(self, key_id: str) -> None:
        """For who hands over many at once: wait while many of this key wait already."""
        while self._is_ahead(key_id):
            room = self._room.setdefault(key_id, asyncio.get_running_loop().create_future())
            await asyncio.wait([room])  # which is not cancelled with one of those who wait

    def _is_ahead(self, key_id: str) -> bool:
        """Whether so many of this key wait that batches hand over no more. INVARIANT: not if none does."""
        waiting = self._waiting[key_id]
        return waiting >= MOST_AHEAD or waiting * len(self._waiting) >= MOST_AHEAD_OF_ALL

    def has_room(self, key_id: str) -> bool:
        """Whether one more event of this key may wait to be written. INVARIANT: keys leave each other, and
        people, as much room as any of them has."""
        return self._writer.shares.of_key(key_id) < min(MOST_OF_A_KEY, MOST_WAITING - self._writer.waiting)

    def handed_over(self, event: Incoming) -> asyncio.Future[Answer]:
        """Its answer to come, or PutOff: see `answer_of`. Raises OverQuota."""
        if not self.has_room(event.caller.key_id):
            raise OverQuota("too many of your events wait to be recorded already", 1.0)
        return self._written(event)

    def _written(self, event: Incoming) -> asyncio.Future[Answer]:
        key_id = event.caller.key_id
        future: asyncio.Future[Answer] = self._writer.ingested(event, asyncio.get_running_loop())
        self._waiting[key_id] += 1
        future.add_done_callback(lambda _: self._settled(key_id))
        return future

    def _settled(self, key_id: str) -> None:
        self._waiting[key_id] -= 1
        if not self._is_ahead(key_id) and (room := self._room.pop(key_id, None)) is not None:
            room.set_result(None)
        if not self._waiting[key_id]:
            del self._waiting[key_id]

    async def answer(self, event: Incoming) -> Answer:
        """What is recorded of an event, once it is."""
        return await self.answer_of(self.handed_over(event))

    async def answer_of(self, handed_over: asyncio.Future[Answer]) -> Answer:
        """The answer of an event that was handed over: as often as it is put off, it is evaluated in turn
        and comes again."""
        for _ in range(MOST_ROUNDS):
            try:
                return await handed_over
            except PutOff as put_off:
                handed_over = self._written(await self.evaluated_in_turn(put_off.event))
        return await handed_over

    async def evaluated_in_turn(self, event: Incoming) -> Incoming:
        return await self._in_turn(event.caller.key_id, partial(self._evaluated, event), len(event.raw))

    def close(self) -> None:
        self.turns.close()
