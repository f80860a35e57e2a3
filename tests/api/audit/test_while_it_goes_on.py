"""A log is verified while agents go on: what comes meanwhile is no fault, and hides none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.database import audit_chain
from tests.api.audit.test_verification import POLICIES
from tests.harness.application import Service
from tests.harness.dropping import changed, signed, verified


def call(number: int) -> dict[str, Any]:
    return {"toolCallId": f"c-{number}", "toolName": "look", "inputPayload": {}}


@pytest.mark.parametrize("gone", [False, True])
async def test_what_comes_between_the_rows_and_their_records(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    async with Service(tmp_path, POLICIES, live=True, database=database_url) as service:
        await service.report("agent", 1, "tool.called", **call(1))
        await signed(service)
        await service.report("agent", 2, "tool.called", **call(2))
        if gone:
            await changed(service, "DELETE FROM tool_calls WHERE tool_call_id = 'c-2'")
        loop, walk = asyncio.get_running_loop(), audit_chain.walk
        went: list[int] = []

        def late(*arguments: Any) -> Iterator[tuple[Any, ...]]:
            if not went:
                made = service.report("agent", 3, "tool.called", **call(3))
                went.append(asyncio.run_coroutine_threadsafe(made, loop).result(30).status_code)
            yield from walk(*arguments)

        monkeypatch.setattr(audit_chain, "walk", late)
        found = await verified(service)
        assert went == [200]
        assert [each.split("`")[1] for each in found["problems"]] == (["c-2"] if gone else [])
        if not gone:
            assert found["notes"] == []


async def test_an_end_that_was_put_back_hides_nothing_that_is_signed(
    tmp_path: Path, postgres_url: str
) -> None:
    async with Service(tmp_path, POLICIES, live=True, database=postgres_url) as service:
        await service.report("agent", 1, "tool.called", **call(1))
        await signed(service)
        added = {"email": "v@acme.example", "role": "viewer", "password": "correct horse battery"}
        assert (await service.call("admin", "POST", "/v1/users", added)).status_code == 201
        await signed(service)
        by_hand = "UPDATE users SET role = 'admin' WHERE email = 'v@acme.example'"
        await changed(service, by_hand, "DELETE FROM tool_calls", "UPDATE chains SET sequence = 0")
        problems = "\n".join((await verified(service))["problems"])
        assert "`c-1`" in problems and "`v@acme.example`" in problems
