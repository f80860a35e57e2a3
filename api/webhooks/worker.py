"""Sends deliveries: claims those that are due by lease, posts them, records the outcomes. One per process.

Notices of channels are deliveries too: those that are due together go out as one message, by `notify`.

One loop hands finished attempts and claims of further deliveries to the writer as one job, so recording and
claiming share a commit; attempts run as tasks meanwhile. It wakes at once when a commit enqueues a delivery,
when an attempt ends or when a retry is due, and scans the table every few seconds for what other processes
left behind. At its start it frees at once what processes held that have died (`presence.py`).

    commit --enqueued--> due = {webhook: time} --claim (lease)--> attempt (task) --outcome--> record + claim

Fairness: every webhook has one slot of its own. Further slots are only for webhooks that proved quick, and
only while half of all slots are free, so receivers that hang take nothing from the others. Those whose
attempts fail rest in between, the longer the more they are, so that what refuses at once takes nothing
either; and one that refuses some notices soon has the others.
INVARIANT: what is claimed is started at once, so a lease outlasts its attempt; nothing is held in memory
that is not also in the table.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from api import metrics
from api.clock import APART_SECONDS, Clock
from api.database.connection import Database
from api.database.errors import DatabaseUnavailable
from api.database.transaction import Transaction
from api.database.writer import Writer
from api.loops import call_on
from api.store.webhooks import deliveries, delivery_order
from api.store.webhooks.deliveries import Claimed, Outcome
from api.store.webhooks.outbox import WebhookOutbox
from api.webhooks import schedule, signing
from api.webhooks.address import places
from api.webhooks.presence import Presence
from api.webhooks.sender import SECONDS, PostResult, Resolver, Sender, SystemResolver

log = logging.getLogger("governance")

REST = 0.02
"""Seconds that a webhook rests after an attempt that failed, for each whose newest attempt did."""

Notify = Callable[[Sequence[Claimed]], Awaitable[PostResult]]
"""Sends notices of one channel as one message; never raises for what a receiver or the network does."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much runs at once in one process, and for how long (seconds)."""

    attempts: int = 256
    per_webhook: int = 8
    quick_seconds: float = 2.0
    """A webhook is quick while its newest attempt was acknowledged within this time."""
    lease: float = 2 * SECONDS
    longest_rest: float = 1.0
    """After which a webhook whose attempt failed is tried again, however many there are."""
    sweep: float = 5.0
    closing: float = 3.0
    """How long a stopping process waits for attempts under way."""


@dataclass(slots=True)
class _State:
    """What the worker knows of the webhooks; all of it may be lost."""

    due: dict[str, float] = field(default_factory=dict)
    quick: set[str] = field(default_factory=set)
    running: Counter[str] = field(default_factory=Counter)
    failed: dict[str, float] = field(default_factory=dict)
    """Those whose newest attempt failed, a while ago at most, and until when each rests (monotonic)."""


async def _no_channels(items: Sequence[Claimed]) -> PostResult:
    return PostResult(error="this process sends no notices")


def _together(claimed: Sequence[Claimed]) -> Sequence[Sequence[Claimed]]:
    """What goes out in one attempt: a delivery each, and all notices of a channel."""
    if claimed and claimed[0].channel is not None:
        return [claimed]
    return [[item] for item in claimed]


