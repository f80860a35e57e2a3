"""A whole service inside the test process: a clock to move, counted ids, people and keys to call it as.

    async with Service(tmp_path, policies=[...]) as service:
        answer = await service.call("agent", "POST", "/v1/events", {...})

Nothing is mocked: the application is the real one over its real database, called through ASGI. Policies are a
fixed set, or with `live=True` real files in a real folder, which the API may then change. The same service on
a socket is `ServedService`; as processes of its own it is `Node`. All three have the settings, the password
and the events that are stated here.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any
from unittest import mock

import argon2
import httpx

from api import settings
from api.app import Application
from api.auth import passwords
from api.auth.credentials import key_digest, key_prefix
from api.caller import Caller
from api.clock import iso
from api.context import Context
from api.database.connection import Database
from api.database.transaction import Transaction
from api.policies.opening import open_policies
from api.service import OpenPolicies, open_service
from api.settings import Settings
from api.store import accounts, approvals
from api.store.review import changes
from engine.documents.ids import slug
from tests.harness.fixed_policies import FixedPolicies
from tests.harness.policy_bodies import on_tool

BASE = "http://service.example"
PASSWORD = "correct horse battery staple"
SECRET = "a secret of tests that is as long as the longest digest of any algorithm needs it"

PEOPLE = {
    "admin": ("default", "admin@acme.example", "admin"),
    "second admin": ("default", "second.admin@acme.example", "admin"),
    "reviewer": ("default", "rita@acme.example", "reviewer"),
    "second reviewer": ("default", "ravi@acme.example", "reviewer"),
    "viewer": ("default", "vera@acme.example", "viewer"),
    "other admin": ("other", "admin@other.example", "admin"),
    "other reviewer": ("other", "rosa@other.example", "reviewer"),
}
"""name -> organisation, e-mail, role."""

KEYS: Mapping[str, tuple[str, str | None]] = {
    "agent": ("default", None),
    "second agent": ("default", None),
    "bound agent": ("default", "mailer"),
    "other agent": ("other", None),
}
"""name -> organisation, the agent that the key is bound to."""


NO_LAUNCHES = on_tool("No launches", "block", "launch")
"""The least that a service starts with: a policy that matches nothing other tests send."""

Who = str | Mapping[str, str] | Mapping[str, bytes]
"""Who calls: somebody of `PEOPLE` or `KEYS`, `nobody`, or the header of a credential."""


class Clock:
    """The time, which tests move. It stands still far ahead of any real time, or `runs` as real time does."""

    START = 4_102_444_800.0  # 2100-01-01T00:00:00Z

    def __init__(self, *, runs: bool = False) -> None:
        self.runs = runs
        self.ahead = 0.0

    def __call__(self) -> float:
        return (time.time() if self.runs else self.START) + self.ahead

    def advance(self, seconds: float) -> None:
        self.ahead += seconds

    @property
    def text(self) -> str:
        return iso(self())


class CountedIds:
    """`apr_000001`, `aud_000002`, ...: unique, in order, the same in every run of a sequential test."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def __call__(self, prefix: str) -> str:
        return f"{prefix}_{next(self._numbers):06d}"


