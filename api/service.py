"""Opening and closing all that one service process needs: database, writer, live, hub, background tasks.

Everything that tests replace - clock, ids, rules - is an argument.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Final

import schemas
from api import metrics
from api.alerts.detection import Detection
from api.alerts.recent import Recent
from api.alerts.worker import keep_watching
from api.audit.checkpointer import keep_signing
from api.audit.checkpoints import Checkpointer
from api.audit.installation_key import installation_key
from api.audit.mark import AuditMark
from api.audit.rekey import check_key
from api.audit.retention.record_retention import RecordRetention
from api.auth.credentials import Credentials
from api.auth.key_use import KeyUse, keep_key_use
from api.auth.signing_secret import open_vault, signing_secret
from api.clock import Clock, Ids, Leaps, boot_seconds, iso, random_ids, system_clock
from api.context import Context
from api.database.connection import Database
from api.database.errors import OlderDatabase
from api.database.id_index import IdIndex
from api.database.outage import Outage
from api.database.partitions.catalog import RECORDS
from api.database.partitions.upkeep import Partitions
from api.database.sqlite.files import refuse_gone
from api.database.transaction import Transaction
from api.database.writer import Writer
from api.health.clocks import ClockCheck
from api.health.heartbeat import Heartbeat, keep_beating
from api.health.readiness import STUCK_SECONDS, Readiness, keep_probing, probe
from api.health.schema_steps import missing_step
from api.ingestion.intake import Intake
from api.ingestion.pipeline import Ingestion
from api.ingestion.quotas import PendingQuota, ProcessorTime, Quotas
from api.loops import Threads
from api.notifications.notifier import Notifier
from api.policies.newest import catch_up, mark_in_force
from api.reads import Reads
from api.retention.cleaning import keep_clean
from api.retention.days_kept import ALERT_DAYS, AUDIT_DAYS, DELIVERY_DAYS, EVENT_DAYS, DaysKept
from api.settings import Settings
from api.store import approvals
from api.store.refusals import Refusals
from api.store.review import changes, reading
from api.store.webhooks.outbox import WebhookOutbox
from api.updates.feed import Feed
from api.updates.hub import Hub
from api.updates.waits import Waits
from api.webhooks.worker import DeliveryWorker
from engine.derived.sql.parser import load_readers
from engine.live import LivePolicies

MOST_SWEEPS: Final = 10
"""Transactions of a second that end approvals whose time is over; others' events come in between."""

OpenPolicies = Callable[[Settings, Database, Writer], contextlib.AbstractContextManager[LivePolicies]]
"""Opens the policies; the writer runs already, since recording policy versions goes through it."""


