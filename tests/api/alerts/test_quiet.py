"""What is ordinary raises no alert: ten thousand events of a working week, and the day of the demo."""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from api.demo.play import play
from tests.harness.application import PASSWORD, Service, event, write_files
from tests.harness.places import SHIPPED
from tests.harness.policy_bodies import policy_body, where
from tests.harness.running_service import Served
from tests.harness.watching import DETECTORS, TOOLS, alerts, look

EVENTS = 10_000
AGENTS = 12
READING = ("read_file", "list_directory", "search_files", "web_search", "get_issue", "fetch_url")
ACTING = ("write_file", "edit_file", "run_command", "send_email", "create_issue", "post_message")
POLICIES = [
    policy_body(name, action, where("inputPayload.n", "equals", value))
    for name, action, value in (("No sevens", "block", 7), ("Ask about eights", "require_approval", 8))
]


def week(service: Service, chance: random.Random) -> Iterator[dict[str, Any]]:
    """Agents that each have their tools, model and key, work in runs, read the same again and again, and are
    refused or held now and then."""
    tools = [chance.sample(READING, 3) + chance.sample(ACTING, 1 + number % 4) for number in range(AGENTS)]
    number = 0
    while number < EVENTS:
        agent = chance.randrange(AGENTS)
        fields: dict[str, Any] = {"runId": f"run-{number}", "agentId": f"agent-{agent}"}
        started = {"model": f"model-{agent % 3}", "host": "claude-code", "task": "the usual"}
        yield event(number := number + 1, "run.started", service.clock.text, fields | started)
        for _ in range(chance.randrange(3, 30)):
            called = {
                "toolName": chance.choice(tools[agent]),
                "inputPayload": {"n": chance.randrange(400)},
                "toolCallId": f"call-{number}",
            }
            yield event(number := number + 1, "tool.called", service.clock.text, fields | called)
            if chance.random() < 0.5:
                service.clock.advance(chance.random() * 60)


async def test_ten_thousand_ordinary_events(tmp_path: Path) -> None:
    async with Service(tmp_path, POLICIES, live=True, files=DETECTORS | TOOLS) as service:
        events = list(week(service, random.Random(16)))
        service.clock.ahead = 0.0
        for start in range(0, len(events), 500):
            service.clock.advance(600)
            answer = await service.call(
                "agent", "POST", "/v1/events/batch", {"events": events[start : start + 500]}
            )
            results = answer.json()["results"]
            assert {each["status"] for each in results} == {200}
            for each in results:
                if approval := each["answer"].get("approvalId"):
                    await service.call("reviewer", "GET", f"/v1/approvals/{approval}")
                    await service.call("reviewer", "POST", f"/v1/approvals/{approval}/approve", {})
            await look(service)
        assert await alerts(service) == []
        agents = (await service.call("viewer", "GET", "/v1/agents")).json()
        assert len(agents) == AGENTS
        calls = [each for each in events if each["eventType"] == "tool.called"]
        assert sum(each["calls"] for each in agents) == len(calls)
        assert sum(sum(each["decisions"].values()) for each in agents) == len(calls)


def test_the_day_of_the_demo(tmp_path: Path) -> None:
    files = DETECTORS | TOOLS
    for path in sorted((SHIPPED / "policies").glob("*.yaml")):
        files[f"policies/{path.name}"] = path.read_text(encoding="utf-8")
    write_files(tmp_path / "policies.d", files)
    with Served(tmp_path, live=True) as service:
        reviewer = service.user("reviewer", "reviewer@acme.com")
        for _ in range(2):
            url = str(service.http.base_url)
            play(url, service.api_key, reviewer["email"], PASSWORD, io.StringIO(), width=120)
            asyncio.run(look(service))
        assert service.call("admin", "GET", "/v1/alerts").json() == []
        assert service.call("admin", "GET", "/v1/agents").json() != []
