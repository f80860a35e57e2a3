"""A running service with a policy for each outcome, and a client of each kind that asks it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from governance_client import AsyncGovernance, ClientSettings, Governance, ToolDecision
from governance_client.client_key import ClientKey
from governance_client.journal import OfflineJournal

from tests.harness.policy_bodies import on_tool, policy_body, where
from tests.harness.running_service import Served
from tests.harness.waiting import until

POLICIES = [
    on_tool("No deleting", "block", "delete"),
    on_tool("Ask before paying", "require_approval", "pay"),
    on_tool("Ask for a moment", "require_approval", "hurry", approval={"expiresAfterSeconds": 1}),
    on_tool("Label what was read", "allow", "fetch", on="tool.completed", labels={"add": ["untrusted"]}),
    policy_body(
        "No sending after reading",
        "block",
        where("toolName", "equals", "send"),
        where("run.labels", "contains", "untrusted"),
    ),
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("service"), POLICIES) as made:
        yield made


class Told(Protocol):
    def __call__(self, port: int | None = None, **changes: Any) -> ClientSettings: ...


@pytest.fixture
def told(service: Served, tmp_path: Path) -> Told:
    """Settings of an agent of this test's own."""

    def make(port: int | None = None, **changes: Any) -> ClientSettings:
        usual: dict[str, Any] = {
            "api_key": service.api_key,
            "url": f"http://127.0.0.1:{port or service.port}",
            "agent_id": "payer",
            "journal": tmp_path / "journal",
            "decide_seconds": 60.0,
        }
        return ClientSettings(**{**usual, **changes})

    return make


def journal_of(settings: ClientSettings) -> OfflineJournal:
    return OfflineJournal(settings, "payer", ClientKey(settings))


Ask = Callable[..., ToolDecision]


def _by_thread(settings: ClientSettings, tool: str, arguments: Any, **details: Any) -> ToolDecision:
    run_id = details.pop("run_id", None)
    with Governance(settings) as governance, governance.run("a task", run_id=run_id) as run:
        return run.check(tool, arguments, **details)


def _by_task(settings: ClientSettings, tool: str, arguments: Any, **details: Any) -> ToolDecision:
    run_id = details.pop("run_id", None)

    async def ask() -> ToolDecision:
        async with AsyncGovernance(settings) as governance, governance.run("a task", run_id=run_id) as run:
            return await run.check(tool, arguments, **details)

    return asyncio.run(ask())


@pytest.fixture(params=[_by_thread, _by_task], ids=["thread", "task"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """One question in a run of its own."""
    made: Ask = request.param
    return made


def pending(service: Served, run_id: str, seconds: float = 60) -> dict[str, Any]:
    """The approval of a run that waits, once there is one."""
    return until(lambda: next((each for each in _waiting(service) if each["runId"] == run_id), None), seconds)


def all_pending(service: Served, run_id: str) -> list[dict[str, Any]]:
    """The approvals of a run that wait by now."""
    return [each for each in _waiting(service) if each["runId"] == run_id]


def _waiting(service: Served) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = service.call(
        "reviewer", "GET", "/v1/approvals?status=pending&limit=1000"
    ).json()
    return found


def run_of(service: Served, run_id: str) -> dict[str, Any]:
    found: dict[str, Any] = service.call("agent", "GET", f"/v1/runs/{run_id}").json()
    return found
