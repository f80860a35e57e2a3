"""What becomes of a call, asked by a thread and by a task, against a running service."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from governance_client import AgentRun, AsyncGovernance, ClientSettings, Governance, Refused, ToolDecision

from tests.api.client.conftest import Ask, Told, all_pending, pending, run_of
from tests.harness.running_service import Served
from tests.harness.waiting import until


def test_an_allowed_call(ask: Ask, told: Told) -> None:
    decision = ask(told(), "list", {"month": "January"})
    assert (decision.allowed, decision.status, decision.approval_id) == (True, "allowed", None)


def test_a_blocked_call_says_why(ask: Ask, told: Told) -> None:
    decision = ask(told(), "delete", {})
    assert (decision.allowed, decision.status) == (False, "blocked")
    assert [each.name for each in decision.matched] == ["No deleting"]
    assert "No deleting" in decision.reason
    assert decision.agent_message


@pytest.mark.parametrize("resolution, status", [("approve", "allowed"), ("reject", "rejected")])
def test_a_held_call_waits_for_a_person(
    ask: Ask, told: Told, service: Served, resolution: str, status: str
) -> None:
    run_id = service.ids("run")
    with ThreadPoolExecutor(1) as agents:
        asked = agents.submit(ask, told(), "pay", {"amount": 9}, run_id=run_id)
        approval = pending(service, run_id)
        assert not asked.done()
        body = {"reason": "so be it"}
        service.call("reviewer", "POST", f"/v1/approvals/{approval['approvalId']}/{resolution}", body)
        decision = asked.result(60)
    assert (decision.status, decision.approval_id) == (status, approval["approvalId"])
    assert decision.allowed is (resolution == "approve")
    assert "so be it" in decision.reason


def test_an_approval_that_nobody_gives_expires(ask: Ask, told: Told) -> None:
    decision = ask(told(), "hurry", {})
    assert (decision.status, decision.allowed) == ("expired", False)


def test_a_call_that_is_not_waited_for_is_not_allowed(ask: Ask, told: Told) -> None:
    for wait in (False, 0, 0.2):
        decision = ask(told(), "pay", {}, wait=wait)
        assert (decision.status, decision.allowed, decision.waiting) == ("awaiting_approval", False, True)
        assert decision.approval_url is not None


def test_a_restarted_agent_finds_its_approval(ask: Ask, told: Told, service: Served) -> None:
    """Another process would know no more than the run's id and the call's."""
    run_id, same = service.ids("run"), {"tool_call_id": "call-7"}
    before = ask(told(), "pay", {"amount": 7}, run_id=run_id, wait=False, **same)
    assert before.waiting
    service.call("reviewer", "POST", f"/v1/approvals/{before.approval_id}/approve", {})
    after = ask(told(), "pay", {"amount": 7}, run_id=run_id, **same)
    assert (after.allowed, after.approval_id) == (True, before.approval_id)
    changed = ask(told(), "pay", {"amount": 8}, run_id=run_id, wait=False, **same)
    assert changed.waiting and changed.approval_id != before.approval_id
    again = ask(told(), "pay", {"amount": 8}, run_id=run_id, wait=False, **same)
    assert again.waiting and again.approval_id == changed.approval_id
    assert len(run_of(service, run_id)["toolCalls"]) == 2


def test_a_call_that_has_completed_has_spent_its_approval(told: Told, service: Served) -> None:
    """Some models give their calls the same ids in each answer."""
    with Governance(told()) as governance, governance.run("a task") as run:
        first = run.check("pay", {"amount": 7}, tool_call_id="call_0", wait=False)
        service.call("reviewer", "POST", f"/v1/approvals/{first.approval_id}/approve", {})
        assert run.check("pay", {"amount": 7}, tool_call_id="call_0").allowed
        run.failed(first, "no")
        assert run.check("pay", {"amount": 7}, tool_call_id="call_0").allowed
        run.completed(first, "paid")
        again = run.check("pay", {"amount": 7}, tool_call_id="call_0", wait=False)
        assert again.waiting and again.approval_id != first.approval_id
        assert again.tool_call_id != "call_0"
        assert run.check("list", {}, tool_call_id="call_0").allowed


@pytest.mark.parametrize("before", ["blocked", "failed", "made", "held"])
@pytest.mark.parametrize("restarts", [False, True])
def test_another_call_under_the_same_id_is_decided_as_its_own(
    told: Told, service: Served, before: str, restarts: bool
) -> None:
    """Nothing of the first one counts for it, and it stays found under that id."""
    run_id = service.ids("run")

    def process(run: AgentRun) -> list[ToolDecision]:
        same: Any = {"tool_call_id": "call_0", "wait": False}
        decisions = [run.check("list", {}, **same), run.check("pay", {"amount": 9}, **same)]
        run.completed(decisions[0], "found")
        return [*decisions, run.check("delete", {}, **same)]

    with Governance(told()) as governance, governance.run("a task", run_id=run_id) as run:
        tool = {"blocked": "delete", "held": "pay"}.get(before, "fetch")
        first = run.check(tool, {"amount": 1}, tool_call_id="call_0", wait=False)
        if before == "failed":
            run.failed(first, "no")
        elif before == "made":
            run.completed(first, "done")
        run.pause()
        found = [] if restarts else process(run)
    if restarts:
        with Governance(told()) as governance, governance.run(run_id=run_id) as run:
            found = process(run)
    assert [each.status for each in found] == ["allowed", "awaiting_approval", "blocked"]
    assert len({each.tool_call_id for each in (first, *found)}) == 4
    calls = {each["toolCallId"]: each for each in run_of(service, run_id)["toolCalls"]}
    assert calls[found[0].tool_call_id]["completion"] == "completed" and len(calls) == 4
    assert not any(each["flags"] for each in calls.values())
    service.call("reviewer", "POST", f"/v1/approvals/{found[1].approval_id}/approve", {})
    with Governance(told()) as governance, governance.run(run_id=run_id) as run:
        decision = run.check("pay", {"amount": 9}, tool_call_id="call_0")
        assert (decision.allowed, decision.approval_id) == (True, found[1].approval_id)


def test_an_outcome_by_the_id_that_was_given_is_of_the_call_that_goes_on(told: Told, service: Served) -> None:
    with Governance(told()) as governance, governance.run("a task") as run:
        assert not run.check("delete", {}, tool_call_id="call_0").allowed
        for number in range(2):
            assert run.check("list", {"number": number}, tool_call_id="call_0").allowed
            run.completed("call_0", number)
    calls = run_of(service, run.run_id)["toolCalls"]
    assert [each["completion"] for each in calls] == [None, "completed", "completed"]
    assert not any(each["flags"] for each in calls)


def test_the_same_call_twice_at_once_needs_two_approvals(told: Told, service: Served) -> None:
    """Some models give two calls of one answer the same id."""

    def tasks(run_id: str) -> Future[list[ToolDecision]]:
        async def both() -> list[ToolDecision]:
            async with AsyncGovernance(told()) as governance, governance.run("a task", run_id=run_id) as run:
                asked = (run.check("pay", {"amount": 7}, tool_call_id="call_0") for _ in range(2))
                return await asyncio.gather(*asked)

        return pool.submit(asyncio.run, both())

    def threads(run_id: str) -> Future[list[ToolDecision]]:
        def ask(run: AgentRun) -> ToolDecision:
            return run.check("pay", {"amount": 7}, tool_call_id="call_0")

        def both() -> list[ToolDecision]:
            with Governance(told()) as governance, governance.run("a task", run_id=run_id) as run:
                return list(pool.map(ask, [run, run]))

        return pool.submit(both)

    with ThreadPoolExecutor(4) as pool:
        for ways in (threads, tasks):
            run_id = service.ids("run")
            asked = ways(run_id)
            until(lambda run_id=run_id: len(all_pending(service, run_id)) == 2)
            one, other = all_pending(service, run_id)
            service.call("reviewer", "POST", f"/v1/approvals/{one['approvalId']}/approve", {})
            service.call("reviewer", "POST", f"/v1/approvals/{other['approvalId']}/reject", {})
            assert sorted(each.status for each in asked.result(60)) == ["allowed", "rejected"]


def test_a_call_that_was_allowed_is_another_one_until_it_is_over(told: Told, service: Served) -> None:
    with Governance(told()) as governance, governance.run("a task") as run:
        details: Any = {"tool_call_id": "call_0", "wait": False}
        waiting = run.check("pay", {}, **details)
        service.call("reviewer", "POST", f"/v1/approvals/{waiting.approval_id}/approve", {})
        assert run.wait(waiting).allowed
        meanwhile = run.check("pay", {}, **details)
        assert meanwhile.waiting and meanwhile.approval_id != waiting.approval_id
        run.postponed("call_0")
        assert run.check("pay", {}, **details).approval_id == waiting.approval_id


def test_a_restarted_agent_knows_what_it_has_made(ask: Ask, told: Told, service: Served) -> None:
    """One decision is for one execution, and a person's word for the next one is found again."""
    run_id = service.ids("run")
    same: Any = {"run_id": run_id, "tool_call_id": "call_0", "wait": False}

    def made(verb: str, number: int) -> ToolDecision:
        waiting = ask(told(), "pay", {"amount": 7}, **same)
        assert waiting.waiting and len(run_of(service, run_id)["toolCalls"]) == number
        service.call("reviewer", "POST", f"/v1/approvals/{waiting.approval_id}/{verb}", {})
        decision = ask(told(), "pay", {"amount": 7}, **same)
        assert decision.approval_id == waiting.approval_id
        return decision

    for number in (1, 2):
        decision = made("approve", number)
        assert decision.allowed
        with Governance(told()) as governance, governance.run(run_id=run_id) as run:
            run.completed(decision, "paid")
    assert not made("reject", 3).allowed


