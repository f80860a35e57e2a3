"""A database whose statements and commits fail where a test says, and what must be true meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import peewee
import pytest

from api.audit.verification import verify
from tests.harness.application import Service, event
from tests.harness.conversation import check_shape
from tests.harness.policy_bodies import on_tool

HOLD = on_tool("Hold payments", "require_approval", "pay")
LIMIT = on_tool("Limit payments", "block", "pay", rateLimit={"limit": 1_000, "windowSeconds": 60})
TABLES = ("events", "runs", "tool_calls", "approvals", "audit", "rate_hits", "deliveries")


def service(folder: Path, database: str = "") -> Service:
    """Events are the writer's thread's: what a lane of the event loop fails with, the thread would mend
    (`tests/api/database/lanes`)."""
    environment = {"GOVERNANCE_DATABASE_URL": database, "GOVERNANCE_LANES": "0"} if database else {}
    return Service(folder, [HOLD, LIMIT], environment=environment)


def nothing_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """For services that start from now on: nothing goes on beside events, which a test's faults would meet
    or its counts include."""

    async def nothing(*_arguments: Any) -> None:
        pass

    for beside in ("beating", "clean", "key_use", "probing", "signing", "watching"):
        monkeypatch.setattr(f"api.service.keep_{beside}", nothing)
    monkeypatch.setattr("api.service._sweep", nothing)


def payment(number: int | str, size: int = 0) -> dict[str, Any]:
    fields = {"toolCallId": f"c{number}", "toolName": "pay", "inputPayload": {"note": "x" * size}}
    return event(number, "tool.called", "2026-01-31T09:30:00Z", {**fields, "runId": f"run-{number}"})


async def post(service: Service, body: dict[str, Any]) -> httpx.Response:
    answer = await service.call("agent", "POST", "/v1/events", body)
    check_shape("POST", "/v1/events", answer)
    return answer


def refused(answer: httpx.Response, *statuses: int) -> None:
    assert answer.status_code in (statuses or (503, 507)), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["code"] == {503: "unavailable", 507: "storage_full"}[answer.status_code]
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    for word in ("sqlite", "psycopg", "peewee", "SELECT", "INSERT", "Traceback", "Errno"):
        assert word not in answer.text


async def settled(service: Service) -> None:
    """What the service does on its start has been done: the event loop writes events by itself."""
    quiet = time.monotonic()
    while time.monotonic() - quiet < 0.3:
        if not service.context.writer.is_idle:
            quiet = time.monotonic()
        await asyncio.sleep(0.005)


async def rows(service: Service) -> dict[str, int]:
    def count() -> dict[str, int]:
        store = service.context.store
        return {table: store.rows(f"SELECT COUNT(*) FROM {table}")[0][0] for table in TABLES}

    return await service.context.store.read(count)


async def intact(service: Service) -> None:
    found = await service.context.store.read(verify, service.context.store, "default")
    assert found["valid"], found


class Faults:
    """Makes the nth statement, or the commit, of a transaction fail: on the event loop, which writes events
    first, and again on the writer's thread, which then tries. `on` narrows that to one of them."""

    def __init__(self, service: Service, *, events: bool = True) -> None:
        """Of transactions with events (`events`), else of all: the housekeeping has some, too."""
        self.store = service.context.store
        self._writer = service.context.writer
        self._concerned: set[str] | None = set() if events else None
        self.database = self.store.peewee
        self.on = {"MainThread", "store-writer"}
        self._left: dict[str, int] = {}
        self.error: Exception = peewee.OperationalError("disk I/O error")
        self.reached = False
        self.wrote: set[str] = set()
        """The threads that tried to write events since the next fault was chosen."""

    @property
    def at(self) -> int | None:
        """The step that fails next; None: none does."""
        return min(self._left.values(), default=None)

    @at.setter
    def at(self, step: int | None) -> None:
        if step is not None:
            self.wrote.clear()
        self._left = {} if step is None else dict.fromkeys(self.on, step)

    @contextlib.contextmanager
    def installed(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
        store_insert = type(self.store).insert_many
        execute, commit = self.database.execute_sql, self.database.commit

        def step() -> None:
            who = threading.current_thread().name
            if who not in self._left or (self._concerned is not None and who not in self._concerned):
                return
            self._left[who] -= 1
            if self._left[who] < 0:
                self.reached = True
                del self._left[who]
                raise self.error

        def execute_sql(sql: Any, *arguments: Any, **named: Any) -> Any:
            if not re.match("ROLLBACK|PRAGMA", str(sql)):
                step()
            return execute(sql, *arguments, **named)

        def committing(*arguments: Any) -> Any:
            step()
            return commit(*arguments)

        def insert_many(store: Any, table: str, *arguments: Any, **named: Any) -> Any:
            step()
            return store_insert(store, table, *arguments, **named)

        transact = self._writer._transact

        def transacting(batch: list[Any], **how: bool) -> Any:
            who = threading.current_thread().name
            if self._concerned is not None and any(entry.job is None for entry in batch):
                self._concerned.add(who)
                self.wrote.add(who)
            try:
                return transact(batch, **how)
            finally:
                if self._concerned is not None:
                    self._concerned.discard(who)

        with monkeypatch.context() as patched:
            patched.setattr(self._writer, "_transact", transacting)
            patched.setattr(self.database, "execute_sql", execute_sql)
            patched.setattr(self.database, "commit", committing)
            patched.setattr(type(self.store), "insert_many", insert_many)
            yield self


def _is_writer() -> bool:
    return threading.current_thread().name in ("store-writer", "MainThread")


ERRORS = {
    "an I/O error": (peewee.OperationalError("disk I/O error"), 503),
    "a full disk": (peewee.OperationalError("database or disk is full"), 507),
    "a full file system": (OSError(28, "No space left on device"), 507),
    "a damaged file": (peewee.DatabaseError("database disk image is malformed"), 503),
    "a closed connection": (peewee.InterfaceError("connection is closed"), 503),
    "a server that stops": (peewee.InternalError("terminating connection"), 503),
}
