"""While the service is away: `closed` refuses, `open` writes down first; both know what they were told."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import governance_client
import pytest
from governance_client import AsyncGovernance, Governance, run_memory

from tests.api.client.conftest import Ask, Told, pending
from tests.harness.gate import Gate
from tests.harness.nodes import CLEAN
from tests.harness.receiver import Answer, Received, Receiver
from tests.harness.running_service import Served
from tests.harness.waiting import until


@pytest.fixture
def gate(service: Served) -> Iterator[Gate]:
    with Gate(service.port) as made:
        yield made


def files(told: Told) -> list[Path]:
    folder = told().journal
    return sorted(folder.glob("*.jsonl")) if folder.exists() else []


def entries(told: Told) -> list[dict[str, Any]]:
    """What stands in the journals."""
    return [json.loads(line) for path in files(told) for line in path.read_text().splitlines()]


def bodies(service: Served, run_id: str) -> list[dict[str, Any]]:
    """The recorded events of a run, in order."""
    rows = service.context.store.read_here(
        service.context.store.rows,
        "SELECT body FROM events WHERE run_no = (SELECT run_no FROM runs WHERE run_id = ?) ORDER BY event_no",
        (run_id,),
    )
    return [json.loads(row[0]) for row in rows]


# Closed -------------------------------------------------------------------------------------------


def test_closed_refuses_and_asks_again_when_it_is_back(told: Told, gate: Gate) -> None:
    gate.shut()
    with Governance(told(gate.port, decide_seconds=0.3)) as governance, governance.run("a task") as run:
        decision = run.check("list", {})
        assert (decision.status, decision.allowed) == ("unavailable", False)
        assert "again later" in decision.agent_message
        gate.open()
        until(lambda: run.check("list", {}).allowed)
    assert files(told) == []


BY_THREAD = """
import sys
from governance_client import Governance
with Governance.from_env() as governance:
    run = governance.run("a task", run_id=sys.argv[1])
    fetched = run.check("fetch", {})
    print("read", flush=True)
    sys.stdin.read()
    run.completed(fetched, "a page")
"""
BY_TASK = """
import asyncio, sys
from governance_client import AsyncGovernance
async def main():
    async with AsyncGovernance.from_env() as governance:
        run = governance.run("a task", run_id=sys.argv[1])
        fetched = await run.check("fetch", {})
        print("read", flush=True)
        sys.stdin.read()
        run.completed(fetched, "a page")
