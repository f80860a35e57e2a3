"""Evaluations of one request are decided in the order in which they stand there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import jwt
import pytest

from api.ingestion.evaluation import Evaluator
from api.ingestion.event import Answer, Incoming
from tests.api.ingestion.test_flow import HOLD, LABEL
from tests.harness.application import Service
from tests.harness.policy_bodies import on_tool

SECRET = "the identity provider's secret, shared with the service"
MANY = 5
POLICIES: list[dict[str, Any]] = [
    on_tool("Label secrets", "allow", "read_secret", labels={"add": ["secret"]}),
    on_tool("Block sending after secrets", "block", "send", after={"label": "secret"}),
]


async def test_what_is_said_for_a_user_is_overtaken_by_nothing_behind_it(tmp_path: Path) -> None:
    async with Service(tmp_path, POLICIES) as service:
        rule = {"name": "Acme", "userToken": {"algorithm": "HS256", "key": SECRET}}
        assert (await service.call("admin", "PUT", "/v1/organisation", rule)).status_code == 200
        for number in range(MANY):
            token = jwt.encode({"sub": f"ada-{number}", "exp": service.clock() + 600}, SECRET, "HS256")
            body = {
                "subject": {"type": "user", "id": "ann"},
                "action": {"name": "call"},
                "evaluations": [
                    _evaluation("read_secret", number, userToken=token),
                    _evaluation("send", number),
                ],
            }
            answer = await service.call("agent", "POST", "/access/v1/evaluations", body)
            found = answer.json()["evaluations"]
            assert [each["decision"] for each in found] == [True, False], found


async def test_a_run_under_another_one_begins_with_what_that_has_come_to(tmp_path: Path) -> None:
    """Runs do not wait for each other where several are written side by side."""
    async with Service(tmp_path, [LABEL, HOLD]) as service:
        written: list[bool] = []
        handed_over = service.context.intake.handed_over

        def noted(event: Incoming) -> asyncio.Future[Answer]:
            written.append(all(each.done() for each in coming))
            coming.append(handed_over(event))
            return coming[-1]

        coming: list[asyncio.Future[Answer]] = []
        service.context.intake.handed_over = noted  # type: ignore[method-assign]
        evaluations = [_evaluation("read_secret", 1), _evaluation("send", 2, parentRunId="run-1")]
        assert await _asked(service, evaluations) == [True, False]
        assert written == [True, True]


async def test_what_is_asked_anew_is_overtaken_by_nothing_behind_it(tmp_path: Path) -> None:
    """Under the request id of a call that was made since, or that was decided a while ago."""
    after = {"tool": "read_secret", "withinCalls": 1}
    async with Service(tmp_path, [on_tool("No sending just after", "block", "send", after=after)]) as service:
        named = {"headers": {"X-Request-ID": "r-1"}}
        assert await _asked(service, [_evaluation("read_secret", 1)], **named) == [True]
        assert await _asked(service, [_evaluation("look", 1), _evaluation("send", 1)]) == [True, True]
        service.clock.advance(61)
        assert await _asked(service, [BOTH[0], _evaluation("send", 1)], **named) == [True, False]


async def _asked(service: Service, evaluations: list[dict[str, Any]], **told: Any) -> list[bool]:
    subject, action = {"type": "user", "id": "ann"}, {"name": "call"}
    body = {"subject": subject, "action": action, "evaluations": evaluations}
    answer = await service.call("agent", "POST", "/access/v1/evaluations", body, **told)
    return [each["decision"] for each in answer.json()["evaluations"]]


async def test_what_is_done_in_turn_is_overtaken_by_nothing_behind_it(tmp_path: Path) -> None:
    """A key that has taken much is slowed down between two evaluations of one request, and not any more."""
    async with Service(tmp_path, POLICIES) as service:
        asked: list[str] = []

        def is_dear(key_id: str, size: int, most: int = 0) -> bool:
            asked.append(key_id)
            return len(asked) == 3  # the body, the request as a whole, and the first of them

        service.context.intake.is_dear = is_dear  # type: ignore[method-assign]
        assert await _asked(service, BOTH) == [True, False]


async def test_what_is_put_off_is_overtaken_by_nothing_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_commit, put_off = Evaluator.of_commit, list[Incoming]()

    def first_later(self: Evaluator, batch: Any, event: Incoming, *further: Any) -> Any:
        if event.metadata["toolName"] == "read_secret" and not put_off:
            put_off.append(event)
            return None
        return of_commit(self, batch, event, *further)

    monkeypatch.setattr(Evaluator, "of_commit", first_later)
    async with Service(tmp_path, POLICIES) as service:
        assert await _asked(service, BOTH) == [True, False] and put_off


def _evaluation(tool: str, number: int, **said: str) -> dict[str, Any]:
    governance = {"runId": f"run-{number}", **said}
    return {"resource": {"type": "tool", "id": tool}, "context": {"governance": governance}}


BOTH = [_evaluation("read_secret", 1), _evaluation("send", 1)]
