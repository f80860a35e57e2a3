"""Random stories of people, calls, approvals and days that go by, against a plain model of what is kept."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from api.audit.retention import record_retention
from api.audit.verification import Expectation
from api.database.partitions import catalog
from api.database.partitions.upkeep import Partitions, midnight
from tests.api.audit.retention.test_record_retention import YEAR
from tests.api.audit.test_verification import POLICIES
from tests.harness.application import Service
from tests.harness.dropping import DAY, DAYS, Died, certified, cleaned, log_of, signed, verified
from tests.harness.effort import examples
from tests.harness.postgres import Postgres

DAYS_TOGETHER = catalog.RECORDS.days_of_one(DAYS)
_LEFT = "SELECT chain, sequence, at FROM audit WHERE organisation_id = 'default'"
STEPS = st.lists(
    st.one_of(
        st.sampled_from(["look", "wipe", "pay", "approve", "people", "policy", "halt", "hook", "resume"]),
        st.sampled_from(["sign", "sign", "sign", "clean", "clean", "die certified", "die deleting", "start"]),
        st.sampled_from([1, 7, 16, 40]),
    ),
    min_size=6,
    max_size=40,
)


class Story:
    """A service, and beside it all records there ever were, and when they were signed."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.number = 0
        self.days_left = YEAR // DAY - 41
        self.records: dict[tuple[int, int], str] = {}
        self.signed: list[tuple[str, dict[int, int]]] = []
        self.noted: list[Expectation] = []
        self.cut: dict[int, int] = {}
        self.partitions = [
            Partitions(service.context.store, DAYS, table) for table in (catalog.EVENTS, catalog.RECORDS)
        ]

    async def take(self, step: Any) -> None:
        if isinstance(step, int):
            # A token lives for a year at most, and the end of the story takes 40 days.
            step = min(step, self.days_left)
            self.days_left -= step
            self.service.clock.advance(step * DAY)
        else:
            await getattr(self, f"_{step.replace(' ', '_')}", self._call)(step)
        for chain, sequence, type in await log_of(self.service):
            self.records.setdefault((chain, sequence), type)

    async def _ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = await self.service.call("admin", method, path, body)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    async def _call(self, tool: str) -> None:
        self.number += 1
        fields = {"toolCallId": f"c-{self.number}", "toolName": tool, "inputPayload": {"n": self.number}}
        answer = await self.service.report("agent", self.number, "tool.called", **fields)
        assert answer.status_code == 200, answer.text

    async def _approve(self, _: str) -> None:
        for each in (await self._ask("GET", "/v1/approvals?status=pending"))[:1]:
            await self._ask("POST", f"/v1/approvals/{each['approvalId']}/approve", {})

    async def _people(self, _: str) -> None:
        people = {each["email"]: each for each in await self._ask("GET", "/v1/users")}
        vera = people["vera@acme.example"]
        role = "reviewer" if vera["role"] == "viewer" else "viewer"
        await self._ask("PATCH", f"/v1/users/{vera['userId']}", {"role": role})

    async def _policy(self, _: str) -> None:
        action = "warn" if self.number % 2 else "block"
        await self._ask("PATCH", "/v1/policies/no-wipes", {"action": action})

    async def _halt(self, _: str) -> None:
        await self._ask("POST", "/v1/halt", {"agentId": "robot"})

    async def _resume(self, _: str) -> None:
        await self._ask("POST", "/v1/resume", {"agentId": "robot"})

    async def _hook(self, _: str) -> None:
        hooks = await self._ask("GET", "/v1/webhooks")
        if hooks:
            await self._ask("DELETE", f"/v1/webhooks/{hooks[0]['webhookId']}")
        else:
            await self._ask("POST", "/v1/webhooks", {"url": "https://h.example/1", "events": ["run.failed"]})

    async def _sign(self, _: str) -> None:
        await signed(self.service)
        tips: dict[int, int] = {}
        for chain, sequence, _type in await log_of(self.service):
            tips[chain] = max(tips.get(chain, 0), sequence)
        self.signed.append((self.service.clock.text, tips))
        found = await verified(self.service)
        self.noted.append(Expectation(found["count"], found["lastHash"]))

    def _expected(self) -> Mapping[int, int]:
        """What may go of each chain."""
        before = midnight(self.service.clock() - DAYS * DAY)
        for at, tips in self.signed:
            if at < before:
                self.cut |= tips
        return self.cut

    async def _clean(self, _: str) -> None:
        for each in self.partitions:
            await self.service.context.store.read(each.prepare, self.service.clock())
        await cleaned(self.service)
        cut = self._expected()
        rows = await self.service.context.store.read(self.service.context.store.rows, _LEFT)
        left = {(chain, sequence): at for chain, sequence, at in rows}
        let_go = {name: at for name, at in left.items() if name[1] <= cut.get(name[0], 0)}
        assert (
            self.records.keys() - left.keys()
            == {name for name in self.records if name[1] <= cut.get(name[0], 0)} - let_go.keys()
        )
        # On PostgreSQL they stay until all of their partition, and those before, are let go.
        before = self.service.clock() - DAYS * DAY
        young = midnight(before - DAYS_TOGETHER * DAY)
        waiting = any(at < midnight(before) for name, at in left.items() if name not in let_go)
        if self.service.context.store.is_sqlite:
            assert not let_go
        assert waiting or all(at >= young for at in let_go.values())

    @contextlib.contextmanager
    def _until_death(self) -> Iterator[None]:
        """What an earlier death has left goes first; only whoever comes to it signs what may go now."""
        certify = record_retention.certify
        with mock.patch.object(record_retention, "certify", wraps=certify) as certifying:
            yield
        if certifying.called:
            self._expected()

    async def _die_certified(self, _: str) -> None:
        with self._until_death():
            await certified(self.service)

    async def _die_deleting(self, _: str) -> None:
        deleted = record_retention.delete

        calls = itertools.count()

        def once(*arguments: Any, **named: Any) -> int:
            if next(calls):
                raise Died
            return deleted(*arguments, **named | {"most": 3})

        dying = mock.patch.object(record_retention, "delete", once)
        with self._until_death(), contextlib.suppress(Died), dying:
            await cleaned(self.service)

    async def _start(self, _: str) -> None:
        """Another process begins: it signs all it finds."""
        await self._sign("")

    async def check(self) -> None:
        found = await verified(self.service)
        assert (found["problems"], found["count"]) == ([], len(self.records))
        gone = sum(self.cut.values())
        assert (found["dropped"] or {"records": 0})["records"] == gone
        for noted in self.noted[:1] + self.noted[-1:]:
            assert (await verified(self.service, expected=noted))["problems"] == []
        assert (await verified(self.service, "other"))["problems"] == []