asyncio.run(main())
"""


@pytest.mark.parametrize("fail_mode", ["closed", "open"])
@pytest.mark.parametrize("program", [BY_THREAD, BY_TASK], ids=["thread", "task"])
def test_what_was_read_at_the_end_of_a_process_is_known_to_the_next(
    told: Told, gate: Gate, service: Served, fail_mode: Any, program: str
) -> None:
    """The same run goes on there: after a restart of the agent, or when a person has answered."""
    settings, run_id = told(gate.port, fail_mode=fail_mode), service.ids("run")
    said = {
        "GOVERNANCE_API_KEY": settings.api_key,
        "GOVERNANCE_URL": settings.url,
        "GOVERNANCE_AGENT_ID": "payer",
        "GOVERNANCE_FAIL_MODE": fail_mode,
        "GOVERNANCE_JOURNAL": str(settings.journal),
        "PYTHONPATH": str(Path(governance_client.__file__).parent.parent),
    }
    words = [sys.executable, "-c", program, run_id]
    with subprocess.Popen(words, env=CLEAN | said, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == b"read\n"
        gate.shut()
        agent.communicate(timeout=60)
    assert agent.returncode == 0
    gate.open()
    with Governance(settings) as governance:
        assert governance.run("a task", run_id=run_id).check("send", {}).status == "blocked"
    assert files(told) == []


def test_closed_rides_out_a_restart(ask: Ask, told: Told, gate: Gate) -> None:
    gate.shut()
    with ThreadPoolExecutor(1) as agents:
        asked = agents.submit(ask, told(gate.port), "list", {})
        time.sleep(0.3)
        assert not asked.done()
        gate.open()
        assert asked.result(60).allowed


def test_waiting_outlasts_a_service_that_is_away(ask: Ask, told: Told, gate: Gate, service: Served) -> None:
    run_id = service.ids("run")
    with ThreadPoolExecutor(1) as agents:
        asked = agents.submit(ask, told(gate.port), "pay", {}, run_id=run_id)
        approval = pending(service, run_id)
        gate.shut()
        service.call("reviewer", "POST", f"/v1/approvals/{approval['approvalId']}/approve", {})
        gate.open()
        assert asked.result(60).allowed


def test_a_call_whose_answer_was_lost_is_recorded_once(
    ask: Ask, told: Told, gate: Gate, service: Served
) -> None:
    run_id = service.ids("run")
    gate.cut_answers = True
    with ThreadPoolExecutor(1) as agents:
        asked = agents.submit(ask, told(gate.port), "list", {}, run_id=run_id)
        until(lambda: gate.connections > 3)
        gate.cut_answers = False
        assert asked.result(60).allowed
    events = bodies(service, run_id)
    assert [each["eventType"] for each in events] == ["run.started", "tool.called", "run.completed"]


# Open ---------------------------------------------------------------------------------------------


def test_open_refuses_everything_to_a_run_with_more_refusals_than_are_remembered(
    told: Told, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_memory, "MOST_REFUSED", 4)
    with Governance(told(gate.port, fail_mode="open")) as governance, governance.run("a task") as run:
        for number in range(3):  # each is remembered by its id and by what it would do
            assert run.check("delete", {"number": number}).status == "blocked"
        assert run.check("list", {}).allowed
        gate.shut()
        for tool in ("delete", "list"):
            decision = run.check(tool, {"number": 9})
            assert not decision.allowed, decision
        gate.open()
        until(lambda: run.check("list", {}).allowed)
    assert entries(told) == []


def test_open_writes_down_and_reports_once(told: Told, gate: Gate, service: Served) -> None:
    settings = told(gate.port, fail_mode="open")
    gate.shut()
    with Governance(settings) as governance:
        run = governance.run("a task").begin()
        before = time.time()
        decision = run.check("list", {"number": 1})
        after = time.time()
        assert (decision.allowed, decision.decided_offline) == (True, True)
        run.completed(decision, "done")
        kept = entries(told)
        assert [each["eventType"] for each in kept] == ["run.started", "tool.called", "tool.completed"]
        assert kept[1]["metadata"]["decidedOffline"] is True
        assert [stat.S_IMODE(path.stat().st_mode) for path in files(told)] == [0o600]
        gate.open()
        until(lambda: not entries(told))
        assert run.check("list", {"number": 2}).decided_offline is False
        run.end()
    assert files(told) == []
    found = bodies(service, run.run_id)
    assert found[:3] == kept
    assert [each["eventType"] for each in found[3:]] == ["tool.called", "run.completed"]
    moment = found[1]["timestamp"]
    assert time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(before)) <= moment
    assert moment <= time.strftime("%Y-%m-%dT%H:%M:%S~", time.gmtime(after))


def test_open_for_tasks(told: Told, gate: Gate, service: Served) -> None:
    async def agent() -> str:
        settings = told(gate.port, fail_mode="open")
        async with AsyncGovernance(settings) as governance, governance.run("a task") as run:
            gate.shut()
            assert (await run.check("list", {})).decided_offline
            gate.open()
            decision = await run.check("send", {})
            assert (decision.allowed, decision.decided_offline) == (True, False)
            return run.run_id

    run_id = asyncio.run(agent())
    kinds = [each["eventType"] for each in bodies(service, run_id)]
    assert kinds == ["run.started", "tool.called", "tool.called", "run.completed"]


def test_what_a_dead_agent_left_is_reported_by_the_next(told: Told, gate: Gate, service: Served) -> None:
    """Also when its last line is half, and another one no event at all."""
    settings = told(gate.port, fail_mode="open")
    gate.shut()
    dead = Governance(settings)
    run_id = service.ids("run")
    run = dead.run("a task", run_id=run_id)
    assert run.check("list", {}).decided_offline
    dead.core.release()  # as its death lets go of its lock
    (journal,) = files(told)
    with journal.open("ab") as end:
        end.write(b'{"eventId": 7}\n{"eventId": "half a li')
    gate.open()
    with Governance(settings) as governance:
        # What was done before it is known first.
        assert governance.run("a task", run_id=run_id).check("list", {"number": 2}).allowed
        (kept,) = files(told)
    assert kept.name == "refused.jsonl"
    assert json.loads(kept.read_text())["event"] == '{"eventId": 7}'
    kinds = [each["eventType"] for each in bodies(service, run_id)]
    assert kinds == ["run.started", "tool.called", "run.started", "tool.called"]


def test_several_agents_share_a_folder(told: Told, gate: Gate, service: Served) -> None:
    """Each has a file of its own; nobody takes what another one still holds, nor what another agent left."""
    gate.shut()
    settings = [told(gate.port, fail_mode="open", agent_id=name) for name in ("payer", "payer", "mailer")]
    made = [Governance(each) for each in settings]
    runs = [each.run("a task") for each in made]
    assert all(run.check("list", {}).decided_offline for run in runs)
    assert len(files(told)) == 3
    dead, other = made[0], made[1]
    dead.core.release()
    gate.open()
    other.core.adopt_all()
    until(lambda: [len(bodies(service, run.run_id)) for run in runs] == [2, 2, 2])
    for each in made[1:]:
        each.close()
    assert files(told) == []


@pytest.mark.parametrize(
    ("health", "sign"),
    [
        (Answer(200), "though it says that it is well"),
        (Answer(403), "and `/health/ready` answers 403: let that address through"),
        (Answer(404), "and `/health/ready` answers 404: let that address through"),
        (Answer(502), ""),
        (Answer(503), ""),
        (Answer(delay=60), ""),
    ],
    ids=repr,
)
def test_a_service_that_keeps_one_waiting_is_not_away(
    told: Told, monkeypatch: pytest.MonkeyPatch, health: Answer, sign: str
) -> None:
    """As it does with a key that takes more than its share: so an agent would get around every policy. Nor is
    one whose health a proxy keeps to itself: the proxy may limit requests, and answer 503 for it."""
    monkeypatch.setattr("governance_client.deciding.OPEN_SECONDS", 0.5)

    def plan(request: Received) -> Answer:
        return health if request.path == "/health/ready" else Answer(delay=60)

    with Receiver(plan) as busy, Governance(told(busy.port, fail_mode="open")) as governance:
        decision = governance.run("a task").check("delete", {})
        assert decision.allowed is decision.decided_offline is not bool(sign)
        assert sign in decision.reason
        assert bool(entries(told)) is not bool(sign)


def test_nor_is_it_for_a_call_that_waits_for_what_another_one_sends(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was away before, and is back for all that is asked by now."""
    monkeypatch.setattr("governance_client.deciding.OPEN_SECONDS", 0.5)
    back = False

    def plan(request: Received) -> Answer:
        return Answer(503) if not back else Answer(delay=0 if request.path == "/health/ready" else 60)

    with Receiver(plan) as busy, Governance(told(busy.port, fail_mode="open")) as governance:
        run = governance.run("a task")
        assert run.check("list", {}).decided_offline
        back = True
        with ThreadPoolExecutor(2) as agents:
            calls = [agents.submit(run.check, "delete", {"number": number}) for number in range(2)]
            assert not any(each.result(60).allowed for each in calls)


