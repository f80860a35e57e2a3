"""What a run reports of itself, behind its decisions and known before the next one."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest
from governance_client import AsyncGovernance, Governance, payloads

from tests.api.client import stub
from tests.api.client.conftest import Told, run_of
from tests.harness.gate import Gate
from tests.harness.nodes import CLEAN
from tests.harness.receiver import Answer, Received, Receiver
from tests.harness.running_service import Served
from tests.harness.waiting import until


def test_a_run_from_start_to_end(told: Told, service: Served) -> None:
    details = {"model": "large-2", "host": "notebook", "reason": "monthly", "context": {"goal": "no debts"}}
    with Governance(told()) as governance, governance.run("pay the bills", **details) as run:
        run.completed(run.check("fetch", {"url": "https://a.example"}), "a page")
        run.failed(run.check("list", {}), ValueError("no list"))
        run.said("and the rent")
    found = run_of(service, run.run_id)
    assert (found["status"], found["task"], found["model"]) == ("completed", "pay the bills", "large-2")
    assert found["asserted"]["agentContext"] == {"goal": "no debts"}
    assert [each["outputPayload"] for each in found["toolCalls"]] == [
        "a page",
        {"error": "ValueError: no list"},
    ]


def test_a_run_that_ends_with_an_exception_has_failed(told: Told, service: Served) -> None:
    governance = Governance(told())
    run = governance.run("a task")
    with pytest.raises(ZeroDivisionError), run:
        _ = 1 / 0
    governance.close()
    assert run_of(service, run.run_id)["status"] == "failed"


def test_an_output_is_known_before_the_next_call_is_decided(told: Told) -> None:
    """However fast the next call comes: the label of what was read decides it."""

    async def tasks() -> list[str]:
        async with AsyncGovernance(told()) as governance, governance.run("a task") as run:
            before = await run.check("send", {})
            run.completed(await run.check("fetch", {}), "a page")
            return [before.status, (await run.check("send", {})).status]

    def threads() -> list[str]:
        with Governance(told()) as governance, governance.run("a task") as run:
            before = run.check("send", {})
            run.completed(run.check("fetch", {}), "a page")
            return [before.status, run.check("send", {}).status]

    for _ in range(5):
        assert threads() == asyncio.run(tasks()) == ["allowed", "blocked"]


def test_a_sub_run_inherits_what_its_parent_has_read(told: Told, service: Served) -> None:
    with Governance(told()) as governance, governance.run("a task") as run:
        run.completed(run.check("fetch", {}), "a page")
        with governance.run("a part of it") as part:
            assert part.check("send", {}).status == "blocked"
        with governance.run("something else", parent=False) as other:
            assert other.check("send", {}).status == "allowed"
        named = governance.run("another part", parent=run.run_id, agent_id="second")
        assert named.check("send", {}).status == "blocked"
    parents = [run_of(service, each.run_id)["parentRunId"] for each in (part, other, named)]
    assert parents == [run.run_id, None, run.run_id]


def test_a_run_goes_on_from_all_that_was_reported_of_the_one_before(told: Told) -> None:
    """However fast it comes, and over a run between them of which nothing was sent yet."""
    for _ in range(3):
        with Governance(told()) as governance:
            run = governance.run("a task")
            run.completed(run.check("fetch", {}), "a page")
            between = governance.run("another", continues=run.run_id)
            between.report_start()
            assert governance.run("the last", continues=between.run_id).check("send", {}).status == "blocked"
            named = governance.run("a task")
            named.completed(named.check("fetch", {}), "a page")
            part = governance.run("a part of it", parent=named.run_id)
            assert part.check("send", {}).status == "blocked"


def test_what_the_run_before_could_not_tell_is_told_first(told: Told, service: Served) -> None:
    with Gate(service.port) as gate, Governance(told(gate.port, decide_seconds=1.0)) as governance:
        with governance.run("a task") as run:
            decision = run.check("fetch", {})
            gate.shut()
            run.completed(decision, "a page")
        gate.open()
        after = governance.run("another", continues=run.run_id)
        assert after.check("send", {}).status in ("blocked", "unavailable")
        until(lambda: after.check("send", {}).status == "blocked")


@pytest.mark.parametrize("how", ["parent", "continues"])
def test_a_run_begins_when_an_unreadable_output_of_the_one_before_is_told(told: Told, how: str) -> None:
    """The service refuses it at first, and takes it as a text when another run may have begun."""
    for _ in range(3):
        with Governance(told()) as governance, governance.run("a task") as run:
            run.completed(run.check("fetch", {}), "a\0page")
            named = {"continues": run.run_id, "parent": False} if how == "continues" else {"parent": run}
            assert governance.run("another", **named).check("send", {}).status == "blocked"


@pytest.mark.parametrize("how", ["parent", "continues"])
@pytest.mark.parametrize(
    "said",
    [
        pytest.param({"task": "a\0task"}, id="NUL"),
        pytest.param({"task": "x" * 2_000_000}, id="long"),
        pytest.param({"context": {"goal": "a\0goal"}}, id="context"),
    ],
)
def test_a_run_that_says_what_nobody_can_read_is_still_part_of_another(
    told: Told, service: Served, said: dict[str, Any], how: str
) -> None:
    """A task may be the words of a model."""
    with Governance(told()) as governance, governance.run("a task") as run:
        run.completed(run.check("fetch", {}), "a page")
        named = {"continues": run.run_id, "parent": False} if how == "continues" else {"parent": run}
        part = governance.run(**{"task": "a part", **named, **said})
        assert part.check("send", {}).status == "blocked"
    found = run_of(service, part.run_id)
    assert found["task"][:1] in ("a", "x")
    assert "goal" not in said.get("context", {}) or "goal" in found["asserted"]["agentContext"]["text"]


@pytest.mark.parametrize(
    "output",
    [
        pytest.param("x" * 3_000_000, id="long"),
        pytest.param("€" * 900_000, id="long in bytes"),
        pytest.param(json.loads("[" * 300 + "]" * 300), id="deep"),
        pytest.param([1] * 150_000, id="many values"),
        pytest.param("a \0 b", id="a NUL"),
        pytest.param("a \ud800 b", id="half a character"),
        pytest.param({"n": 10**400}, id="a number beyond a double"),
        pytest.param({1: "a", "1": "b"}, id="a key twice"),
        pytest.param({"a": {1, "b"}}, id="a mixed set"),
    ],
)
def test_no_output_gets_around_its_label(told: Told, service: Served, output: Any) -> None:
    """What the service cannot record as it is, it is told in another form: the call has read something."""
    with Governance(told()) as governance, governance.run("a task") as run:
        run.completed(run.check("fetch", {}), output)
        assert run.check("send", {}).status == "blocked"
    call = run_of(service, run.run_id)["toolCalls"][0]
    assert call["completedAt"] is not None
    assert call["outputPayload"]


@dataclass
class Note:
    """A part of an output that has members of its own."""

    text: Any


class Broken(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError


@pytest.mark.parametrize(
    "note",
    [
        pytest.param("a \0 b", id="a NUL"),
        pytest.param("a \ud800 b", id="half a character"),
        pytest.param({"a\0": 1, "a\ufffd": 2}, id="names alike"),
        pytest.param(json.loads("[" * 80 + "]" * 80), id="deep"),
        pytest.param(json.loads("[" * 300 + "]" * 300), id="deeper"),
        pytest.param([["\0"]] * 10_000, id="many values"),
        pytest.param(10**400, id="a number beyond a double"),
        pytest.param(10**5_000, id="a long number"),
        pytest.param([f"x: {10**1_000}, "] * 20, id="long numbers in texts"),
        pytest.param("x: " + f"{10**1_000}, " * 20, id="long numbers in a text"),
        pytest.param({1: "a", "1": "b"}, id="a key twice"),
        pytest.param({1, "b"}, id="a mixed set"),
        pytest.param({("a", 1): "\0"}, id="a key that is none"),
        pytest.param(Note(json.loads("[" * 80 + "]" * 80)), id="deep within a dataclass"),
        pytest.param(Broken(), id="no value"),
    ],
)
def test_what_else_an_output_says_is_told_where_a_part_cannot_be_read(
    told: Told, service: Served, note: Any
) -> None:
    """Policies ask about its members, and anybody may have written one of them."""
    with Governance(told()) as governance, governance.run("a task") as run:
        run.completed(run.check("fetch", {}), {"note": note, "classification": "secret"})
        assert run.check("send", {}).status == "blocked"
    assert run_of(service, run.run_id)["toolCalls"][0]["outputPayload"]["classification"] == "secret"


@pytest.mark.parametrize("names", [("\ud800", "\udfff"), (1, "1"), ("\0", "\0\0")])
def test_members_whose_names_are_alike_are_all_told(
    told: Told, service: Served, names: tuple[Any, ...]
) -> None:
    output = {name: f"of {name!r}" for name in names} | {"?": "c"}
    with Governance(told()) as governance, governance.run("a task") as run:
        run.completed(run.check("fetch", {}), output)
        assert run.check("send", {}).status == "blocked"
    found = run_of(service, run.run_id)["toolCalls"][0]["outputPayload"]
    assert sorted(found.values()) == sorted(output.values()) and found["?"] == "c"


def test_that_something_was_read_is_told_where_nothing_of_it_is_taken(
    told: Told, service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payloads, "plainer", lambda text: '"\\u0000"')
    monkeypatch.setattr(payloads, "plainly", lambda said: {**said, "task": "\0"})
    with Governance(told()) as governance, governance.run("a task") as run:
        run.completed(run.check("fetch", {}), "a \0 b")
        with governance.run("a \0 b") as below:
            assert below.check("send", {}).status == "blocked"
    assert run_of(service, run.run_id)["toolCalls"][0]["outputPayload"]["cut"] is True
    assert run_of(service, below.run_id)["parentRunId"] == run.run_id


def test_many_reports_go_in_order(told: Told, service: Served) -> None:
    with Governance(told()) as governance, governance.run("a task") as run:
        decisions = [run.check("list", {"number": number}) for number in range(5)]
        for number in range(700):
            run.report("custom.note", {"number": number, "text": "x" * 2_000})
        for decision in decisions:
            run.completed(decision, "done")
    found = service.context.store.read_here(
        service.context.store.rows,
        "SELECT body FROM events WHERE run_no = (SELECT run_no FROM runs WHERE run_id = ?) ORDER BY event_no",
        (run.run_id,),
    )
    events = [json.loads(row[0]) for row in found]
    numbers = [each["metadata"]["number"] for each in events if each["eventType"] == "custom.note"]
    assert numbers == list(range(700))
    kinds = [each["eventType"] for each in events]
    assert (kinds[0], kinds[-1]) == ("run.started", "run.completed")
    assert len({each["eventId"] for each in events}) == len(events)


def test_reports_arrive_without_a_further_question(told: Told, service: Served) -> None:
    governance = Governance(told())
    run = governance.run("a task").begin()
    run.completed(run.check("list", {}), "done")
    until(lambda: run_of(service, run.run_id)["toolCalls"][0]["completedAt"])
    run.end()
    governance.close()


def test_the_end_of_the_process_sends_what_is_queued(told: Told, service: Served) -> None:
    """Nothing is closed there, and the run goes on."""
    settings = told()
    program = """
