"""Every shipped detector fires on a run that deserves it, once, and on nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from api.alerts import unseen
from tests.harness.application import NO_LAUNCHES, Service, event
from tests.harness.policy_bodies import on_tool
from tests.harness.watching import alerts, files, look

HOLD = on_tool("Hold wires", "require_approval", "wire")


Story = Callable[..., Awaitable[None]]


async def played(tmp_path: Path, story: Story, *arguments: Any) -> None:
    """A story on a service with the shipped detectors."""
    async with Service(tmp_path, [NO_LAUNCHES, HOLD], live=True, files=files()) as service:
        await story(service, *arguments)


class Script:
    """Events of a run, one after another."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.number = 0

    async def send(self, who: str, events: Iterable[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
        bodies = []
        for event_type, fields in events:
            self.number += 1
            if event_type == "tool.called":
                fields = {"toolCallId": f"call-{self.number}", **fields}
            bodies.append(event(self.number, event_type, self.service.clock.text, fields))
        answers: list[dict[str, Any]] = []
        for start in range(0, len(bodies), 500):
            part = {"events": bodies[start : start + 500]}
            answer = await self.service.answered(who, "POST", "/v1/events/batch", part)
            answers += [each.get("answer") or each for each in answer["results"]]
        return answers

    async def calls(self, tools: Iterable[str], who: str = "agent", **fields: Any) -> list[dict[str, Any]]:
        return await self.send(who, [("tool.called", {"toolName": tool, **fields}) for tool in tools])


async def only(service: Service, detector_id: str) -> dict[str, Any]:
    """The one alert that there is."""
    await look(service)
    found = await alerts(service)
    assert [each["detectorId"] for each in found] == [detector_id], found
    return found[0]


async def many_different_tools(service: Service) -> None:
    script = Script(service)
    await script.calls(f"make_{letter}" for letter in "abcdefghijklmn")
    alert = await only(service, "many-different-tools")
    assert (alert["agentId"], alert["count"], alert["severity"]) == ("mailer", 14, "high")
    assert alert["summary"] == "12 different tools of the agent `mailer` within 10 minutes"
    assert len(alert["evidence"]) == 14
    record = await service.call("admin", "GET", f"/v1/audit/{alert['evidence'][0]}")
    assert record.json()["toolName"] == "make_a"


async def repeated_refusals_count_up_in_one_alert(service: Service) -> None:
    script = Script(service)
    await script.calls(["launch"] * 9)
    await look(service)
    assert await alerts(service) == []
    await script.calls(["launch"] * 3)
    await look(service)
    await script.calls(["launch"] * 40)
    await look(service)
    alert = await only(service, "repeated-refusals")
    assert (alert["count"], alert["threshold"], len(alert["evidence"])) == (52, 10, 20)


async def first_write_of_a_reader(service: Service) -> None:
    script = Script(service)
    await script.calls([*["read_file"] * 60, "write_file", *["write_file"] * 10])
    alert = await only(service, "first-write-of-a-reader")
    assert "`write_file`, after 50 others or more" in alert["summary"] and alert["count"] == 1


async def a_burst(service: Service) -> None:
    script = Script(service)
    for _ in range(11):
        await script.calls(["read_file"] * 3)
        service.clock.advance(60)
    await script.calls(["read_file"] * 300)
    alert = await only(service, "burst-of-calls")
    assert alert["count"] == 300 and alert["agentId"] == "mailer"


async def an_enforcement_gap(service: Service) -> None:
    script = Script(service)
    await script.calls(["launch"], toolCallId="call-x")
    await script.send("agent", [("tool.completed", {"toolCallId": "call-x"})])
    alert = await only(service, "enforcement-gap")
    assert (alert["severity"], alert["agentId"], alert["runId"]) == ("critical", "mailer", "run-1")


async def an_agent_that_nobody_has_seen(service: Service) -> None:
    script = Script(service)
    await script.calls(["read_file"] * 500)
    await script.calls(["read_file"], agentId="stranger", runId="run-2")
    alert = await only(service, "unknown-agent")
    assert alert["summary"] == "the agent `stranger` was never seen before"
    assert alert["agentId"] == "stranger"


async def an_agent_that_is_another_one(service: Service, what: str) -> None:
    script = Script(service)
    who = {"model": "m-1", "host": "claude-code"}
    await script.send("agent", [("run.started", who)])
    await script.calls(["read_file"] * 30)
    if what == "API key":
        await script.calls(["read_file"], who="second agent", runId="run-2")
    else:
        member, value = {"model": ("model", "m-2"), "client": ("host", "cursor")}[what]
        await script.send("agent", [("run.started", {**who, member: value, "runId": "run-2"})])
    alert = await only(service, "changed-agent")
    assert f"another {what}" in alert["summary"] and alert["agentId"] == "mailer"
    agent = (await service.call("viewer", "GET", "/v1/agents/mailer")).json()
    assert agent["openAlerts"] == 1 and agent["alerts"][0]["alertId"] == alert["alertId"]


async def requests_that_are_refused_at_the_door(service: Service) -> None:
    for number in range(25):
        body = event(number, "run.started", service.clock.text, {"agentId": "somebody", "runId": "r"})
        await service.answered("bound agent", "POST", "/v1/events", body, status=403)
    service.clock.advance(61)
    await service.housekeeping()
    alert = await only(service, "refused-at-the-door")
    assert alert["per"] == "apiKeyId" and alert["count"] == 25


async def approvals_that_nobody_saw(service: Service) -> None:
    await look(service)
    script = Script(service)
    first, *_ = await script.calls(["wire", "wire", "wire"])
    await look(service)
    service.clock.advance(600)
    await service.call("reviewer", "GET", f"/v1/approvals/{first['approvalId']}")
    service.clock.advance(1_300)
    await look(service)
    alert = await only(service, "approvals-nobody-saw")
    assert alert["count"] == 2 and alert["summary"].startswith("2 approvals that nobody opened")
    service.clock.advance(600)
    await look(service)
    assert (await only(service, "approvals-nobody-saw"))["count"] == 2


async def approvals_that_nobody_saw_after_the_clock_was_ahead(service: Service) -> None:
    for seconds in (0, 86_400, -86_400):
        service.clock.advance(seconds)
        await look(service)
    await Script(service).calls(["wire", "wire"])
    service.clock.advance(1_900)
    await look(service)
    assert (await only(service, "approvals-nobody-saw"))["count"] == 2


async def test_of_very_many_that_nobody_saw_each_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that has many held hides none of another one that asks behind it."""
    monkeypatch.setattr(unseen, "MOST_AT_ONCE", 2)

    async def story(service: Service) -> None:
        await look(service)
        script = Script(service)
        await script.calls(["wire"] * 4)
        service.clock.advance(1)
        await script.calls(["wire"], runId="run-behind", agentId="behind")
        service.clock.advance(1_900)
        await look(service)
        assert (await only(service, "approvals-nobody-saw"))["count"] == 5

    await played(tmp_path, story)


@pytest.mark.parametrize(
    "story",
    [
        many_different_tools,
        repeated_refusals_count_up_in_one_alert,
        first_write_of_a_reader,
        a_burst,
        an_enforcement_gap,
        an_agent_that_nobody_has_seen,
        requests_that_are_refused_at_the_door,
        approvals_that_nobody_saw,
        approvals_that_nobody_saw_after_the_clock_was_ahead,
    ],
    ids=lambda story: story.__name__,
)
async def test_it_fires_once(tmp_path: Path, story: Story) -> None:
    await played(tmp_path, story)


async def test_one_key_does_not_bury_the_alerts_of_others(tmp_path: Path) -> None:
    """It may name any number of agents that do not obey, unless it is bound to one."""

    async def story(service: Service) -> None:
        gap = {"toolCallId": "never-asked"}
        names = [{"agentId": f"agent-{number}", "runId": f"run-{number}"} for number in range(120)]
        await Script(service).send("agent", [("tool.completed", gap | each) for each in names])
        await look(service)
        found = await alerts(service, query="&detectorId=enforcement-gap&limit=1000")
        (together,) = [each for each in found if each["per"] == "apiKeyId"]
        assert len(found) == 51 and (together["count"], together["agentId"]) == (70, None)
        assert together["summary"].startswith(
            "the same of more than 50 different agents with the API key `key_"
        )

    await played(tmp_path, story)


@pytest.mark.parametrize("what", ["model", "client", "API key"])
async def test_an_agent_that_is_another_one(tmp_path: Path, what: str) -> None:
    await played(tmp_path, an_agent_that_is_another_one, what)