def test_what_cannot_be_written_down_does_not_run(told: Told, gate: Gate) -> None:
    gate.shut()
    with Governance(told(gate.port, fail_mode="open")) as governance:
        run = governance.run("a task")
        assert run.check("list", {}).allowed
        for fault in ("write", "fsync"):
            with mock.patch.object(os, fault, side_effect=OSError(errno.ENOSPC, "no space left")):
                decision = run.check("list", {})
            assert (decision.status, decision.allowed) == ("unavailable", False)
            assert "no space left" in decision.reason
        with mock.patch.object(os, "write", side_effect=lambda descriptor, content: 1):
            assert not run.check("list", {}).allowed
        assert run.check("list", {}).allowed
        gate.open()


def test_what_was_refused_before_stays_so(told: Told, gate: Gate, service: Served) -> None:
    settings = told(gate.port, fail_mode="open")
    with Governance(settings) as governance, governance.run("a task") as run:
        assert run.check("delete", {"path": "/"}).status == "blocked"
        held = run.check("pay", {"amount": 1}, wait=False, tool_call_id="call-1")
        assert held.waiting
        gate.shut()
        assert run.check("delete", {"path": "/"}).status == "blocked"
        assert run.check("pay", {"amount": 1}).status == "awaiting_approval"
        with governance.run("a part of it") as part:
            assert part.check("delete", {"path": "/"}).status == "blocked"
        assert run.check("delete", {"path": "/tmp/x"}).decided_offline
        gate.open()
        service.call("admin", "POST", "/v1/halt", {"runId": run.run_id, "reason": "fire drill"})
        until(lambda: run.check("list", {}).status == "halted")
        gate.shut()
        assert run.check("list", {"number": 2}).status == "halted"
        assert part.check("list", {}).status == "halted"
        gate.open()
        service.call("admin", "POST", "/v1/resume", {"runId": run.run_id})
        until(lambda: run.check("list", {}).allowed)
        gate.shut()
        assert run.check("list", {}).decided_offline
        gate.open()


def test_a_refused_entry_is_kept_for_people(told: Told, gate: Gate, service: Served) -> None:
    """The service was asked in between by somebody else, so the run is not this agent's."""
    gate.shut()
    run_id = service.ids("run")
    with Governance(told(gate.port, fail_mode="open")) as governance:
        run = governance.run("a task", run_id=run_id)
        assert run.check("list", {}).decided_offline
        other = {"eventId": service.ids("event"), "runId": run_id, "agentId": "payer"}
        made = {"timestamp": "2026-01-31T09:30:00Z", "eventType": "custom.note"}
        assert service.call("second agent", "POST", "/v1/events", {**other, **made}).status_code == 200
        gate.open()
        (kept,) = until(lambda: [path for path in files(told) if path.name == "refused.jsonl"])
        refusals = until(lambda: found if len(found := kept.read_text().splitlines()) == 2 else None)
    refusal = json.loads(refusals[1])
    assert "another API key" in refusal["why"]
    assert refusal["event"]["metadata"]["decidedOffline"] is True
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_a_forked_agent_leaves_its_parents_entries_alone(told: Told, gate: Gate, service: Served) -> None:
    gate.shut()
    with Governance(told(gate.port, fail_mode="open")) as governance:
        run = governance.run("a task")
        assert run.check("list", {"number": 1}).decided_offline
        child = os.fork()
        if child == 0:
            status = 1
            try:
                if run.check("list", {"number": 2}).decided_offline and len(files(told)) == 2:
                    status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        gate.open()
        governance.core.adopt_all()
        until(lambda: len(bodies(service, run.run_id)) == 3)
    assert files(told) == []