async def told(folder: Path, database_url: str, steps: list[Any]) -> None:
    environment = {
        "GOVERNANCE_DATABASE_URL": database_url,
        "GOVERNANCE_TOKEN_SECONDS": str(YEAR),
        "GOVERNANCE_EVENT_DAYS": str(DAYS),
        "GOVERNANCE_AUDIT_DAYS": str(DAYS),
    }
    async with Service(folder, POLICIES, live=True, environment=environment) as service:
        story = Story(service)
        for step in steps:
            await story.take(step)
        await story.check()
        await story.take("sign")
        service.clock.advance(40 * DAY)
        await story.take("clean")
        await story.check()


@pytest.fixture(autouse=True)
def rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service cleans once, when it starts; then the story does."""
    monkeypatch.setattr("api.retention.cleaning.EVERY_SECONDS", 86_400.0)


@examples(12, 300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_stories_on_sqlite(steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(told(Path(folder), "", steps))


@pytest.mark.postgres
@pytest.mark.slow
def test_stories_on_postgresql(postgres: Postgres) -> None:
    @examples(8, 200, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(steps=STEPS)
    def stories(steps: list[Any]) -> None:
        url = postgres.create(postgres.migrated)
        try:
            with tempfile.TemporaryDirectory() as folder:
                asyncio.run(told(Path(folder), url, steps))
        finally:
            postgres.drop(url)

    stories()
