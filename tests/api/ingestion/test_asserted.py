"""Of long words of an agent a record holds the digest, and still by which model and program it speaks."""

from __future__ import annotations

from pathlib import Path

from api.ingestion.event import MOST_OF_NAME
from tests.harness.application import Service


async def test_many_words_do_not_hide_the_model(tmp_path: Path) -> None:
    async with Service(tmp_path) as service:
        words = {"agentContext": {"goal": "x" * 5_000}, "host": "y" * (MOST_OF_NAME + 1)}
        await service.report("agent", 1, "run.started", model="large-2", **words)
        (record,) = (await service.call("admin", "GET", "/v1/audit?type=event")).json()
        assert record["asserted"]["model"] == "large-2"
        assert record["asserted"].keys() == {"model", "bytes", "sha256"}
        await service.report("agent", 2, "run.started", model="large-2", agentContext={"goal": "short"})
        (record, _) = (await service.call("admin", "GET", "/v1/audit?type=event")).json()
        assert record["asserted"] == {"model": "large-2", "agentContext": {"goal": "short"}}
