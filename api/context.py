"""The frozen bundle that every handler gets: live policies, store, clock, ids."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from api.caller import NOBODY, Caller
from api.loops import FairPlaces
from api.policies.newest import catch_up
from api.shared_looks import SharedLooks

if TYPE_CHECKING:
    # The command line imports handlers for the shapes of their records, and needs none of this.
    from api.alerts.detection import Detection
    from api.audit.checkpoints import Checkpointer
    from api.audit.installation_key import InstallationKey
    from api.auth.credentials import Credentials
    from api.clock import Clock, Ids
    from api.database.connection import Database
    from api.database.id_index import IdIndex
    from api.database.partitions.upkeep import Partitions
    from api.database.transaction import Transaction
    from api.database.writer import Writer
    from api.health.heartbeat import Heartbeat
    from api.health.readiness import Readiness
    from api.ingestion.intake import Intake
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

MOST_WRITES: Final = 2
"""Writes of policies under way: one is prepared while another one is committed. More of them would leave
events little of the processor."""

Edits = Mapping[str, tuple[bytes | None, bytes | None]]
"""What a write would do to files: path to content before and after, None: no file."""


class WriteGuard(Protocol):
    """Asked before anything is written that may need a second admin; what it raises stops the write."""

    def files(self, edits: Edits) -> None: ...

    def rows(self, job: Callable[[Transaction], Any], transaction: Transaction) -> Any: ...


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
    heartbeat: Heartbeat
    detection: Detection
    partitions: Sequence[Partitions]
    caller: Caller = NOBODY
    """Of one request that changes something."""
    guard: WriteGuard | None = None
    """Of one request, where its organisation lets two people change things."""
    looks: SharedLooks = field(default_factory=SharedLooks)
    writes: FairPlaces = field(default_factory=lambda: FairPlaces(MOST_WRITES))

    async def newest(self) -> Snapshot:
        """The policies in force, no older than any change that any process has answered."""
        await self.store.read(catch_up, self.live)
        return self.live.snapshot

    async def write_policies(self, operation: Callable[[Repository], WriteResult[T]]) -> T:
        """Run a write of the repository on a thread, in the caller's turn; what it stored is in force
        then."""
        async with self.writes.place(self.caller.holder):
            return await asyncio.to_thread(
                self.live.write, lambda files: operation(files.guarded(self._guard_files))
            )

    def _guard_files(self, edits: Edits) -> None:
        self.credentials.recheck_here(self.caller)
        if self.guard is not None:
            self.guard.files(edits)

    async def write(self, job: Callable[[Transaction], T]) -> T:
        """A job of the writer that may need a second admin. INVARIANT: however long it waited for its turn,
        it changes nothing for somebody who may not do so any more."""

        def guarded(transaction: Transaction) -> T:
            self.credentials.recheck_here(self.caller)
            found: T = job(transaction) if self.guard is None else self.guard.rows(job, transaction)
            return found

        return await self.writer.write(guarded)