def test_a_halt_stops_asking_and_waiting(ask: Ask, told: Told, service: Served) -> None:
    run_id = service.ids("run")
    with ThreadPoolExecutor(1) as agents:
        asked = agents.submit(ask, told(), "pay", {}, run_id=run_id)
        approval = pending(service, run_id)
        service.call("admin", "POST", "/v1/halt", {"runId": run_id, "reason": "fire drill"})
        service.call("reviewer", "POST", f"/v1/approvals/{approval['approvalId']}/reject", {})
        assert not asked.result(60).allowed
    decision = ask(told(), "list", {}, run_id=run_id)
    assert (decision.status, decision.allowed) == ("halted", False)
    assert "fire drill" in decision.reason


def test_a_key_that_is_wrong_or_revoked(ask: Ask, told: Told, service: Served) -> None:
    wrong = ask(told(api_key="agk_nobody_has_this"), "list", {})
    assert (wrong.status, wrong.allowed) == ("unauthorized", False)
    key = service.key()
    run_id = service.ids("run")
    with ThreadPoolExecutor(1) as agents:
        asked = agents.submit(ask, told(api_key=key["key"]), "pay", {}, run_id=run_id)
        approval = pending(service, run_id)
        service.call("admin", "DELETE", f"/v1/api-keys/{key['keyId']}")
        service.call("reviewer", "POST", f"/v1/approvals/{approval['approvalId']}/approve", {})
        decision = asked.result(60)
    assert (decision.status, decision.allowed) == ("unauthorized", False)


