"""A service whose audit log is kept for some days only, and what tests ask of that."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any
from unittest import mock

from api.audit import rekey
from api.audit.checkpoints import Checkpointer
from api.audit.installation_key import InstallationKey, installation_key
from api.audit.retention import record_retention
from api.audit.retention.record_retention import RecordRetention
from api.audit.verification import verify
from api.database.transaction import Transaction
from tests.harness.application import Service
from tests.harness.watching import look

DAYS = 30
DAY = 86_400.0


async def signed(service: Service) -> None:
    """All that is committed is in a checkpoint."""
    service.clock.advance(2)
    await service.context.writer.write(Checkpointer(service.context.audit_key).sign)


async def changed(service: Service, *statements: str) -> None:
    """What somebody does who has the database open."""
    for statement in statements:
        await service.context.writer.write(lambda transaction, s=statement: transaction.store.rows_changed(s))


def retention_of(service: Service, days: int = DAYS) -> RecordRetention:
    """That of another process."""
    context = service.context
    return RecordRetention(context.store, context.writer, context.audit_key, days)


async def cleaned(service: Service, days: int = DAYS) -> int:
    """Detectors have read what there is, and what is due goes; returns how many records went."""
    await look(service)
    with mock.patch.object(record_retention, "PAUSE", 0.0):
        return await retention_of(service, days).clean(service.clock())


async def certified(service: Service) -> None:
    """The same, but whoever does it dies before the first record goes."""
    await look(service)
    with (
        mock.patch.object(record_retention, "PAUSE", 0.0),
        mock.patch.object(record_retention, "delete", side_effect=Died),
        contextlib.suppress(Died),
    ):
        await retention_of(service).clean(service.clock())


class Died(Exception):
    """In the middle of it."""


async def verified(service: Service, organisation_id: str = "default", **how: Any) -> dict[str, Any]:
    context = service.context
    how.setdefault("trusted", (context.audit_key.public,))
    return await context.store.read(lambda: verify(context.store, organisation_id, **how))


async def log_of(service: Service, organisation_id: str = "default") -> list[tuple[int, int, str]]:
    """Chain, number and type of each record that is there."""
    statement = "SELECT chain, sequence, type FROM audit WHERE organisation_id = ? ORDER BY chain, sequence"
    store = service.context.store
    return [tuple(row) for row in await store.read(store.rows, statement, (organisation_id,))]


async def rekeyed(service: Service) -> InstallationKey:
    """The new key, with which the record goes on."""
    store = service.context.store

    def here(job: Any) -> Any:
        with store.transaction():
            transaction = Transaction(store, service.clock(), service.ids, None)
            result = job(transaction)
            transaction.flush()
        return result

    await asyncio.to_thread(rekey.begin, service.settings, here, "cli:ops", False)
    return installation_key(service.settings)
