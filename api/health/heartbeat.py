"""What a node tells of itself: a row in the database every few seconds, and with it the newest of its points.

A node that stops takes its row away; one that was killed is seen to be silent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from functools import partial
from typing import Any, Final

import msgspec

from api import metrics
from api.clock import Clock, iso
from api.database.connection import Database
from api.database.outage import Outage
from api.database.writer import Writer
from api.health import nodes
from api.health.clocks import ClockCheck
from api.health.history import EVERY_SECONDS, History, Point, point_of, slot_of
from api.health.nodes import SILENT_SECONDS
from api.store.review import reading
from api.store.webhooks import deliveries
from api.version import VERSION
from engine.live import LivePolicies

log = logging.getLogger("governance")

INSTALLATION: Final = "default"
"""The organisation of those who run the installation."""

_read_points = msgspec.json.Decoder(list[Point]).decode


class Heartbeat:
    """One per process, used on its event loop."""

    def __init__(
        self,
        store: Database,
        writer: Writer,
        live: LivePolicies,
        clock: Clock,
        clocks: ClockCheck | None = None,
    ) -> None:
        """`clocks`: None where the database has no clock of its own."""
        self.clocks = clocks
        self.node_id = f"node_{secrets.token_hex(8)}"
        self.history = History()
        self._store, self._writer, self._live, self._clock = store, writer, live, clock
        self._started_at = iso(clock())
        self._totals = metrics.totals()
        self._outage = Outage("the heartbeat of this node")

    async def try_to_beat(self) -> None:
        """Tell, if that is possible now. Never raises."""
        try:
            await self.beat()
        except Exception as error:
            self._outage.met(error)
        else:
            self._outage.over()

    async def beat(self) -> None:
        """Tell how things are, and hear of the others. Raises what the database raises."""
        if self.clocks is not None:
            await self._store.read(self.clocks.look)
        waiting = self._writer.waiting
        webhooks, notices = await self._store.read(deliveries.count_waiting, self._store)
        pending = await self._store.read(reading.count_pending)
        slot, totals = slot_of(self._clock()), metrics.totals()
        point = point_of(slot, self._totals, totals, waiting, webhooks, notices, pending)
        self._totals = totals
        self.history.add(self.node_id, [point], slot)
        points = msgspec.json.encode(self.history.newest(self.node_id)).decode()
        others = await self._writer.write(partial(nodes.tell, node=self._record(), points=points))
        for node_id, told in others.items():
            # A node of another version may tell it in another way.
            with contextlib.suppress(msgspec.DecodeError):
                self.history.add(node_id, _read_points(told), slot)

    async def leave(self) -> None:
        """This node stops. A row that stays is seen to be silent."""

        try:
            await asyncio.wait_for(self._writer.write(partial(nodes.leave, node_id=self.node_id)), 1)
        except Exception as error:
            log.debug("the row of this node stays: %s", error)

    async def listed(self) -> list[dict[str, Any]]:
        """All nodes, each with whether it is silent, and whether it is this one."""
        silent = iso(self._clock() - SILENT_SECONDS)
        return [
            node | {"silent": node["seenAt"] < silent, "answering": node["nodeId"] == self.node_id}
            for node in await self._store.read(nodes.list_nodes)
        ]

    def _record(self) -> dict[str, Any]:
        health = self._live.health()
        return {
            "nodeId": self.node_id,
            "host": socket.gethostname(),
            "processId": os.getpid(),
            "version": VERSION,
            "policyRevision": health["revision"],
            "policyDigest": self._live.ruleset(INSTALLATION).digest,
            "stale": health["stale"],
            "startedAt": self._started_at,
            "seenAt": iso(self._clock()),
        }


async def keep_beating(heartbeat: Heartbeat, clock: Clock) -> None:
    """For ever, at the ends of spans, so that those of all nodes are the same."""
    while True:
        await asyncio.sleep(EVERY_SECONDS - clock() % EVERY_SECONDS)
        await heartbeat.try_to_beat()