def test_a_key_of_another_agent(ask: Ask, told: Told, service: Served) -> None:
    key = service.key(agent_id="mailer")["key"]
    decision = ask(told(api_key=key, agent_id="payer"), "list", {})
    assert (decision.status, decision.allowed) == ("unauthorized", False)
    assert "mailer" in decision.reason


def test_arguments_that_cannot_be_told(ask: Ask, told: Told) -> None:
    deep: list[object] = []
    for _ in range(5_000):
        deep = [deep]
    for arguments in ({"text": "\ud800"}, {1: "a", "1": "b"}, {"deep": deep}):
        decision = ask(told(), "list", arguments)
        assert (decision.status, decision.allowed) == ("invalid", False), arguments.keys()


def test_arguments_that_change_while_a_person_looks_at_them(told: Told, service: Served) -> None:
    """A person approved what was shown, not what the list holds by then."""
    arguments = {"amounts": [9]}
    with Governance(told()) as governance, governance.run("a task") as run, ThreadPoolExecutor(1) as agents:
        asked = agents.submit(run.check, "pay", arguments)
        approval = pending(service, run.run_id)
        arguments["amounts"].append(9_000)
        service.call("reviewer", "POST", f"/v1/approvals/{approval['approvalId']}/approve", {})
        decision = asked.result(60)
    assert (decision.status, decision.allowed) == ("invalid", False)


