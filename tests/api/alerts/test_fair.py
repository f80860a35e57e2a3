"""However much is written in one organisation, what happens in another one is looked at, too."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from api.alerts import detection
from api.handlers import detectors
from tests.harness.application import NO_LAUNCHES, Service
from tests.harness.watching import another, files, look


async def test_chains_of_the_log_take_turns(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detection, "AT_ONCE", 3)
    shipped = files("unknown-agent")
    async with Service(tmp_path, [NO_LAUNCHES], live=True, files=shipped, database=database_url) as service:
        watching = another(service.context)
        await look(service, watching)
        read: set[str] = set()
        for number in range(10):
            for more in range(4):  # more than is read at once
                fields = {"toolCallId": f"call-{number}-{more}", "toolName": "x"}
                sent = await service.report("agent", f"{number}-{more}", "tool.called", **fields)
                assert sent.status_code == 200, sent.text
            if number == 0:
                fields = {"toolCallId": "other", "toolName": "x", "runId": "other-run"}
                sent = await service.report("other agent", "other", "tool.called", **fields)
                assert sent.status_code == 200, sent.text
            step = await service.context.store.read(watching.begin)
            assert step is not None
            await service.context.store.read(watching.count, step)
            await service.context.writer.write(partial(watching.keep, step))
            watching.kept(step)
            read |= {organisation_id for organisation_id, _ in step.reached}
            if "other" in read:
                break
        assert read == {"default", "other"} and number <= 2
        await look(service, watching)
        assert len((await service.call("other admin", "GET", "/v1/agents")).json()) == 1


async def test_an_organisation_has_a_bounded_number_of_detectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 1,500 of one organisation, alerts of all others came half a minute late."""
    monkeypatch.setattr(detectors, "MOST", 3)
    body = {"name": "Many", "on": "tool.called", "severity": "low", "windowSeconds": 60, "threshold": 9}
    async with Service(tmp_path, [NO_LAUNCHES], live=True, files=files("unknown-agent")) as service:

        async def make(who: str, number: int) -> int:
            sent = body | {"detectorId": f"many-{number}"}
            return (await service.call(who, "POST", "/v1/detectors", sent)).status_code

        assert [await make("other admin", number) for number in range(3)] == [201, 201, 409]
        assert await make("admin", 0) == 201, "of another organisation"
        await service.answered("other admin", "PATCH", "/v1/detectors/many-0", {"severity": "high"})
        await service.answered("other admin", "DELETE", "/v1/detectors/many-1", status=204)
