"""The frozen bundle that every handler gets: live rules, store, clock, ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from api.clock import Clock, Ids
from api.hub import Hub
from api.rules import Rules
from api.settings import Settings
from api.store.database import Database
from api.store.writer import Writer

if TYPE_CHECKING:
    from api.auth import Credentials

VERSION = "0.1.0"


@dataclass(frozen=True, slots=True)
class Context:
    """Made once per process, in `app.py`."""

    settings: Settings
    store: Database
    writer: Writer
    live: Rules
    hub: Hub
    credentials: Credentials
    clock: Clock
    ids: Ids
    started_at: float
