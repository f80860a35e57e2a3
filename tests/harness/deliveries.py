"""A database, a writer and a delivery worker together, for tests of webhooks without the HTTP service."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from api.clock import Clock, iso, random_ids, system_clock
from api.database.connection import Database
from api.database.models import Approval, Audit, Organisation
from api.database.secrets_at_rest import VAULT
from api.database.transaction import Transaction
from api.database.writer import Writer
from api.notifications.mail import Mailer
from api.notifications.notifier import Notifier
from api.store.notifications import channels, notices
from api.store.webhooks import deliveries, webhooks
from api.store.webhooks.outbox import WebhookOutbox
from api.webhooks import signing
from api.webhooks.sender import Resolver, Sender
from api.webhooks.worker import DeliveryWorker, Limits

T = TypeVar("T")
FRONTEND = "https://console.example"
SECRET = signing.secret_of(b"0" * 32)
SECONDS = 60


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, SECONDS))


class Bench:
    """The parts, and short words for what tests do with them."""

    def __init__(
        self, store: Database, writer: Writer, outbox: WebhookOutbox, worker: DeliveryWorker
    ) -> None:
        self.store, self.writer, self.outbox, self.worker = store, writer, outbox, worker

    async def add(self, url: str, *events: str, organisation: str = "default", secret: str = SECRET) -> str:
        """Register a webhook; its id."""
        record = await self.writer.write(
            lambda transaction: webhooks.add(
                transaction, organisation, url, events or ("tool.blocked",), secret, "admin@localhost"
            )
        )
        return str(record["webhookId"])

    async def channels(self, secrets: Mapping[str, str] | None = None, **wanted: Any) -> None:
        """Have exactly these channels in `default`, and these secrets."""

        def job(transaction: Transaction) -> None:
            channels.sync(transaction, "default", wanted, "admin@localhost")
            for name, value in (secrets or {}).items():
                channels.set_secret(transaction, "default", name, value, "admin@localhost")

        await self.writer.write(job)

    async def ask(
        self,
        approval_id: str,
        expires_at: float | None = None,
        organisation: str = "default",
        reason: str = "pays 7 EUR",
    ) -> None:
        """Request an approval, as the ingestion of events does."""
        await self.writer.write(
            lambda transaction: asked(transaction, approval_id, expires_at, organisation, reason)
        )

    async def notices(
        self, channel: str, wanted: Callable[[list[dict[str, Any]]], bool], seconds: float = 60
    ) -> list[dict[str, Any]]:
        """The channel's notices, oldest first, once they are as wanted."""
        deadline = time.monotonic() + seconds
        while True:
            found = await self.store.read(notices.listed, "default", channel, 500, None)
            assert found is not None
            records = list(reversed(found[0]))
            if wanted(records):
                return records
            assert time.monotonic() < deadline, records
            await asyncio.sleep(0.02)

    async def notify(
        self,
        count: int = 1,
        event: str = "tool.blocked",
        organisation: str = "default",
        key_id: str | None = None,
    ) -> None:
        """Owe so many events, in one transaction, which a key has caused."""

        def job(transaction: Transaction) -> None:
            for number in range(count):
                transaction.notify(organisation, event, {"number": number}, key_id)

        await self.writer.write(job)

    async def change(self, webhook_id: str, **changes: Any) -> None:
        await self.writer.write(
            lambda transaction: webhooks.change(
                transaction, "default", webhook_id, changes, "admin@localhost"
            )
        )

    async def webhook(self, webhook_id: str) -> dict[str, Any]:
        found = await self.store.read(webhooks.find, "default", webhook_id)
        assert found is not None
        return found

    async def deliveries(self, webhook_id: str, limit: int = 500) -> list[dict[str, Any]]:
        """Oldest first."""
        found = await self.store.read(deliveries.listed, "default", webhook_id, limit, None)
        assert found is not None
        return list(reversed(found[0]))

    async def until(
        self, webhook_id: str, wanted: Callable[[list[dict[str, Any]]], bool], seconds: float = 15
    ) -> list[dict[str, Any]]:
        """The webhook's deliveries, once they are as wanted."""
        deadline = time.monotonic() + seconds
        while True:
            found = await self.deliveries(webhook_id)
            if wanted(found):
                return found
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.02)

    async def audited(self, type: str) -> list[dict[str, Any]]:
        import msgspec

        def read() -> list[dict[str, Any]]:
            return [msgspec.json.decode(row.record) for row in Audit.select().where(Audit.type == type)]

        return await self.store.read(read)


def all_are(*statuses: str) -> Callable[[list[dict[str, Any]]], bool]:
    return lambda found: bool(found) and all(record["status"] in statuses for record in found)


def asked(
    transaction: Transaction,
    approval_id: str,
    expires_at: float | None = None,
    organisation: str = "default",
    reason: str = "pays 7 EUR",
) -> None:
    """A job: an approval, and who is to be told of it."""
    if Organisation.get_or_none(Organisation.organisation_id == organisation) is None:
        Organisation.create(organisation_id=organisation, name=organisation, created_at="")
    about = {"approval_id": approval_id, "agent_id": "mailer", "tool_name": "pay", "reason": reason}
    about |= {"organisation_id": organisation, "status": "pending", "requested_at": transaction.at}
    call = {"run_id": "run-1", "tool_call_id": "call-1", "policy_id": "hold", "policy_name": "Hold"}
    end = None if expires_at is None else iso(expires_at)
    Approval.create(**about, **call, run_no=1, call_no=1, expires_at=end)
    data = {"approvalId": approval_id, "agentId": "mailer", "toolName": "pay"}
    data |= {} if end is None else {"expiresAt": end}
    transaction.notify(organisation, "approval.requested", data)


@contextlib.asynccontextmanager
async def bench(
    url: str,
    *,
    allow: Sequence[str] = (),
    delays: Sequence[float] = (0.0, 0.1, 0.1),
    resolver: Resolver | None = None,
    limits: Limits | None = None,
    clock: Clock = system_clock,
    mailer: Callable[[Sender], Mailer] | None = None,
    start: bool = True,
    seconds: float | None = SECONDS,
) -> AsyncIterator[Bench]:
    store = Database(url)
    store.migrate()
    VAULT.unlock(b"the same key in every process...")
    outbox = WebhookOutbox(store, random_ids, delays[0])
    writer = Writer(store, clock, random_ids, outbox=outbox)
    writer.start()
    worker = DeliveryWorker(
        store,
        writer,
        outbox,
        clock=clock,
        random=lambda: 0.5,
        delays=delays,
        allow=frozenset(allow),
        resolver=resolver,
        notify=lambda sender: (
            Notifier(sender, FRONTEND, clock, None if mailer is None else mailer(sender)).send
        ),
        limits=limits,
    )
    if start:
        worker.start()
    try:
        async with asyncio.timeout(seconds):
            yield Bench(store, writer, outbox, worker)
    finally:
        await worker.close()
        await asyncio.to_thread(writer.close)
        store.close()