class DeliveryWorker:
    """See the module. `start` on the event loop of the service; `close` before the writer closes."""

    def __init__(
        self,
        store: Database,
        writer: Writer,
        outbox: WebhookOutbox,
        *,
        clock: Clock,
        random: Callable[[], float],
        delays: Sequence[float] = schedule.DELAYS,
        allow: frozenset[str] = frozenset(),
        resolver: Resolver | None = None,
        sender: Sender | None = None,
        notify: Callable[[Sender], Notify] | None = None,
        limits: Limits | None = None,
    ) -> None:
        """`notify` makes what sends notices of channels; without it they fail."""
        self._store, self._writer, self._outbox = store, writer, outbox
        self._clock, self._random = clock, random
        self._delays = tuple(delays) or schedule.DELAYS
        self._limits = limits or Limits()
        if sender is None:
            sender = Sender(resolver or SystemResolver(self._limits.attempts), places(allow))
        self._sender = sender
        self._notify: Notify = notify(sender) if notify is not None else _no_channels
        self._state = _State()
        self._attempts: dict[asyncio.Task[None], Sequence[Claimed]] = {}
        self._outcomes: list[Outcome] = []
        self._presence = Presence(store)
        self._recovered = False
        self._swept = float("inf")
        self._wake = asyncio.Event()
        self._closing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._outbox.listener = self._on_enqueued
        self._task = self._loop.create_task(self._run(), name="webhook-deliveries")

    def _on_enqueued(self, webhook_ids: set[str]) -> None:
        """On the writer thread, after a commit."""
        loop = self._loop
        if loop is not None:
            call_on(loop, self._mark_due, webhook_ids)  # once the loop has closed, the next start sweeps

    def _mark_due(self, webhook_ids: set[str]) -> None:
        now = self._clock()
        for webhook_id in webhook_ids:
            self._due_by(webhook_id, now)
        self._wake.set()

    def _due_by(self, webhook_id: str, when: float) -> None:
        self._state.due[webhook_id] = min(when, self._state.due.get(webhook_id, when))

    # The loop ---------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._closing:
            try:
                await self._turn()
            except DatabaseUnavailable:
                # Outcomes stay in memory and are written once the database is back.
                await self._pause(1.0)
            except Exception:
                log.exception("webhook deliveries: a turn failed; trying again")
                await self._pause(1.0)
            else:
                await self._sleep()

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._closing:
                    await self._wake.wait()
                    self._wake.clear()

    async def _sleep(self) -> None:
        """Until woken, until something is due for which there is a free slot, or until the next sweep."""
        now = self._clock()
        times = [min(self._swept, now) + self._limits.sweep]
        due = self._state.due.items()
        times += [self._starts(each, when, now) for each, when in due if self._free_slots(each) > 0]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, min(times) - now)):
                await self._wake.wait()
        self._wake.clear()

    async def _recover(self) -> None:
        """Free the deliveries of processes that died."""
        newest = self._clock() + self._limits.lease
        gone: list[int] | None = None
        if not await asyncio.to_thread(self._presence.enter):
            holders = await self._store.read(deliveries.senders, self._store, self._clock())
            gone = await asyncio.to_thread(self._presence.gone, holders)
        if gone != []:
            await self._writer.write(
                lambda transaction: deliveries.release_abandoned(transaction, newest, gone)
            )
        self._recovered = True

    async def _put_back(self, now: float) -> None:
        """At the start, or when the clock was put back: what was put off by a clock that was ahead."""
        longest = max(schedule.MOST_RETRY_AFTER, *self._delays) * (1 + schedule.JITTER) + APART_SECONDS
        if await self._store.read(delivery_order.any_put_off, self._store, now, longest):
            await self._writer.write(lambda transaction: delivery_order.due_now(transaction, longest))

    async def _turn(self) -> None:
        if not self._recovered:
            await self._recover()
        now = self._clock()
        if not self._swept <= now:
            await self._put_back(now)
        if now - self._swept >= self._limits.sweep or now < self._swept:
            self._swept = now
            found = await self._store.read(deliveries.sweep, self._store, now)
            for webhook_id, due in found.items():
                self._due_by(webhook_id, due)
            past = time.monotonic() - self._limits.sweep
            self._state.failed = {each: at for each, at in self._state.failed.items() if at > past}
        wanted = self._claim_limits(now)
        if not wanted and not self._outcomes:
            return
        outcomes, self._outcomes = self._outcomes, []
        for webhook_id in wanted:
            # Taken off before the claim: what is enqueued while the claim runs is added again.
            self._state.due.pop(webhook_id, None)
        try:
            claims = await self._writer.write(
                lambda transaction: self._record_and_claim(transaction, outcomes, wanted)
            )
        except BaseException:
            self._outcomes = outcomes + self._outcomes
            self._mark_due(set(wanted))
            raise
        for claimed, following in claims:
            for items in _together(claimed):
                self._begin(items)
            if following is not None:
                self._due_by(*following)
        for outcome in outcomes:
            if outcome.next_at is not None and not outcome.delivered:
                self._due_by(outcome.claimed.webhook_id, outcome.next_at)

    def _record_and_claim(
        self, transaction: Transaction, outcomes: Sequence[Outcome], wanted: Mapping[str, int]
    ) -> list[tuple[list[Claimed], tuple[str, float] | None]]:
        """On the writer thread: record what ended, claim as many as are wanted."""
        deliveries.record(transaction, outcomes, schedule.DISABLE_AFTER)
        found = []
        for webhook_id, limit in wanted.items():
            lease, sender = self._limits.lease, self._presence.number
            claimed, due = deliveries.claim(transaction, webhook_id, limit, lease, sender)
            found.append((claimed, None if due is None else (webhook_id, due)))
        return found

    # Fairness ---------------------------------------------------------------------------------------

    def _free_slots(self, webhook_id: str, taken: int = 0) -> int:
        """How many more attempts this webhook may start now, when `taken` slots are promised to others."""
        limits, running = self._limits, self._state.running[webhook_id]
        free = limits.attempts - len(self._attempts) - taken
        first = 1 if running == 0 and free > 0 else 0
        if webhook_id not in self._state.quick:
            return first
        shared = free - first - limits.attempts // 2
        return first + max(0, min(limits.per_webhook - running - first, shared))

    def _starts(self, webhook_id: str, due: float, now: float) -> float:
        """When the next attempt may start: what fails rests, so that many take nothing from others."""
        until = self._state.failed.get(webhook_id)
        return due if until is None else max(due, now + until - time.monotonic())

    def _claim_limits(self, now: float) -> dict[str, int]:
        """Webhook to how many deliveries to claim: those with the fewest attempts under way come first."""
        due = self._state.due.items()
        ready = [(each, when) for each, when in due if self._starts(each, when, now) <= now]
        ready.sort(key=lambda item: (self._state.running[item[0]], item[1]))
        wanted: dict[str, int] = {}
        taken = 0
        for webhook_id, _ in ready:
            room = self._free_slots(webhook_id, taken)
            if room > 0:
                wanted[webhook_id] = room
                taken += room
        return wanted

    # One attempt ------------------------------------------------------------------------------------

    def _begin(self, items: Sequence[Claimed]) -> None:
        """One attempt, of one delivery or of notices that go out together."""
        self._state.running[items[0].webhook_id] += 1
        assert self._loop is not None
        task = self._loop.create_task(self._attempt(items))
        self._attempts[task] = items
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        claimed = self._attempts.pop(task)[0]
        self._state.running[claimed.webhook_id] -= 1
        if not self._state.running[claimed.webhook_id]:
            del self._state.running[claimed.webhook_id]
        self._wake.set()

    async def _attempt(self, items: Sequence[Claimed]) -> None:
        now, webhook_id = self._clock(), items[0].webhook_id
        if items[0].channel is None:
            answer = await self._post(items[0], now)
            metrics.attempted(answer.acknowledged)
        else:
            answer = await self._notify(items)
            metrics.notified(answer.acknowledged)
        if answer.acknowledged and answer.duration_ms <= self._limits.quick_seconds * 1000:
            self._state.quick.add(webhook_id)
        else:
            self._state.quick.discard(webhook_id)
        ended, chance = self._clock(), self._random()
        if answer.acknowledged:
            self._state.failed.pop(webhook_id, None)
        else:
            failed = self._state.failed
            many = len(failed) + (webhook_id not in failed)
            failed[webhook_id] = time.monotonic() + min(REST * many, self._limits.longest_rest)
        self._outcomes += [self._outcome(claimed, answer, now, ended, chance) for claimed in items]

    async def _post(self, claimed: Claimed, now: float) -> PostResult:
        body = claimed.payload.encode()
        headers = signing.headers(claimed.secrets, claimed.delivery_id, now, body)
        return await self._sender.post(claimed.url, headers, body)

    def _outcome(
        self, claimed: Claimed, answer: PostResult, at: float, ended: float, chance: float
    ) -> Outcome:
        following = None
        if not answer.acknowledged:
            following = schedule.next_attempt(
                self._delays, claimed.attempts + 1, ended, chance, answer.retry_after
            )
        return Outcome(
            claimed=claimed,
            at=at,
            status=answer.status,
            body=answer.body,
            error=answer.error,
            duration_ms=answer.duration_ms,
            delivered=answer.acknowledged,
            gone=answer.status == 410,
            next_at=following,
        )

    # The end ----------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Stop claiming, give attempts under way a moment, record what ended, give the rest back."""
        self._closing = True
        self._outbox.listener = None
        self._wake.set()
        if self._task is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._attempts:
            await asyncio.wait(list(self._attempts), timeout=self._limits.closing)
        unfinished = dict(self._attempts)
        for task in unfinished:
            task.cancel()
        if unfinished:
            await asyncio.wait(list(unfinished))
        outcomes, self._outcomes = self._outcomes, []
        done = {outcome.claimed for outcome in outcomes}
        left = [claimed for items in unfinished.values() for claimed in items if claimed not in done]

        def job(transaction: Transaction) -> None:
            deliveries.record(transaction, outcomes, schedule.DISABLE_AFTER)
            deliveries.release(transaction, left)

        if outcomes or left:
            with contextlib.suppress(DatabaseUnavailable):  # the leases run out by themselves
                await self._writer.write(job)
        self._presence.leave()
        await self._sender.close()
