"""The frozen bundle that every handler gets: live rules, store, clock, ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from api.clock import Clock, Ids
from api.database import counters
from api.database.connection import Database
from api.database.id_index import Directory
from api.database.writer import Writer
from api.policies import Rules
from api.settings import Settings
from api.updates.hub import Hub
from engine.repository.snapshot import Snapshot

if TYPE_CHECKING:
    from api.auth.credentials import Credentials

VERSION = "0.1.0"


@dataclass(frozen=True, slots=True)
class Context:
    """Made once per process, in `app.py`."""

    settings: Settings
    store: Database
    directory: Directory
    writer: Writer
    live: Rules
    hub: Hub
    credentials: Credentials
    clock: Clock
    ids: Ids
    started_at: float

    async def newest(self) -> Snapshot:
        """The policies in force, no older than any change that any process has answered."""
        await self.store.read(self.catch_up)
        return self.live.snapshot

    def catch_up(self) -> None:
        """The same for a thread that may query: bring this process to the newest revision."""
        revision = counters.value("policies")
        if revision > self.live.revision:
            self.live.catch_up(revision)
