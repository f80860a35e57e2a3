"""A call with more keys and values than policies can look at in time is refused; results may be longer."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.harness.application import Service, event
from tests.harness.policy_bodies import policy_body, where

HOLD = policy_body("Hold payments", "require_approval", where("inputPayload", "contains", "pay"))


def answers(tmp_path: Path, *events: tuple[str, dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    async def play() -> list[tuple[int, dict[str, Any]]]:
        async with Service(tmp_path, [HOLD]) as service:
            sent = [
                await service.report("agent", n, kind, **fields) for n, (kind, fields) in enumerate(events)
            ]
            return [(answer.status_code, answer.json()) for answer in sent]

    return asyncio.run(play())


@pytest.mark.parametrize(
    "payload",
    [
        {"rows": list(range(20_001))},
        {"rows": [[number] for number in range(10_001)]},
        {f"key {number}": number for number in range(10_001)},
    ],
    ids=["numbers", "lists", "keys"],
)
def test_too_many_values_are_refused(tmp_path: Path, payload: dict[str, Any]) -> None:
    fields = {"toolCallId": "c", "toolName": "look", "inputPayload": payload}
    [(status, body)] = answers(tmp_path, ("tool.called", fields))
    assert (status, body["code"]) == (422, "validation_failed")
    assert body["errors"][0]["pointer"] == "/metadata"


def test_many_values_and_long_results_are_fine(tmp_path: Path) -> None:
    called = {
        "toolCallId": "c",
        "toolName": "look",
        "inputPayload": {"rows": [["a"]] * 9_000, "text": "," * 50_000},
    }
    completed = {"toolCallId": "c", "outputPayload": {"rows": list(range(30_000))}}
    found = answers(tmp_path, ("tool.called", called), ("tool.completed", completed))
    assert [status for status, _ in found] == [200, 200]
    assert found[0][1]["toolCallStatus"] == "allowed"


def test_long_numbers_are_bounded_and_digits_in_texts_are_none(tmp_path: Path) -> None:
    """A page that a tool has read may hold as many as it likes, and a policy asks about what it says."""
    number, page = int("9" * 1_000), ", ".join([f'"x\\": {"9" * 1_000}'] * 20)
    found = answers(
        tmp_path,
        ("tool.called", {"toolCallId": "c", "toolName": "look", "inputPayload": {"page": f"pay {page}"}}),
        ("tool.completed", {"toolCallId": "c", "outputPayload": {"page": page, page: [number] * 16}}),
        ("tool.completed", {"toolCallId": "c", "outputPayload": {"page": page, "rows": [number] * 17}}),
    )
    assert [status for status, _ in found] == [200, 200, 422]
    assert found[0][1]["toolCallStatus"] == "awaiting_approval"


@pytest.mark.parametrize(
    "number", ["12345678901234567890.0", "1.00000000000000001", "0.12345678901234567891e3"]
)
async def test_digits_that_a_number_cannot_keep_are_refused(tmp_path: Path, number: str) -> None:
    async with Service(tmp_path, [HOLD]) as service:
        fields = {"toolCallId": "c", "toolName": "look", "inputPayload": {"account": "DIGITS"}}
        sent = event("1", "tool.called", service.clock.text, fields)
        raw = json.dumps(sent).replace('"DIGITS"', number)
        answer = await service.call("agent", "POST", "/v1/events", raw=raw)
        assert (answer.status_code, answer.json()["code"]) == (422, "validation_failed")
        for exact in ("12345678901234567890", "0.1", "12000.50", '"12345678901234567890.0"', "1e300"):
            fields["toolCallId"] = exact
            sent = event(exact, "tool.called", service.clock.text, fields)
            raw = json.dumps(sent).replace('"DIGITS"', exact)
            assert (await service.call("agent", "POST", "/v1/events", raw=raw)).status_code == 200
