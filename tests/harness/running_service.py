"""The real application on a real server on a port of its own, in a thread; policies are an empty set.

    with running(tmp_path) as service:
        service.post("/auth/login", json={...})

One at a time in a process, since the tables have one database. Clients of the service may say where they are
(`X-Forwarded-For`), as behind a proxy of this machine.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from api import bootstrap
from api.app import Application
from api.auth import passwords
from api.auth.credentials import key_digest, key_prefix, new_key
from api.clock import random_ids
from api.context import Context
from api.database.connection import Database
from api.database.transaction import Transaction
from api.policies import open_policies
from api.server.event_fast_path import EventProtocol
from api.service import open_service
from api.settings import Settings, load
from api.store import accounts
from tests.harness.fixed_policies import FixedPolicies

SECRET = "a secret of tests that is as long as the longest digest of any algorithm needs it"
PASSWORD = "correct horse battery"


class Clock:
    """The time, which tests move."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


@dataclass
class Service:
    """A client of the running service, with everything it was made of."""

    http: httpx.Client
    context: Context
    clock: Clock
    api_key: str
    settings: Settings
    tokens: dict[str, str] = field(default_factory=dict)

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self.http.request(method, path, **options)

    def write(self, job: Any) -> Any:
        return self.context.writer.write_here(job)

    def user(self, role: str, email: str | None = None, organisation: str = "default") -> dict[str, Any]:
        """A new user with PASSWORD, made in the store; its row with `token`."""
        made = self.write(
            lambda transaction: accounts.add_user(
                transaction,
                organisation,
                email or f"{random_ids(role)}@example.com",
                role,
                _hashed_once(),
                "a test",
            )
        )
        assert made is not None
        token, _ = self.context.credentials.issue(made, self.clock(), "tok_test")
        return {**made, "token": token}

    def bearer(self, role: str, organisation: str = "default") -> dict[str, str]:
        """The header of a user of this role, made once."""
        name = f"{role}@{organisation}"
        if name not in self.tokens:
            self.tokens[name] = self.user(role, organisation=organisation)["token"]
        return {"Authorization": f"Bearer {self.tokens[name]}"}

    def key(self, organisation: str = "default", **binding: Any) -> dict[str, Any]:
        """A new API key, made in the store; its record with `key`."""
        secret = new_key()
        made: dict[str, Any] = self.write(
            lambda transaction: accounts.add_key(
                transaction, organisation, "test", key_digest(secret), key_prefix(secret), "a test", **binding
            )
        )
        return {**made, "key": secret}

    def organisation(self, organisation_id: str) -> None:
        self.write(lambda t: accounts.add_organisation(t, organisation_id, organisation_id, "a test"))

    def audit(self, type: str, organisation: str = "default") -> list[dict[str, Any]]:
        """The records of a type, oldest first."""
        import json

        rows = self.context.store.read_here(
            self.context.store.rows,
            "SELECT record FROM audit WHERE organisation_id = ? AND type = ? ORDER BY sequence",
            (organisation, type),
        )
        return [json.loads(row[0]) for row in rows]


def log_in(service: Service, email: str, password: str, address: str = "192.0.2.1") -> Any:
    return service.request(
        "POST",
        "/auth/login",
        json={"email": email, "password": password},
        headers={"X-Forwarded-For": address},
    )


def me(service: Service, token: str) -> Any:
    return service.request("GET", "/v1/me", headers={"Authorization": f"Bearer {token}"})


_HASH: list[str] = []


def _hashed_once() -> str:
    if not _HASH:
        _HASH.append(passwords.hashed(PASSWORD))
    return _HASH[0]


def settings_for(folder: Path, **flags: str) -> Settings:
    values = {"data_dir": str(folder / "data"), "policies_dir": str(folder / "policies"), "port": "0"}
    return load({}, **(values | {"jwt_secret": SECRET} | flags))


def write_policy(folder: Path) -> None:
    """The least that a service starts with: one policy, which matches nothing that tests send."""
    (folder / "policies").mkdir(parents=True, exist_ok=True)
    (folder / "policies" / "no-launches.yaml").write_text(
        "apiVersion: governance/v1\nkind: Policy\npolicyId: no-launches\nname: No launches\naction: block\n"
        "enabled: true\nmatchConditions:\n  - {field: toolName, operator: equals, value: launch}\n"
    )


@contextlib.contextmanager
def running(
    folder: Path, rules: FixedPolicies | None = None, *, live: bool = False, **flags: str
) -> Iterator[Service]:
    """The service, its policies fixed or (`live`) read from a folder that has one."""
    settings = settings_for(folder, **flags)
    clock = Clock()
    if live:
        write_policy(settings.policies_dir)
    made = bootstrap.prepare(settings, clock=clock)
    contexts: list[Context] = []

    @contextlib.asynccontextmanager
    async def startup() -> Any:
        opened = open_service(
            settings,
            open_policies if live else lambda *_: contextlib.nullcontext(rules or FixedPolicies.of()),
            clock=clock,
        )
        async with opened as context:
            contexts.append(context)
            yield context

    application = Application(startup)
    config = uvicorn.Config(
        application, http=EventProtocol, access_log=False, log_level="warning", lifespan="on"
    )
    server = uvicorn.Server(config)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started:
        assert thread.is_alive() and time.monotonic() < deadline, "the service did not start"
        time.sleep(0.01)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False) as http:
            yield Service(http, contexts[0], clock, made.api_key or "", settings)
    finally:
        server.should_exit = True
        thread.join(20)


def in_transaction(store: Database, job: Any, now: float) -> Any:
    """Run a job of the store without a writer."""
    with store.transaction():
        transaction = Transaction(store, now, random_ids, None)
        result = job(transaction)
        transaction.flush()
    return result
