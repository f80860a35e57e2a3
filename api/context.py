"""The frozen bundle that every handler gets: live policies, store, clock, ids."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from api.database.table import counter

if TYPE_CHECKING:
    # The command line imports handlers for the shapes of their records, and needs none of this.
    from api.audit.checkpoints import Checkpointer
    from api.audit.installation_key import InstallationKey
    from api.auth.credentials import Credentials
    from api.clock import Clock, Ids
    from api.database.connection import Database
    from api.database.id_index import IdIndex
    from api.database.writer import Writer
    from api.ingestion.intake import Intake
    from api.readiness import Readiness
    from api.reads import Reads
    from api.settings import Settings
    from api.store.refusals import Refusals
    from api.updates.hub import Hub
    from api.updates.waits import Waits
    from engine.live import LivePolicies
    from engine.repository.repository import Repository
    from engine.repository.snapshot import Snapshot
    from engine.repository.sync import WriteResult

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Context:
    """Made once per process, in `app.py`."""

    settings: Settings
    store: Database
    id_index: IdIndex
    writer: Writer
    live: LivePolicies
    hub: Hub
    credentials: Credentials
    clock: Clock
    ids: Ids
    steady: Callable[[], float]
    """Seconds, whatever the clock is set to."""
    started_at: float
    """By the steady clock."""
    audit_key: InstallationKey
    checkpointer: Checkpointer
    readiness: Readiness
    intake: Intake
    reads: Reads
    waits: Waits
    refusals: Refusals

    async def newest(self) -> Snapshot:
        """The policies in force, no older than any change that any process has answered."""
        await self.store.read(self.catch_up)
        return self.live.snapshot

    async def write_policies(self, operation: Callable[[Repository], WriteResult[T]]) -> T:
        """Run a write of the repository on a thread; what it stored is in force then."""
        return await asyncio.to_thread(self.live.write, operation)

    def catch_up(self) -> None:
        """The same for a thread that may query: bring this process to the newest revision."""
        revision = counter("policies")
        if revision > self.live.revision:
            self.live.catch_up(revision)