@contextlib.asynccontextmanager
async def open_service(
    settings: Settings,
    open_policies: OpenPolicies,
    *,
    clock: Clock = system_clock,
    ids: Ids = random_ids,
    prepared: bool = False,
) -> AsyncIterator[Context]:
    """The context of a running process; at the end what is queued is written and everything is closed.

    `prepared`: the one that started this process has brought the tables up to date. Raises OlderDatabase,
    and DatabaseUnavailable where the database is gone.
    """
    asyncio.get_running_loop().set_default_executor(Threads(None, "service"))
    if prepared:
        refuse_gone(settings.database)
    store = Database(settings.database)
    try:
        await asyncio.to_thread(_read_ahead)
        partitions = await _tables(store, settings, clock, prepared=prepared)
        first_delay = settings.webhook_retry[0] if settings.webhook_retry else 0.0
        id_index = IdIndex(store)
        check_key(settings, store)
        audit_key = installation_key(settings)
        outbox = WebhookOutbox(store, ids, first_delay)
        hub = Hub()
        secret = signing_secret(settings)
        # A clock that tests move is its own measure.
        steady = boot_seconds if clock is system_clock else clock
        credentials = Credentials(store, secret, settings.token_seconds, clock, steady)
        await asyncio.to_thread(credentials.load_keys)
        recent = Recent()
        publish = partial(_publish, hub, recent)
        writer = Writer(store, clock, ids, outbox=outbox, publish=publish, lanes=settings.lanes)
        writer.on_bump["keys"] = credentials.load_keys
        writer.start()
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(store.leave)
            stack.callback(credentials.close)
            stack.push_async_callback(asyncio.to_thread, writer.close)
            await writer.write(partial(open_vault, settings=settings, secret=secret))
            opening = open_policies(settings, store, writer)
            live = await asyncio.to_thread(opening.__enter__)
            stack.push_async_callback(asyncio.to_thread, opening.__exit__, None, None, None)
            processor_time = ProcessorTime()
            leaps = Leaps(clock, steady)
            quotas = Quotas(settings.key_events_per_minute, settings.key_bytes_per_day)
            ingestion = writer.ingest = Ingestion(
                store,
                id_index,
                rules=live.ruleset,
                rules_revision=lambda: live.revision,
                rules_mark=partial(mark_in_force, live),
                catch_up=live.catch_up,
                keys_version=lambda: credentials.keys_version,
                load_keys=credentials.load_keys,
                key_is_active=credentials.is_active,
                processor_time=processor_time,
                keeps=quotas.keeps,
                frontend=settings.frontend,
                pending=PendingQuota(settings.key_pending_approvals),
                only_bound_keys=settings.require_bound_keys,
                leaps=leaps,
            )
            intake = Intake(store, writer, clock, quotas, processor_time, ingestion.evaluator)
            stack.push_async_callback(asyncio.to_thread, intake.close)
            key_use = KeyUse(quotas.used, writer)
            stack.push_async_callback(key_use.close)
            reads = Reads(store, quotas, processor_time, settings.most_connections)
            stack.push_async_callback(asyncio.to_thread, reads.close)
            feed = Feed(store, hub, partial(store.read_here, catch_up, live))
            await asyncio.to_thread(feed.start)
            stack.push_async_callback(asyncio.to_thread, feed.close)
            writer.follower = feed
            refusals = Refusals(writer, clock)
            stack.push_async_callback(refusals.close)
            checkpointer, mark = Checkpointer(audit_key), AuditMark(settings)
            store.watch_return(mark.complaint_now)
            readiness = Readiness()
            writer.on_events = readiness.event_ended
            clocks = ClockCheck(store, clock) if clock is system_clock and not store.is_sqlite else None
            heartbeat = Heartbeat(store, writer, live, clock, clocks)
            context = Context(
                settings,
                store,
                id_index,
                writer,
                live,
                hub,
                credentials,
                clock,
                ids,
                steady,
                steady(),
                audit_key,
                checkpointer,
                readiness,
                intake,
                reads,
                Waits(settings.most_connections),
                refusals,
                heartbeat,
                Detection(store, live, clock, ids, recent),
                partitions,
            )
            with contextlib.suppress(TimeoutError):
                first = asyncio.gather(probe(readiness, writer, ingestion), heartbeat.try_to_beat())
                await asyncio.wait_for(first, STUCK_SECONDS)
            housekeeping = [
                asyncio.create_task(each)
                for each in (
                    _sweep(context),
                    keep_signing(checkpointer, store, writer, mark, settings),
                    keep_probing(readiness, writer, ingestion, store),
                    keep_beating(heartbeat, clock),
                    keep_key_use(key_use),
                    keep_watching(context.detection, store, writer),
                    _keep_clean(context, leaps, clocks),
                )
            ]
            deliverer = DeliveryWorker(
                store,
                writer,
                outbox,
                clock=clock,
                random=random.random,
                delays=settings.webhook_retry,
                allow=settings.webhook_allow,
                notify=lambda sender: Notifier(sender, settings.frontend, clock).send,
            )
            deliverer.start()
            try:
                yield context
            finally:
                hub.close()
                for task in housekeeping:
                    task.cancel()
                await asyncio.gather(*housekeeping, return_exceptions=True)
                await deliverer.close()
                await heartbeat.leave()
    finally:
        await asyncio.to_thread(store.close)


async def _tables(
    store: Database, settings: Settings, clock: Clock, *, prepared: bool
) -> tuple[Partitions, ...]:
    """Bring the tables up to date, and make the partitions of the days to come. Raises OlderDatabase."""
    if prepared:
        await asyncio.to_thread(store.refuse_foreign_file)
        if (step := await store.read(missing_step, store)) is not None:
            raise OlderDatabase(step)
    await asyncio.to_thread(store.migrate)
    partitions = Partitions(store, settings.event_days), Partitions(store, settings.audit_days, RECORDS)
    for each in partitions:  # before anything is written that would be in the way
        with contextlib.suppress(Exception):  # it is tried again, and told of, by who cleans
            await store.read(each.prepare, clock())
    return partitions


async def _keep_clean(context: Context, leaps: Leaps, clocks: ClockCheck | None) -> None:
    settings, store, writer = context.settings, context.store, context.writer
    kept = DaysKept(
        {
            EVENT_DAYS: settings.event_days,
            DELIVERY_DAYS: settings.delivery_days,
            ALERT_DAYS: settings.alert_days,
            AUDIT_DAYS: settings.audit_days,
        }
    )
    records = RecordRetention(store, writer, context.audit_key, settings.audit_days)
    index, partitions = context.id_index, context.partitions
    await keep_clean(kept, records, store, index, writer, partitions, context.clock, leaps, clocks)


def _read_ahead() -> None:
    """INVARIANT: no event and no body is read with code or a schema that is loaded later: when nothing more
    can be opened each would fail, and after an upgrade below a process that runs they would be of another
    version."""
    schemas.read_all()
    load_readers()


def _publish(hub: Hub, recent: Recent, transaction: Transaction) -> None:
    hub.publish(transaction.changes())
    recent.add(transaction.records)


async def _sweep(context: Context) -> None:
    """Once a second: what time alone changes."""
    outage = Outage("housekeeping")
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + 1
        await asyncio.sleep(1)
        metrics.looped(max(0.0, loop.time() - due))
        try:
            if await context.store.read(reading.anything_due, iso(context.clock())):
                for _ in range(MOST_SWEEPS):
                    if await context.writer.write(approvals.expire_due) < approvals.MOST_AT_ONCE:
                        break
            if await context.store.read(changes.anything_due, iso(context.clock())):
                await context.writer.write(changes.expire_due)
            await context.refusals.write_due()
        except Exception as error:
            outage.met(error)
        else:
            outage.over()
