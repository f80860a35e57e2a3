"""Opening and closing all that one service process needs: database, writer, rules, hub, background tasks.

Everything that tests replace - clock, ids, rules - is an argument.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from api.auth import Credentials
from api.clock import Clock, Ids, random_ids, system_clock
from api.context import Context
from api.hub import Hub
from api.rules import Rules
from api.settings import Settings
from api.store.database import Database, DatabaseUnavailable
from api.store.events import Ingestion
from api.store.writer import Writer

log = logging.getLogger("governance")

OpenRules = Callable[[Settings, Database], contextlib.AbstractContextManager[Rules]]


def signing_secret(settings: Settings) -> bytes:
    """The secret that signs access tokens: the configured one, else a random one kept in the data folder."""
    if settings.jwt_secret:
        return settings.jwt_secret.encode()
    path = Path(settings.data_dir) / "jwt-secret"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = secrets.token_urlsafe(48)
    aside = path.with_name(f".jwt-secret-{secrets.token_hex(8)}")
    with contextlib.suppress(FileExistsError):
        if not path.exists():
            # Written aside and linked into place, so that of several starting processes one wins and none
            # reads half a secret.
            aside.touch(mode=0o600)
            aside.write_text(fresh, encoding="ascii")
            path.hardlink_to(aside)
    aside.unlink(missing_ok=True)
    return path.read_text(encoding="ascii").strip().encode()


@contextlib.asynccontextmanager
async def open_service(
    settings: Settings,
    open_rules: OpenRules,
    *,
    clock: Clock = system_clock,
    ids: Ids = random_ids,
) -> AsyncIterator[Context]:
    """The context of a running process; at the end what is queued is written and everything is closed."""
    store = Database(settings.database)
    try:
        await asyncio.to_thread(store.migrate)
        with open_rules(settings, store) as rules:
            hub = Hub()
            credentials = Credentials(store, signing_secret(settings), settings.token_seconds)
            await asyncio.to_thread(credentials.load_keys)
            ingest = Ingestion(
                store,
                rules=rules.ruleset,
                rules_revision=lambda: rules.revision,
                catch_up=rules.catch_up,
                keys_version=lambda: credentials.keys_version,
                load_keys=credentials.load_keys,
                key_is_active=credentials.is_active,
                frontend=settings.frontend,
            )
            writer = Writer(store, clock, ids, ingest=ingest, publish=hub.publish)
            writer.on_bump["keys"] = credentials.load_keys
            writer.start()
            context = Context(settings, store, writer, rules, hub, credentials, clock, ids, clock())
            sweeper = asyncio.create_task(_sweep(context))
            try:
                yield context
            finally:
                hub.close()
                sweeper.cancel()
                await asyncio.gather(sweeper, return_exceptions=True)
                await asyncio.to_thread(writer.close)
    finally:
        await asyncio.to_thread(store.close)


async def _sweep(context: Context) -> None:
    """Once a second: what time alone changes."""
    while True:
        await asyncio.sleep(1)
        try:
            pass
        except DatabaseUnavailable as error:
            log.warning("housekeeping waits: %s", error)
        except Exception:
            log.exception("housekeeping failed; it is tried again")
