"""A whole service inside the test process: fake clock, counted ids, people and keys to call it as.

    async with Service(tmp_path, policies=[...]) as service:
        answer = await service.call("agent", "POST", "/v1/events", {...})

Nothing is mocked: the application is the real one over its real database, called through ASGI. Policies are a
fixed set, or with `live=True` real files in a real folder, which the API may then change.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from api import policies as policies_
from api import settings
from api.app import Application
from api.auth import passwords
from api.auth.credentials import key_digest
from api.caller import Caller
from api.clock import iso
from api.context import Context
from api.database.transaction import Transaction
from api.service import OpenPolicies, open_service
from api.settings import Settings
from api.store import accounts, approvals
from engine.documents.policy import slug
from tests.harness.fixed_policies import FixedPolicies

BASE = "http://service.example"
PASSWORD = "correct horse battery staple"

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

KEYS = {
    "agent": ("default", None),
    "second agent": ("default", None),
    "bound agent": ("default", "mailer"),
    "other agent": ("other", None),
}
"""name -> organisation, the agent that the key is bound to."""


class FakeClock:
    """Stands still until it is moved; starts far ahead of any real time."""

    START = 4_102_444_800.0  # 2100-01-01T00:00:00Z

    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds

    @property
    def text(self) -> str:
        return iso(self.now)


class CountedIds:
    """`apr_000001`, `aud_000002`, ...: unique, in order, the same in every run of a sequential test."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def __call__(self, prefix: str) -> str:
        return f"{prefix}_{next(self._numbers):06d}"


def write_policies(folder: Path, policies: Iterable[Mapping[str, Any]]) -> None:
    """One file per policy, where the service looks for it. JSON is YAML, too."""
    (folder / "policies").mkdir(parents=True, exist_ok=True)
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


@functools.cache
def password_hash() -> str:
    """Of `PASSWORD`; argon2 is slow on purpose, so it is made once."""
    return passwords.hashed(PASSWORD)


def settings_for(folder: Path, **environment: str) -> Settings:
    """Settings with everything below one folder and nothing from the real environment."""
    return settings.load(
        {
            "GOVERNANCE_DATA_DIR": str(folder / "data"),
            "GOVERNANCE_POLICIES_DIR": str(folder / "policies.d"),
            "GOVERNANCE_JWT_SECRET": "a secret for tests only, 32 bytes or more",
            "GOVERNANCE_FRONTEND_URL": "https://console.example",
            **environment,
        }
    )


class Service:
    """See the module. `people` and `keys` name who there is; tokens are issued without logging in."""

    def __init__(
        self,
        folder: Path,
        policies: Iterable[Mapping[str, Any]] = (),
        *,
        live: bool = False,
        files: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.settings = settings_for(folder, **(environment or {}))
        self.clock = FakeClock()
        self.ids = CountedIds()
        self.open_policies: OpenPolicies = functools.partial(
            policies_.open_policies, clock=self.clock, ids=self.ids
        )
        if live:
            write_policies(self.settings.policies_dir, policies)
            write_files(self.settings.policies_dir, files or {})
        else:
            self.open_policies = lambda *_: contextlib.nullcontext(FixedPolicies.of_shapes(policies))
        self.notices: list[tuple[str, dict[str, Any]]] = []
        """Every webhook event that was committed, and its data."""
        self.credentials: dict[str, dict[str, str]] = {"nobody": {}}
        self.callers: dict[str, Caller] = {}
        self._resources = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Service:
        @contextlib.asynccontextmanager
        async def startup() -> AsyncIterator[Context]:
            async with open_service(
                self.settings, self.open_policies, clock=self.clock, ids=self.ids
            ) as context:
                self.context = context
                yield context

        self.application = Application(startup)
        await self._resources.enter_async_context(lifespan(self.application))
        self.http = await self._resources.enter_async_context(
            httpx.AsyncClient(
                transport=httpx.ASGITransport(self.application, raise_app_exceptions=False),
                base_url=BASE,
                timeout=60,
            )
        )
        outbox = self.context.writer.outbox
        assert outbox is not None
        self._rows_of, outbox.rows = outbox.rows, self._noticed  # type: ignore[method-assign]
        writer = self.context.writer
        self._transact, writer._transact = writer._transact, self._transacted  # type: ignore[method-assign]
        await self.context.writer.write(self._populate)
        self.context.credentials.load_keys()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._resources.aclose()

    def _noticed(
        self, organisation_id: str, event: str, data: dict[str, Any], now: float
    ) -> list[tuple[Any, ...]]:
        self.notices.append((event, data))
        return self._rows_of(organisation_id, event, data, now)

    def _transacted(self, batch: Any, **how: bool) -> Any:
        mark = len(self.notices)
        try:
            return self._transact(batch, **how)
        except BaseException:
            del self.notices[mark:]  # nothing of it was committed
            raise

    def _populate(self, transaction: Transaction) -> None:
        for organisation_id in ("default", "other"):
            accounts.add_organisation(transaction, organisation_id, organisation_id.title(), "test")
        for name, (organisation_id, email, role) in PEOPLE.items():
            user = accounts.add_user(transaction, organisation_id, email, role, password_hash(), "test")
            assert user is not None
            token, _ = self.context.credentials.issue(user, self.clock(), self.ids("jti"))
            self.credentials[name] = {"Authorization": f"Bearer {token}"}
            self.callers[name] = Caller(
                "user", organisation_id, role=role, user_id=user["userId"], email=user["email"]
            )
        for name, (organisation_id, agent_id) in KEYS.items():
            secret = f"agk_of_the_{name.replace(' ', '_')}"
            key = accounts.add_key(
                transaction, organisation_id, name, key_digest(secret), "agk_of", "test", agent_id=agent_id
            )
            self.credentials[name] = {"X-API-Key": secret}
            self.callers[name] = Caller("key", organisation_id, key_id=key["keyId"], agent_id=agent_id)

    async def call(
        self,
        who: str,
        method: str,
        path: str,
        body: Any = None,
        *,
        raw: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """One request as somebody of `PEOPLE`, `KEYS`, or `nobody`."""
        sent = {**self.credentials[who], **(headers or {})}
        if raw is not None:
            sent.setdefault("Content-Type", "application/json")
            return await self.http.request(method, path, content=raw.encode(), headers=sent)
        if body is None:
            return await self.http.request(method, path, headers=sent)
        return await self.http.request(method, path, json=body, headers=sent)

    async def report(self, who: str, number: int | str, event_type: str, **fields: Any) -> httpx.Response:
        """POST one event; see `event`."""
        return await self.call(who, "POST", "/v1/events", event(number, event_type, self.clock.text, fields))

    async def housekeeping(self) -> None:
        """What the service does every second, done now."""
        await self.context.writer.write(approvals.expire_due)
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
