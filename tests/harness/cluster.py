"""Several nodes on one PostgreSQL, each with a network of its own to it, and requests that arrive at once.

with cluster(folder, postgres, url, 4, policies, round_trip=0.002) as made:
    answers = made.at_once([(0, event), (1, event), ...])
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from tests.harness.database_proxy import DatabaseProxy
from tests.harness.nodes import KEY, Node, nodes
from tests.harness.postgres import Postgres

DEADLINE = 20.0
"""Seconds within which every request is answered, or its connection ends, whatever happens to nodes, network
and database."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    content: bytes

    def json(self) -> Any:
        return json.loads(self.content)


class Client:
    """One kept-alive connection that costs a fraction of httpx's. Raises OSError where no answer comes."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def send(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        try:
            return await asyncio.wait_for(self._send(method, path, body, headers or {}), DEADLINE)
        except asyncio.IncompleteReadError as error:
            self.close()
            raise ConnectionError("the connection ended") from error
        except BaseException:
            self.close()
            raise

    async def event(self, event: Mapping[str, Any], key: str = KEY) -> Answer:
        return await self.send("POST", "/v1/events", event, {"X-API-Key": key})

    async def _send(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Answer:
        await self.open()
        assert self._reader is not None and self._writer is not None
        content = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "Host: node", "Content-Type: application/json"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += [f"Content-Length: {len(content)}", "", ""]
        self._writer.write("\r\n".join(lines).encode() + content)
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        told = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        length = int(told.get("content-length", 0))
        answer = Answer(int(head[0].split()[1]), told, await self._reader.readexactly(length))
        if told.get("connection") == "close":
            self.close()
        return answer

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


@dataclass
class Cluster:
    server: Postgres
    database: str
    """Its address, past the networks."""
    networks: list[DatabaseProxy]
    nodes: list[Node]

    @functools.cached_property
    def admin(self) -> dict[str, str]:
        """The header of the first admin, good for every node."""
        return self.nodes[0].admin()

    def fail_over(self, copy: Postgres) -> None:
        """The networks lead to this server from now on."""
        name = self.database.partition("@/")[2].partition("?")[0]
        self.server, self.database = copy, copy.url(name)
        for network in self.networks:
            network.target(copy.socket)

    def deafen(self) -> None:
        """End the connections that listen for news of other nodes: until they are back, no news come."""
        with psycopg.connect(self.database, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND query ILIKE 'LISTEN %'"
            )

    def at_once(self, events: Sequence[tuple[int, Mapping[str, Any]]], key: str = KEY) -> list[Answer]:
        """Send each event to the node of this number, all in the same moment, each on a connection of its
        own; returns their answers in order."""

        async def send() -> list[Answer]:
            clients = [Client(self.nodes[number].port) for number, _ in events]
            await asyncio.gather(*(client.open() for client in clients))
            try:
                sent = (client.event(event, key) for client, (_, event) in zip(clients, events, strict=True))
                return await asyncio.gather(*sent)
            finally:
                for client in clients:
                    client.close()

        return asyncio.run(send())


@contextlib.contextmanager
def cluster(
    folder: Path,
    server: Postgres,
    database: str,
    count: int,
    policies: Sequence[Mapping[str, Any]] = (),
    *,
    round_trip: float = 0,
    **environment: str,
) -> Iterator[Cluster]:
    with contextlib.ExitStack() as stack:
        networks = [stack.enter_context(DatabaseProxy(server.socket, round_trip)) for _ in range(count)]
        ways = [network.url(database) for network in networks]
        made = stack.enter_context(nodes(folder, ways, count, policies, **environment))
        yield Cluster(server, database, networks, made)
        for network in networks:
            network.go()  # who stops may have something to write
