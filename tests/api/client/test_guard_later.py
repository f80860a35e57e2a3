"""Guarded calls that are over later than they return: tried again for a person, or awaited elsewhere."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from governance_client import AsyncGovernance, Governance, Refused, ToolDecision
from governance_client.exchange import ClientRequest, Unreachable

from tests.api.client.conftest import Told, all_pending, run_of
from tests.harness.running_service import Served


@pytest.fixture
def governance(told: Told) -> Iterator[Governance]:
    with Governance(told()) as made:
        yield made


def outputs(service: Served, run_id: str) -> list[Any]:
    """Of each call of a run."""
    return [each.get("outputPayload") for each in run_of(service, run_id)["toolCalls"]]


@pytest.mark.parametrize("wait", [False, 0.2])
@pytest.mark.parametrize("kind", ["thread", "task"])
def test_a_call_that_was_not_waited_for_finds_its_approval(
    told: Told, service: Served, wait: float, kind: str
) -> None:
    """However often it is tried; and each approval lets one call run."""
    ran: list[int] = []

    with Governance(told()) as governance, governance.run("a task") as run:

        @governance.guard(tool="pay", wait=wait)
        def in_thread(amount: int) -> None:
            ran.append(amount)

        @governance.guard(tool="pay", wait=wait)
        async def in_task(amount: int) -> None:
            ran.append(amount)

        def pay(amount: int) -> ToolDecision | None:
            try:
                in_thread(amount) if kind == "thread" else asyncio.run(in_task(amount))
            except Refused as refused:
                return refused.decision
            return None

        first, second, other = pay(7), pay(7), pay(8)
        assert first and second and other
        assert first.waiting and first.approval_id == second.approval_id != other.approval_id
        service.call("reviewer", "POST", f"/v1/approvals/{first.approval_id}/approve", {})
        assert pay(7) is None and ran == [7]
        again = pay(7)
        assert again and again.waiting and again.approval_id != first.approval_id
        service.call("reviewer", "POST", f"/v1/approvals/{again.approval_id}/reject", {})
        refused, anew = pay(7), pay(7)  # a no is told once, then it is another call
        assert refused and refused.status == "blocked" and anew and anew.waiting
    assert ran == [7] and len(run_of(service, run.run_id)["toolCalls"]) == 4


def test_a_call_whose_waiting_was_cancelled_finds_its_approval(told: Told, service: Served) -> None:
    ran: list[int] = []

    async def agent(run_id: str) -> None:
        async with AsyncGovernance(told()) as governance, governance.run("a task", run_id=run_id):

            @governance.guard
            async def pay(amount: int) -> None:
                ran.append(amount)

            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.gather(pay(7), pay(7)), 1.0)
            both = asyncio.gather(pay(7), pay(7))
            approvals = await asyncio.to_thread(all_pending, service, run_id)
            assert len(approvals) == 2
            for each in approvals:
                path = f"/v1/approvals/{each['approvalId']}/approve"
                await asyncio.to_thread(service.call, "reviewer", "POST", path, {})
            await both

    run_id = service.ids("run")
    asyncio.run(agent(run_id))
    assert ran == [7, 7] and len(run_of(service, run_id)["toolCalls"]) == 2


@pytest.mark.parametrize("how", ["away", "cancelled"])
async def test_a_call_that_was_left_waiting_is_not_lost_where_nobody_answers(
    told: Told, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """It finds its approval again once somebody does: no second one is asked for."""

    async def silent(request: ClientRequest) -> None:
        if how == "away":
            raise Unreachable("nobody is there")
        await asyncio.sleep(60)

    async with AsyncGovernance(told(decide_seconds=0.3)) as governance, governance.run("a task"):

        @governance.guard(wait=False)
        async def pay(amount: int) -> None:
            raise AssertionError("nobody has said yes")

        async def waiting() -> str | None:
            with pytest.raises(Refused) as refused:
                await pay(7)
            return refused.value.decision.approval_id

        first = await waiting()
        with monkeypatch.context() as patched:
            patched.setattr(governance.core.driver, "_request_async", silent)
            with pytest.raises((Refused, TimeoutError)):
                await asyncio.wait_for(pay(7), 60 if how == "away" else 0.1)
        assert first is not None and await waiting() == first


class Later:
    """Something to be awaited that is no coroutine."""

    def __await__(self) -> Iterator[Any]:
        yield from asyncio.sleep(0).__await__()
        return "later"


class Request(Later):
    """Something to be awaited or entered, as a request of aiohttp is."""

    async def __aenter__(self) -> str:
        return "entered"

    async def __aexit__(self, *error: object) -> None: ...


def test_a_context_that_could_be_awaited_stays_one(governance: Governance, service: Served) -> None:
    async def agent() -> str:
        async with governance.guard(Request, tool="get")() as entered:
            return entered

    with governance.run("a task") as run:
        assert asyncio.run(agent()) == "entered"
    (call,) = run_of(service, run.run_id)["toolCalls"]
    assert call["completion"] == "completed"


def test_what_is_awaited_later_is_reported_when_it_is_over(governance: Governance, service: Served) -> None:
    """A plain function may hand back a coroutine, a task or anything else that comes to something later."""
    go = threading.Event()

    async def work(fails: bool = False) -> str:
        await asyncio.sleep(0)
        if fails:
            raise KeyError("nothing there")
        return "worked"

    class Desk:
        async def __call__(self, a: int) -> int:
            return await asyncio.sleep(0, a)

    @governance.guard
    def hands_over(kind: str) -> Any:
        if kind == "task":
            return asyncio.ensure_future(work())
        return {"coroutine": work, "fails": lambda: work(True), "other": Later}[kind]()

    @governance.guard
    def submits() -> Future[str]:
        return pool.submit(lambda: str(go.wait(60)))

    async def agent() -> None:
        task = hands_over("task")
        assert isinstance(task, asyncio.Task)
        open_ones = [hands_over("coroutine"), hands_over("other"), hands_over("fails"), desk(3)]
        governance.core.driver.run(governance.core.flushing())
        assert outputs(service, run.run_id) == [None] * 5
        assert await task == "worked"
        assert [await each for each in open_ones[:2]] == ["worked", "later"]
        with pytest.raises(KeyError):
            await open_ones[2]
        assert await open_ones[3] == 3

    desk = governance.guard(Desk(), tool="desk")
    with governance.run("a task") as run, ThreadPoolExecutor(1) as pool:
        asyncio.run(agent())
        submitted = submits()
        go.set()
        assert submitted.result(60) == "True"
    assert outputs(service, run.run_id) == [
        "worked",
        "worked",
        "later",
        {"error": "KeyError: 'nothing there'"},
        3,
        "True",
    ]
