"""What a body says for all of its evaluations is part of each: a large one is worked on beside the event
loop."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from api.handlers import access_query
from api.ingestion.authzen import event_of_evaluation, place_of
from api.ingestion.turns import LARGE
from tests.harness.application import Service

MANY = 20


@pytest.mark.parametrize("options", [{}, {"evaluations_semantic": "deny_on_first_deny"}])
def test_a_large_default_never_keeps_the_loop(
    options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []

    def noted(function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            threads.append(threading.current_thread().name)
            return function(*arguments)

        return call

    monkeypatch.setattr(access_query, "event_of_evaluation", noted(event_of_evaluation))
    monkeypatch.setattr(access_query, "place_of", noted(place_of))

    async def play() -> None:
        async with Service(tmp_path) as service:
            body = {
                "subject": {"type": "user", "id": "ann"},
                "action": {"name": "read"},
                "context": {"text": "x" * 2 * LARGE},
                "evaluations": [{"resource": {"type": "tool", "id": f"t{n}"}} for n in range(MANY)],
                "options": options,
            }
            answer = await service.call("agent", "POST", "/access/v1/evaluations", body)
            assert [each["decision"] for each in answer.json()["evaluations"]] == [True] * MANY

    asyncio.run(play())
    assert len(threads) == 2 * MANY and all(name.startswith("turns-") for name in threads)
