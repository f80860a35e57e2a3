"""Many agents that wait for people in one process, and ways of waiting on."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from governance_client import AsyncGovernance, Governance, ToolDecision
from governance_client.exchange import ClientResponse, Pause

from tests.api.client.conftest import Told, pending
from tests.harness.running_service import Served
from tests.harness.waiting import until

AGENTS = 200


def test_two_hundred_agents_wait_in_one_thread(told: Told, service: Served) -> None:
    before = threading.active_count()
    most = 0
    runs = [service.ids("run") for _ in range(AGENTS)]

    def approve_all() -> None:
        nonlocal most
        waiting = until(lambda: found if len(found := _pending(service, runs)) == AGENTS else None)
        most = threading.active_count()
        for approval in waiting:
            service.call("reviewer", "POST", f"/v1/approvals/{approval}/approve", {})

    async def agents() -> list[ToolDecision]:
        async with AsyncGovernance(told()) as governance:

            async def agent(run_id: str) -> ToolDecision:
                async with governance.run("a task", run_id=run_id) as run:
                    return await run.check("pay", {"run": run_id})

            return await asyncio.gather(*map(agent, runs))

    with ThreadPoolExecutor(1) as reviewers:
        reviewed = reviewers.submit(approve_all)
        decisions = asyncio.run(agents())
        reviewed.result(60)
    assert [(each.run_id, each.allowed) for each in decisions] == [(run_id, True) for run_id in runs]
    assert most - before <= 10, f"{most - before} threads for {AGENTS} agents"


def _pending(service: Served, runs: list[str]) -> list[str]:
    answer = service.call("reviewer", "GET", "/v1/approvals?status=pending&limit=1000").json()
    return [each["approvalId"] for each in answer if each["runId"] in set(runs)]


def test_waiting_on_later(told: Told, service: Served) -> None:
    with Governance(told()) as governance, governance.run("a task") as run:
        decision = run.check("pay", {}, wait=False)
        assert run.wait(decision, seconds=0.1).waiting
        assert run.wait(decision, seconds=False).waiting
        service.call("reviewer", "POST", f"/v1/approvals/{decision.approval_id}/approve", {})
        assert run.wait(decision).allowed
        assert run.wait(run.check("delete", {})).status == "blocked"


async def test_a_task_that_is_cancelled_while_it_waits_leaves_others_alone(
    told: Told, service: Served
) -> None:
    async with AsyncGovernance(told()) as governance, governance.run("a task") as run:
        waiting = asyncio.create_task(run.check("pay", {}))
        approval = await asyncio.to_thread(pending, service, run.run_id)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert (await run.check("list", {})).allowed
        path = f"/v1/approvals/{approval['approvalId']}/approve"
        assert (await asyncio.to_thread(service.call, "reviewer", "POST", path, {})).status_code == 200


def test_a_client_of_tasks_outlives_its_event_loop(told: Told) -> None:
    governance = AsyncGovernance(told())

    async def agent() -> bool:
        async with governance.run("a task") as run:
            return (await run.check("list", {})).allowed

    assert [asyncio.run(agent()) for _ in range(3)] == [True] * 3
    governance.core.close()


def test_an_answer_that_asks_to_stay_away_for_days_is_asked_again_within_a_minute(told: Told) -> None:
    """Of something between that knows no better, such as a page of maintenance."""
    waiting = ToolDecision("awaiting_approval", "pay", "r", "c", "", "", approval_id="apr_1")
    with Governance(told()) as governance:
        flow = governance.run("a task").waiting(waiting, None)
        next(flow)
        pause = flow.send(ClientResponse(503, b"", "864000"))
        assert isinstance(pause, Pause) and pause.seconds <= 60
        flow.close()