import os, sys
from governance_client import Governance
run = Governance.from_env().run("a task", run_id=sys.argv[1]).begin()
run.completed(run.check("list", {}), "done")
"""
    run_id = service.ids("run")
    said = {
        "GOVERNANCE_API_KEY": settings.api_key,
        "GOVERNANCE_URL": settings.url,
        "GOVERNANCE_AGENT_ID": "payer",
        "GOVERNANCE_JOURNAL": str(settings.journal),
    }
    subprocess.run([sys.executable, "-c", program, run_id], env=CLEAN | said, check=True, timeout=120)
    found = run_of(service, run_id)
    assert (found["status"], found["toolCalls"][0]["outputPayload"]) == ("running", "done")


def test_a_lost_answer_is_asked_for_again_by_the_same_event(told: Told) -> None:
    """Busy, broken and limited, each once: the same bytes come again, as late as was asked for."""
    tries = [Answer(503), Answer(500, b"oops"), Answer(429, b"{}", {"Retry-After": "1"})]

    def plan(request: Received) -> Answer:
        return tries.pop(0) if tries else stub.plain_service(request)

    with Receiver(plan) as service, Governance(told(service.port)) as governance:
        assert governance.run("a task").check("list", {}).allowed
        asked = service.requests[:4]
        assert len({request.body for request in asked}) == 1
        assert asked[3].at - asked[2].at >= 1


def test_reports_that_are_refused_are_left_out(told: Told, service: Served) -> None:
    """One that nobody takes holds up no other."""
    with Governance(told()) as governance, governance.run("a task") as run:
        run.report("no.such.type", {})
        run.report("custom.deep", {"value": json.loads("[" * 200 + "]" * 200)})
        assert run.check("list", {}).allowed
    assert run_of(service, run.run_id)["status"] == "completed"


@pytest.mark.parametrize("sign", ["\0", "\ud800"], ids=["NUL", "half a character"])
def test_a_run_begins_and_ends_whatever_a_page_makes_of_its_words(
    told: Told, service: Served, sign: str
) -> None:
    governance = Governance(told())
    run = governance.run(f"a {sign} task", context={"goal": sign})
    with pytest.raises(RuntimeError, match="a page"), run:
        run.said(f"a {sign} word")
        raise RuntimeError(f"a page {sign}")
    governance.close()
    found = run_of(service, run.run_id)
    assert found["status"] == "failed" and found["task"].endswith(" task")
