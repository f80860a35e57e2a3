"""What is remembered of agents stays small, whatever they call themselves, their models and their tools: all
of it is written anew whenever they show themselves."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from api.alerts import detection
from api.alerts.worker import take_step
from api.store.alerts.agents import AgentFacts
from engine.detectors.tally import Slots, Tally
from engine.model import Detector
from tests.harness.application import NO_LAUNCHES, Service
from tests.harness.watching import another, files, look

WIDE = "\N{GRINNING FACE}"
"""Four bytes."""


def test_what_is_known_of_an_agent() -> None:
    facts = AgentFacts()
    for number in range(100):
        facts.called(f"{number}{WIDE * 190}", 2)
        facts.saw(facts.models, f"{number}{WIDE * 900}", f"2026-01-31T09:{number:03}")
        facts.saw(facts.clients, f"{WIDE * 900}{number}", f"2026-01-31T09:{number:03}")
    assert len(msgspec.json.encode(facts)) < 16_000
    assert sum(facts.tools.values()) + facts.other_tools == 200
    assert facts.saw(facts.models, f"99{WIDE * 900}", "2026-02") is False, "a long name is known again"
    assert facts.saw(facts.models, f"99{WIDE * 901}", "2026-02") is True, "and told from another one"


def test_ordinary_names_stay_as_they_are() -> None:
    facts = AgentFacts()
    for number in range(100):
        facts.called(f"mcp__a_server__make_a_thing_{number}", 1)
    facts.saw(facts.models, "claude-opus-4-1-20250805", "2026-01-31")
    assert len(facts.tools) == 100 and facts.other_tools == 0
    assert list(facts.models) == ["claude-opus-4-1-20250805"]


def test_different_values_that_are_counted() -> None:
    detector = Detector("many", "Many", "tool.called", "low", window_seconds=600, distinct="toolName")
    tally, slots = Tally(), Slots.of(detector)
    names = [f"{number}{WIDE * 190}" for number in range(1_000)]
    assert sum(tally.add(detector, slots, 9, name, 1) for name in (*names, *names)) == 1_000
    assert tally.total() == 1_000 and len(msgspec.json.encode(tally)) < 32_000


@pytest.mark.parametrize("at_hand", [True, False])
async def test_a_step_tells_of_some_agents(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch, at_hand: bool
) -> None:
    """INVARIANT: what is written at once is bounded, and nothing of it is lost."""
    monkeypatch.setattr(detection, "AT_ONCE", 5)
    monkeypatch.setattr(detection, "MOST_TOLD_OF", 5)
    shipped = files("unknown-agent")
    async with Service(tmp_path, [NO_LAUNCHES], live=True, files=shipped, database=database_url) as service:
        context = service.context
        watching = context.detection if at_hand else another(context)
        await look(service, watching)
        for number in range(20):
            fields = {"agentId": f"agent-{number}", "runId": f"run-{number}", "toolCallId": "c"}
            sent = await service.report("agent", number, "tool.called", toolName="x", **fields)
            assert sent.status_code == 200, sent.text
        assert await take_step(watching, context.store, context.writer), "it is not through"
        assert 5 <= len((await service.call("admin", "GET", "/v1/agents")).json()) <= 10
        await look(service, watching)
        assert len((await service.call("admin", "GET", "/v1/agents")).json()) == 20