def test_settings_of_the_environment(service: Served) -> None:
    said = {"GOVERNANCE_API_KEY": service.api_key, "GOVERNANCE_AGENT_ID": "payer"}
    address = f"http://127.0.0.1:{service.port}"
    with Governance.from_env({**said, "GOVERNANCE_URL": address}) as governance:
        assert governance.run("a task").check("list", {}).allowed
        assert service.api_key not in repr(governance.settings)


@pytest.mark.parametrize(
    "name, value",
    [
        ("GOVERNANCE_API_KEY` is not set", ""),
        ("GOVERNANCE_API_KEY` is no API key", "two\nlines"),
        ("GOVERNANCE_URL", "127.0.0.1:8700"),
        ("GOVERNANCE_URL", "http://${GOVERNANCE_HOST}:8700"),
        ("GOVERNANCE_URL", "https://<host>"),
        ("GOVERNANCE_FAIL_MODE", "ajar"),
        ("GOVERNANCE_AGENT_ID", "a" * 201),
        ("GOVERNANCE_AGENT_ID` has quotes", '"payer"'),
        ("GOVERNANCE_AGENT_ID` has quotes", "payer # of invoices"),
        ("GOVERNANCE_AGENT_ID` has quotes", "payer\r"),
        ("GOVERNANCE_JOURNAL` has quotes", "'/srv/journal'"),
        ("GOVERNANCE_JOURNAL", __file__),
    ],
)
def test_a_wrong_setting_is_named(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=name):
        ClientSettings.from_env({"GOVERNANCE_API_KEY": "agk", name.partition("`")[0]: value})


def test_a_run_needs_an_agent(told: Told) -> None:
    with Governance(told(agent_id=None)) as governance:
        with pytest.raises(ValueError, match="GOVERNANCE_AGENT_ID"):
            governance.run("a task")
        assert governance.run("a task", agent_id="payer").check("list", {}).allowed


def test_threads_share_a_client(told: Told) -> None:
    """Each call of many threads, in runs of their own and in one, has its own answer."""
    barrier = threading.Barrier(8)
    with Governance(told()) as governance, governance.run("a task") as shared:

        def agent(number: int) -> list[str]:
            barrier.wait(60)
            with governance.run("a task", parent=False) as own:
                runs = (own, shared)
                asked = [run.check(tool, {"number": number}) for run in runs for tool in ("list", "delete")]
                for decision in asked:
                    shared.report("custom.note", {"about": decision.tool_call_id})
                return [decision.status for decision in asked]

        with ThreadPoolExecutor(8) as agents:
            found = list(agents.map(agent, range(8)))
    assert found == [["allowed", "blocked"] * 2] * 8


def test_refused_carries_the_decision(told: Told) -> None:
    with Governance(told()) as governance, governance.run("a task") as run:
        guarded = run.guard(lambda: None, tool="delete")
        with pytest.raises(Refused) as refused:
            guarded()
    assert refused.value.decision.status == "blocked"
    assert str(refused.value) == refused.value.decision.agent_message


@pytest.mark.parametrize(
    ("tool", "tool_call_id"), [("li\ud800st", None), ("list", "call \udfff")], ids=["tool", "id"]
)
def test_half_a_character_in_a_name_is_refused_and_raises_nothing(
    ask: Ask, told: Told, tool: str, tool_call_id: str | None
) -> None:
    """A model writes names and ids as it likes, and JSON lets it."""
    assert ask(told(), tool, {}, tool_call_id=tool_call_id).status == "invalid"


def test_a_yes_that_is_given_after_a_key_has_ended_is_none_for_who_asked_before(
    told: Told, service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request was let in a moment before, and looks a moment after."""
    key, run_id = service.key(), service.ids("run")
    with Governance(told(api_key=key["key"])) as governance, governance.run("a task", run_id=run_id) as run:
        asked = run.check("pay", {}, wait=False)
        path, read = f"/v1/approvals/{asked.approval_id}", service.context.reads.read

        def end() -> None:
            service.answered("admin", "DELETE", f"/v1/api-keys/{key['keyId']}", status=204)
            service.answered("reviewer", "POST", f"{path}/approve", {})

        async def late(*looked: Any, **how: Any) -> Any:
            if service.context.reads.read is late:
                monkeypatch.undo()
                await asyncio.to_thread(end)
            return await read(*looked, **how)

        monkeypatch.setattr(service.context.reads, "read", late)
        assert run.wait(asked, 5).status == "unauthorized"
