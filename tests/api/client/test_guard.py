"""Guarded tools: every kind of function, what policies see of its arguments, and what is reported of it."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import inspect
import pathlib
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from contextvars import copy_context
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address
from typing import Any
from unittest.mock import Mock

import httpx
import pytest
from governance_client import AsyncGovernance, Governance, NoCurrentRun, Refused, current_run
from pydantic import HttpUrl

from tests.api.client.conftest import Told, run_of
from tests.harness.running_service import Served


@pytest.fixture
def governance(told: Told) -> Iterator[Governance]:
    with Governance(told()) as made:
        yield made


def calls(service: Served, run_id: str) -> list[tuple[str, Any, Any]]:
    """Tool, payload and output of each call of a run."""
    found = run_of(service, run_id)["toolCalls"]
    return [(each["toolName"], each["inputPayload"], each.get("outputPayload")) for each in found]


def test_every_kind_of_function(governance: Governance, service: Served) -> None:
    @governance.guard
    def plain(a: int, b: int = 2) -> int:
        return a + b

    @governance.guard
    async def coroutine(a: int) -> int:
        await asyncio.sleep(0)
        return a

    @governance.guard
    def generator(a: int) -> Iterator[int]:
        yield from range(a)

    @governance.guard
    async def async_generator(a: int) -> AsyncIterator[int]:
        for number in range(a):
            yield number

    class Desk:
        @governance.guard
        def method(self, a: int) -> int:
            return a

        @governance.guard
        @classmethod
        def of_class(cls, a: int) -> int:
            return a

        @governance.guard
        @staticmethod
        def static(a: int) -> int:
            return a

    @governance.guard(tool="renamed")
    def many(*values: int, **named: int) -> int:
        return len(values) + len(named)

    async def all_of(source: AsyncIterator[int]) -> list[int]:
        return [each async for each in source]

    with governance.run("a task") as run:
        assert (plain(1), plain(b=1, a=1)) == (3, 2)
        assert asyncio.run(coroutine(5)) == 5
        assert list(generator(3)) == [0, 1, 2]
        assert next(generator(3)) == 0
        assert asyncio.run(all_of(async_generator(2))) == [0, 1]
        assert (Desk().method(1), Desk.of_class(2), Desk.static(3)) == (1, 2, 3)
        assert many(1, 2, three=3) == 3
    assert calls(service, run.run_id) == [
        ("plain", {"a": 1, "b": 2}, 3),
        ("plain", {"a": 1, "b": 1}, 2),
        ("coroutine", {"a": 5}, 5),
        ("generator", {"a": 3}, [0, 1, 2]),
        ("generator", {"a": 3}, [0]),
        ("async_generator", {"a": 2}, [0, 1]),
        ("method", {"a": 1}, 1),
        ("of_class", {"a": 2}, 2),
        ("static", {"a": 3}, 3),
        ("renamed", {"values": [1, 2], "three": 3}, 3),
    ]
    assert inspect.iscoroutinefunction(coroutine)
    assert (plain.__name__, str(inspect.signature(plain))) == ("plain", "(a: 'int', b: 'int' = 2) -> 'int'")


def test_a_refused_tool_does_not_run(governance: Governance, service: Served) -> None:
    ran: list[str] = []

    @governance.guard
    def delete() -> None:
        ran.append("thread")

    @governance.guard(tool="delete")
    async def delete_async() -> None:
        ran.append("task")

    @governance.guard(tool="delete")
    def delete_one_by_one() -> Iterator[None]:
        ran.append("generator")
        yield

    with governance.run("a task") as run:
        with pytest.raises(Refused, match="delete"):
            delete()
        with pytest.raises(Refused):
            asyncio.run(delete_async())
        with pytest.raises(Refused):
            list(delete_one_by_one())
    assert ran == []
    assert [each["status"] for each in run_of(service, run.run_id)["toolCalls"]] == ["blocked"] * 3


def test_a_tool_that_fails(governance: Governance, service: Served) -> None:
    @governance.guard
    def fails() -> None:
        raise KeyError("nothing there")

    with governance.run("a task") as run, pytest.raises(KeyError):
        fails()
    assert calls(service, run.run_id) == [("fails", {}, {"error": "KeyError: 'nothing there'"})]
    assert run_of(service, run.run_id)["status"] == "completed"


def test_a_wrong_call_is_a_type_error_and_asks_nobody(governance: Governance) -> None:
    @governance.guard
    def plain(a: int) -> int:
        return a

    with governance.run("a task"), pytest.raises(TypeError):
        plain(1, 2)


class Colour(Enum):
    RED = "red"


@dataclasses.dataclass
class Bill:
    number: int
    lines: tuple[str, ...]


class Model:
    def model_dump(self) -> dict[str, Any]:
        return {"kind": Colour.RED}


class Opaque:
    secret = "never shown"


ID = uuid.UUID(int=7)


@pytest.mark.parametrize(
    "value, told_as",
    [
        (datetime.date(2026, 1, 31), "2026-01-31"),
        (pathlib.PurePosixPath("/tmp/x"), "/tmp/x"),
        (Decimal("12.50"), "12.50"),
        (ID, str(ID)),
        (b"text", "text"),
        (b"\xff", "base64:/w=="),
        ({3, 1}, [1, 3]),
        ((1, (2,)), [1, [2]]),
        (Bill(1, ("a", "b")), {"number": 1, "lines": ["a", "b"]}),
        (Model(), {"kind": "red"}),
        (Opaque(), "<tests.api.client.test_guard.Opaque>"),
        (Mock(), "<unittest.mock.Mock>"),
        (HttpUrl("https://eve.example/x"), "https://eve.example/x"),
        (httpx.URL("https://eve.example/x"), "https://eve.example/x"),
        (IPv4Address("10.0.0.1"), "10.0.0.1"),
        (float("nan"), "nan"),
        ({(1, 2): "x", None: 1, 7: 2}, {"[1, 2]": "x", "null": 1, "7": 2}),
    ],
)
def test_values_without_a_form_in_json(
    governance: Governance, service: Served, value: object, told_as: object
) -> None:
    @governance.guard
    def echo(value: object) -> object:
        return {"given": value}

    with governance.run("a task") as run:
        echo(value)
    assert calls(service, run.run_id) == [("echo", {"value": told_as}, {"given": told_as})]


def test_the_current_run(told: Told) -> None:
    """Nested tools, tasks and threads that copied the context belong to the run that they were started in."""

    async def agents() -> list[list[str | None]]:
        async with AsyncGovernance(told()) as governance:

            @governance.guard
            async def inner() -> str | None:
                return here()

            @governance.guard
            async def outer() -> list[str | None]:
                return [here(), await inner(), await asyncio.to_thread(here), in_thread()]

            async def agent(number: int) -> list[str | None]:
                async with governance.run("a task", run_id=f"current-{number}"):
                    return await outer()

            return await asyncio.gather(*map(agent, range(3)))

    assert asyncio.run(agents()) == [[f"current-{number}"] * 4 for number in range(3)]
    assert current_run() is None


def here() -> str | None:
    run = current_run()
    return run and run.run_id


def in_thread() -> str | None:
    found: list[str | None] = []
    context = copy_context()
    thread = threading.Thread(target=lambda: found.append(context.run(here)))
    thread.start()
    thread.join(60)
    return found[0]


def test_a_tool_outside_of_every_run_does_not_run(governance: Governance, service: Served) -> None:
    ran: list[int] = []

    @governance.guard
    def plain() -> None:
        ran.append(1)

    with pytest.raises(NoCurrentRun, match="start a run"):
        plain()
    assert ran == []
    run = governance.start("for the whole process", run_id=service.ids("run"))
    thread = threading.Thread(target=plain)
    thread.start()
    thread.join(60)
    run.end()
    assert (ran, len(calls(service, run.run_id))) == ([1], 1)


def test_what_runs_is_what_is_asked_about_where_two_arguments_have_one_name(governance: Governance) -> None:
    """A positional-only parameter leaves its name free for another argument."""
    ran: list[Any] = []

    @governance.guard
    def delete(path: str, /, **more: str) -> None:
        ran.append((path, more))

    @governance.guard
    def anything(*args: int, **more: Any) -> None:
        ran.append((args, more))

    with governance.run("Tidy up"):
        with pytest.raises(TypeError, match="two arguments are named 'path'"):
            delete("/etc", path="/tmp/harmless")
        with pytest.raises(TypeError, match="two arguments are named 'args'"):
            anything(1, args=[2])
        assert ran == []
        anything(args=[2])
        assert ran == [((), {"args": [2]})]


@pytest.mark.parametrize("count", [1_000, 1_001])
def test_it_is_said_of_a_long_generator_that_it_is_cut(
    governance: Governance, service: Served, count: int
) -> None:
    """As of one output that is too long, so that a policy may ask for it."""

    @governance.guard
    def lines(count: int) -> Iterator[str]:
        yield from map(str, range(count))

    with governance.run("a task") as run:
        assert len(list(lines(count))) == count
    ((_, _, output),) = calls(service, run.run_id)
    first = [str(number) for number in range(1_000)]
    assert output == (first if count == 1_000 else {"cut": True, "values": count, "first": first})
