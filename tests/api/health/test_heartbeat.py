"""What nodes tell of themselves by the database that they share."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import pytest

from api.health.heartbeat import Heartbeat
from api.health.history import EVERY_SECONDS, KEPT
from tests.harness.application import Service, event
from tests.harness.policy_bodies import on_tool

HOLD = on_tool("Hold wires", "require_approval", "wire")


def second_node(service: Service) -> Heartbeat:
    context = service.context
    return Heartbeat(context.store, context.writer, context.live, service.clock)


async def test_every_node_answers_for_all(tmp_path: Path) -> None:
    async with Service(tmp_path, [HOLD]) as service:
        other = second_node(service)
        service.clock.advance(EVERY_SECONDS)
        await service.call(
            "agent",
            "POST",
            "/v1/events",
            event(1, "tool.called", service.clock.text, {"toolCallId": "call-1", "toolName": "wire"}),
        )
        await service.context.heartbeat.beat()
        await other.beat()
        listed = (await service.call("viewer", "GET", "/v1/nodes")).json()
        assert sorted(node["answering"] for node in listed) == [False, True]
        assert {node["processId"] for node in listed} and not any(node["silent"] for node in listed)
        assert listed[0]["policyDigest"] == service.context.live.ruleset("default").digest
        await service.context.heartbeat.beat()
        for heartbeat in (service.context.heartbeat, other):
            newest = heartbeat.history.told()[-1]
            assert (newest["nodes"], newest["approvals"]) == (2, 1)


async def test_a_node_that_was_killed_is_silent_and_then_forgotten(tmp_path: Path) -> None:
    async with Service(tmp_path) as service:
        killed = second_node(service)
        await killed.beat()
        service.clock.advance(90)
        await service.context.heartbeat.beat()
        listed = await service.context.heartbeat.listed()
        assert {node["nodeId"]: node["silent"] for node in listed} == {
            killed.node_id: True,
            service.context.heartbeat.node_id: False,
        }
        service.clock.advance(KEPT * EVERY_SECONDS)
        await service.context.heartbeat.beat()
        assert [node["answering"] for node in await service.context.heartbeat.listed()] == [True]


async def test_a_node_that_died_while_its_clock_was_ahead_is_forgotten_like_any_other(tmp_path: Path) -> None:
    async with Service(tmp_path) as service:
        own = service.context.heartbeat
        killed = second_node(service)
        service.clock.advance(9e8)
        await killed.beat()
        service.clock.advance(-9e8)
        await own.beat()
        service.clock.advance(90)
        await own.beat()
        assert {node["nodeId"]: node["silent"] for node in await own.listed()} == {
            killed.node_id: True,
            own.node_id: False,
        }
        service.clock.advance(KEPT * EVERY_SECONDS)
        await own.beat()
        assert [node["answering"] for node in await own.listed()] == [True]


def test_a_node_that_stops_takes_its_row_away(tmp_path: Path) -> None:
    async def play() -> None:
        async with Service(tmp_path) as service:
            stopped = second_node(service)
            await stopped.beat()
            await stopped.leave()
            assert [node["answering"] for node in await service.context.heartbeat.listed()] == [True]

    asyncio.run(play())
    with contextlib.closing(sqlite3.connect(next(tmp_path.rglob("*.sqlite")))) as database:
        assert database.execute("SELECT COUNT(*) FROM nodes").fetchone() == (0,)


async def test_what_a_node_of_another_version_tells_is_passed_over(tmp_path: Path) -> None:
    async with Service(tmp_path) as service:
        stranger = second_node(service)
        await stranger.beat()
        await service.context.writer.write(
            lambda transaction: transaction.store.rows_changed(
                "UPDATE nodes SET points = ? WHERE node_id = ?", ('{"new": 1}', stranger.node_id)
            )
        )
        await service.context.heartbeat.beat()
        assert [each["nodes"] for each in service.context.heartbeat.history.told()] == [1]


async def test_a_node_that_cannot_tell_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with Service(tmp_path) as service:
        await service.context.writer.write(
            lambda transaction: transaction.store.rows_changed("DROP TABLE nodes")
        )
        await service.context.heartbeat.try_to_beat()
        assert "the heartbeat of this node waits" in caplog.text
        assert (await service.call("nobody", "GET", "/health")).status_code == 200
