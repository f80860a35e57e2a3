"""One alert for one happening, whoever reads the log, dies over it or is overtaken: nothing twice or lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from api.alerts.detection import LEASE_SECONDS, Detection, LogStep
from api.clock import DAY
from api.store.alerts.log_reader import Overtaken
from tests.harness.application import NO_LAUNCHES, Service
from tests.harness.watching import alerts, another, files, look

Story = Callable[[Service], Awaitable[None]]


async def played(tmp_path: Path, database_url: str, story: Story) -> None:
    shipped = files("repeated-refusals", "unknown-agent")
    async with Service(tmp_path, [NO_LAUNCHES], live=True, files=shipped, database=database_url) as service:
        await story(service)


async def refused(service: Service, numbers: range) -> None:
    for number in numbers:
        fields = {"toolCallId": f"call-{number}", "toolName": "launch"}
        assert (await service.report("agent", number, "tool.called", **fields)).status_code == 200


async def read(service: Service, watching: Detection) -> LogStep:
    """All that a process does of a step before it is kept."""
    step = await service.context.store.read(watching.begin)
    assert step is not None
    await service.context.store.read(watching.count, step)
    return step


async def counts(service: Service) -> list[int]:
    return [each["count"] for each in await alerts(service)]


async def two_that_read_the_same(service: Service) -> None:
    await refused(service, range(15))
    one, other = another(service.context), another(service.context)
    first, second = await read(service, one), await read(service, other)
    await service.context.writer.write(partial(one.keep, first))
    with pytest.raises(Overtaken):
        await service.context.writer.write(partial(other.keep, second))
    one.kept(first)
    other.forget()
    assert await counts(service) == [15]
    assert await service.context.store.read(other.begin) is None, "it is the turn of the first"
    await refused(service, range(15, 20))
    service.clock.advance(LEASE_SECONDS + 1)
    await look(service, other)
    await look(service, one)
    assert await counts(service) == [20]
    found = (await service.call("admin", "GET", "/v1/agents/mailer")).json()
    assert found["calls"] == 20


async def one_that_dies_before_it_keeps(service: Service) -> None:
    await refused(service, range(6))
    await look(service, dying := another(service.context))
    await refused(service, range(6, 12))
    await read(service, dying)
    service.clock.advance(LEASE_SECONDS + 1)
    await look(service)
    assert await counts(service) == [12]
    assert [name for name, _ in service.notices].count("alert.raised") == 1


async def a_restart_keeps_what_was_counted(service: Service) -> None:
    for number in range(12):
        await refused(service, range(number, number + 1))
        service.clock.advance(LEASE_SECONDS + 1)
        await look(service, another(service.context))
    assert await counts(service) == [12]


async def memory_and_log_say_the_same(service: Service) -> None:
    """What this process committed is at hand; what another one did is read; in any order."""
    for start in range(0, 40, 4):
        await refused(service, range(start, start + 4))
        if start % 8:
            service.clock.advance(LEASE_SECONDS + 1)
            await look(service, another(service.context))
            service.clock.advance(LEASE_SECONDS + 1)
        await look(service)
    assert await counts(service) == [40]


async def a_job_that_fails_is_made_again(service: Service) -> None:
    await refused(service, range(12))
    watching = service.context.detection
    step = await read(service, watching)

    def fails(transaction: Any) -> None:
        watching.keep(step, transaction)
        raise ValueError("the disk, say")

    with pytest.raises(ValueError, match="the disk"):
        await service.context.writer.write(fails)
    watching.forget()
    assert await counts(service) == []
    await look(service)
    assert await counts(service) == [12]


async def one_that_died_while_the_clock_was_ahead(service: Service) -> None:
    service.clock.advance(DAY)
    await refused(service, range(6))
    await look(service, another(service.context))
    service.clock.advance(-DAY)
    await refused(service, range(6, 20))
    other = another(service.context)
    await look(service, other)
    assert await counts(service) == [20]


@pytest.mark.parametrize(
    "story",
    [
        one_that_died_while_the_clock_was_ahead,
        two_that_read_the_same,
        one_that_dies_before_it_keeps,
        a_restart_keeps_what_was_counted,
        memory_and_log_say_the_same,
        a_job_that_fails_is_made_again,
    ],
    ids=lambda story: story.__name__,
)
async def test_once(tmp_path: Path, database_url: str, story: Story) -> None:
    await played(tmp_path, database_url, story)


async def test_what_was_on_record_before_there_were_detectors(tmp_path: Path) -> None:
    async def story(service: Service) -> None:
        await refused(service, range(30))
        store = service.context.store

        def before(transaction: Any) -> None:
            store.rows_changed("DELETE FROM log_positions")
            store.rows_changed(
                "INSERT INTO log_positions (organisation_id, chain, sequence, silent_until)"
                " SELECT organisation_id, chain, 0, MAX(sequence) FROM audit GROUP BY organisation_id, chain"
            )

        await service.context.writer.write(before)
        service.clock.advance(3_600)
        await refused(service, range(30, 33))
        await look(service, another(service.context))
        assert await counts(service) == []
        found = (await service.call("admin", "GET", "/v1/agents/mailer")).json()
        assert (found["calls"], found["decisions"]["blocked"]) == (33, 33)

    await played(tmp_path, f"sqlite:///{tmp_path}/governance.sqlite", story)