def write_policies(folder: Path, policies: Iterable[Mapping[str, Any]]) -> None:
    """One file per policy, where the service looks for it. JSON is YAML, too."""
    for name in ("policies", "detectors"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for shape in policies:
        body = dict(shape)
        organisation_id = body.pop("organisationId", "default")
        place = folder if organisation_id == "default" else folder / "organisations" / organisation_id
        policy_id = body.setdefault("policyId", slug(body["name"]))
        document = {"apiVersion": "governance/v1", "kind": "Policy", **body}
        path = place / "policies" / f"{policy_id}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=2), encoding="utf-8")


def write_files(folder: Path, files: Mapping[str, str | None]) -> None:
    """Texts by their path below the policies folder; None removes."""
    for name, text in files.items():
        path = folder / name
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def password_hash() -> str:
    """Of `PASSWORD`; argon2 is slow on purpose, so it is made once."""
    return _password_hash(passwords._hasher)


@functools.cache
def _password_hash(_: argon2.PasswordHasher) -> str:
    return passwords.hashed(PASSWORD)


def environment(folder: Path, **changes: str) -> dict[str, str]:
    """What a service of tests is told: that everything lies below one folder."""
    return {
        "GOVERNANCE_DATA_DIR": str(folder / "data"),
        "GOVERNANCE_POLICIES_DIR": str(folder / "policies.d"),
        "GOVERNANCE_JWT_SECRET": SECRET,
        **changes,
    }


def settings_for(folder: Path, **changes: str) -> Settings:
    """Settings of these and nothing from the real environment."""
    frontend = {"GOVERNANCE_FRONTEND_URL": "https://console.example"}
    return settings.load(environment(folder, **(frontend | changes)))


@functools.cache
def _migrated() -> bytes:
    """A database with our tables and nothing in them: to make them takes longer than most tests."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "governance.sqlite"
        with contextlib.closing(Database(f"sqlite:///{path}")) as store:
            store.migrate()
            store.leave()
        return path.read_bytes()


class Installation:
    """A service with its people and keys, whichever way it is called."""

    def __init__(
        self,
        folder: Path,
        policies: Iterable[Mapping[str, Any]] = (),
        *,
        live: bool = False,
        files: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        database: str = "",
    ) -> None:
        """`database` is the address of one, if not of a file."""
        of_database = {"GOVERNANCE_DATABASE_URL": database} if database else {}
        self.settings = settings_for(folder, **(of_database | dict(environment or {})))
        self.clock = Clock()
        self.ids = CountedIds()
        self.open_policies: OpenPolicies = functools.partial(open_policies, clock=self.clock, ids=self.ids)
        if live:
            write_policies(self.settings.policies_dir, policies)
            write_files(self.settings.policies_dir, files or {})
        else:
            fixed = FixedPolicies.of_shapes(policies)
            self.open_policies = lambda *_: contextlib.nullcontext(fixed)
        self.notices: list[tuple[str, dict[str, Any]]] = []
        """Every webhook event that was committed, and its data."""
        self.credentials: dict[str, dict[str, str]] = {"nobody": {}}
        self.callers: dict[str, Caller] = {}
        self.application = Application(self._startup)

    @contextlib.asynccontextmanager
    async def _startup(self) -> AsyncIterator[Context]:
        if not self.settings.database_url and not self.settings.data_dir.exists():
            self.settings.data_dir.mkdir(parents=True)
            path = self.settings.data_dir / "governance.sqlite"
            path.write_bytes(_migrated())
            path.chmod(0o600)
        opened = open_service(self.settings, self.open_policies, clock=self.clock, ids=self.ids)
        async with opened as self.context:
            with self._noticing():
                await self.context.writer.write(self._populate)
                self.context.credentials.load_keys()
                yield self.context

    def _noticing(self) -> contextlib.AbstractContextManager[Any]:
        """What a transaction tells subscribers is noted once it is committed, whoever writes it."""
        tell = Transaction.notify

        def notify(told: Transaction, organisation_id: str, event: str, data: Any, *key: str | None) -> None:
            tell(told, organisation_id, event, data, *key)
            told.after_commit(lambda: self.notices.append((event, data)))

        return mock.patch.multiple(Transaction, notify=notify, listens=lambda told, organisation_id: True)

    def _populate(self, transaction: Transaction) -> None:
        for organisation_id in ("default", "other"):
            accounts.add_organisation(transaction, organisation_id, organisation_id.title(), "test")
        for name, (organisation_id, email, role) in PEOPLE.items():
            user = self._add_user(transaction, organisation_id, email, role)
            self.credentials[name] = {"Authorization": f"Bearer {user['token']}"}
            self.callers[name] = Caller(
                "user", organisation_id, role=role, user_id=user["userId"], email=user["email"]
            )
        for name, (organisation_id, agent_id) in KEYS.items():
            secret = f"agk_of_the_{name.replace(' ', '_')}"
            key = self._add_key(transaction, organisation_id, name, secret, agent_id=agent_id)
            self.credentials[name] = {"X-API-Key": secret}
            self.callers[name] = Caller("key", organisation_id, key_id=key["keyId"], agent_id=agent_id)

    def _add_user(
        self, transaction: Transaction, organisation_id: str, email: str, role: str
    ) -> dict[str, Any]:
        """A user with `PASSWORD`, and a `token` that was issued without logging in."""
        user = accounts.add_user(transaction, organisation_id, email, role, password_hash(), "test")
        assert user is not None
        token, _ = self.context.credentials.issue(user, self.clock(), self.ids("jti"))
        return {**user, "token": token}

    def _add_key(
        self, transaction: Transaction, organisation_id: str, name: str, secret: str, **binding: Any
    ) -> dict[str, Any]:
        made = accounts.add_key(
            transaction, organisation_id, name, key_digest(secret), key_prefix(secret), "test", **binding
        )
        return {**made, "key": secret}

    def _request(
        self, who: Who, body: Any, *, raw: str | None = None, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Options of httpx for a request: a body, or its text `raw`, and headers beside the credential's."""
        sent = {**(self.credentials[who] if isinstance(who, str) else who), **(headers or {})}
        if raw is not None:
            return {"content": raw.encode(), "headers": {"Content-Type": "application/json", **sent}}
        return {"headers": sent} if body is None else {"headers": sent, "json": body}


class Service(Installation):
    """Called through ASGI, on the event loop of the test."""

    async def __aenter__(self) -> Service:
        self._resources = contextlib.AsyncExitStack()
        await self._resources.enter_async_context(lifespan(self.application))
        self.http = await self._resources.enter_async_context(
            httpx.AsyncClient(
                transport=httpx.ASGITransport(self.application, raise_app_exceptions=False),
                base_url=BASE,
                timeout=60,
            )
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._resources.aclose()

    async def call(self, who: Who, method: str, path: str, body: Any = None, **told: Any) -> httpx.Response:
        """One request; with what `_request` takes besides."""
        return await self.http.request(method, path, **self._request(who, body, **told))

    async def answered(
        self, who: Who, method: str, path: str, *body: Any, status: int = 200, **told: Any
    ) -> Any:
        """The JSON of what is answered, with this status and no other."""
        answer = await self.call(who, method, path, *body, **told)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    async def report(self, who: str, number: int | str, event_type: str, **fields: Any) -> httpx.Response:
        """POST one event; see `event`."""
        return await self.call(who, "POST", "/v1/events", event(number, event_type, self.clock.text, fields))

    async def housekeeping(self) -> None:
        """What the service does every second, done now."""
        await self.context.writer.write(approvals.expire_due)
        await self.context.writer.write(changes.expire_due)
        await self.context.refusals.write_due()


def event(number: int | str, event_type: str, timestamp: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """An event body from short fields: those that are no member of an event are its metadata."""
    body: dict[str, Any] = {
        "eventId": f"event-{number}",
        "runId": "run-1",
        "agentId": "mailer",
        "timestamp": timestamp,
        "eventType": event_type,
    }
    own = {"eventId", "runId", "agentId", "timestamp", "status", "metadata", "organisationId"}
    body |= {name: value for name, value in fields.items() if name in own}
    metadata = {name: value for name, value in fields.items() if name not in own}
    if event_type == "tool.called" and "metadata" not in fields:
        metadata.setdefault("inputPayload", {})
    if metadata:
        body["metadata"] = {**metadata, **body.get("metadata", {})}
    return body


@contextlib.asynccontextmanager
async def lifespan(app: Any) -> AsyncIterator[None]:
    """Starts an ASGI application as a server does, and stops it at the end."""
    received: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    sent: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    running = asyncio.create_task(
        app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, received.get, sent.put)
    )
    try:
        await received.put({"type": "lifespan.startup"})
        answer = await sent.get()
        assert answer["type"] == "lifespan.startup.complete", answer
        yield
        await received.put({"type": "lifespan.shutdown"})
        answer = await sent.get()
        assert answer["type"] == "lifespan.shutdown.complete", answer
    finally:
        await asyncio.wait([running], timeout=10)
        running.cancel()
