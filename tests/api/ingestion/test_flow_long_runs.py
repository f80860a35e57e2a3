"""Runs as they are at work, decided as the plain rules decide: long pages that hide an address, one thing
after another that people ask for, and agents that start agents that start agents."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.api.ingestion.test_flow_agreement import (
    LIKELY,
    TEXTS,
    VALUES,
    Play,
    calls_of,
    payload,
    running,
)
from tests.harness.application import Service

__all__ = ["running"]

FILLING = "the report goes on about the weather, the harvest and the prices of last year\n"
PAGES = st.builds(
    lambda before, hidden, behind: FILLING * before + hidden + "\n" + FILLING * behind,
    st.sampled_from([0, 3, 90]),
    TEXTS | VALUES,
    st.sampled_from([0, 3, 90]),
)
"""Pages of up to 14,000 characters, with what matters at the beginning, in the middle or at the end."""
READ = calls_of("read_page", payload(), PAGES)
ASKED = st.fixed_dictionaries({"said": TEXTS})
WORK = st.lists(st.one_of(READ, LIKELY, LIKELY), min_size=1, max_size=5)
TASKS = st.lists(st.tuples(ASKED, WORK), min_size=2, max_size=4)
"""What people ask for one after another in one run, and what is done for each."""

FEW = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def steps_of(tasks: list[tuple[dict[str, Any], list[dict[str, Any]]]]) -> list[dict[str, Any]]:
    return [step for asked, work in tasks for step in (asked, *work)]


@FEW
@given(task=TEXTS, tasks=TASKS)
def test_several_tasks_and_long_pages_in_one_run(
    running: tuple[asyncio.Runner, Service],
    task: str,
    tasks: list[tuple[dict[str, Any], list[dict[str, Any]]]],
) -> None:
    runner, service = running
    runner.run(Play(service).run(task, steps_of(tasks)))


@FEW
@given(task=TEXTS, read=WORK, between=WORK, own=WORK)
def test_an_agent_that_an_agent_has_started_that_an_agent_has_started(
    running: tuple[asyncio.Runner, Service],
    task: str,
    read: list[dict[str, Any]],
    between: list[dict[str, Any]],
    own: list[dict[str, Any]],
) -> None:
    """What the first has read still counts two runs further down."""

    async def play(first: Play) -> None:
        await first.run(task, read)
        second = Play(first.service, first)
        await second.run("look into it", between)
        third = Play(first.service, second)
        await third.run("finish it", own)

    runner, service = running
    runner.run(play(Play(service)))
