"""A tool that asks before it runs: the decorator behind `guard`.

The arguments are what the function's signature says, by name, defaults included; `self` and `cls` are none.
What the function returns, yields or raises is reported; of a coroutine or future that it hands back, what
that comes to.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future as ConcurrentFuture
from typing import Any, Final, Protocol, TypedDict

from governance_client.decision import Refused, ToolDecision
from governance_client.drivers import ClientDriver
from governance_client.exchange import Flow
from governance_client.payloads import binder

MOST_YIELDED: Final = 1_000
"""Values of a generator that are reported; of one with more it is said that it is cut."""


class GuardDetails(TypedDict, total=False):
    """What may be said of a tool. `tool` is its name, if it is not the function's. `action_hint`: what kind
    of action it is (`read`, `list`, ...). `annotations`: those of MCP. `wait`: how long people are waited
    for: True (the default) as long as it takes, False not at all, or so many seconds; the same call again in
    the run then finds the approval that nobody has waited for."""

    tool: str
    action_hint: str
    annotations: Mapping[str, Any]
    wait: bool | float


class CallDetails(TypedDict, total=False):
    """What may be said of one call. `tool_call_id` is its own in the run: the same one again finds the same
    decision and approval, until it has completed; while that one goes on, or for other arguments or another
    tool, it is a call of its own. `reason` and `context` are what the agent asserts.
    `input_schema` is the JSON Schema of the tool's arguments: the defaults that it declares are asked about
    where arguments are left out, and what does not fit its types and names is refused, as the tool may take
    it for something else; with `plain_texts` a text may hold JSON, as nobody reads it. The others are those
    of a tool."""

    tool_call_id: str | None
    action_hint: str | None
    reason: str | None
    context: Mapping[str, Any] | None
    input_schema: Mapping[str, Any] | None
    plain_texts: bool
    annotations: Mapping[str, Any] | None
    wait: bool | float


class GuardingRun(Protocol):
    """What a guard needs of a run."""

    @property
    def driver(self) -> ClientDriver: ...

    def asking(
        self, tool: str, arguments: Mapping[str, Any], details: CallDetails, *, goes_on: bool
    ) -> Flow[ToolDecision]: ...

    def completed(self, decision: ToolDecision, output: Any = None) -> None: ...

    def failed(self, decision: ToolDecision, error: BaseException) -> None: ...


def guarded(run_of: Callable[[], GuardingRun], function: Any, how: GuardDetails) -> Any:
    """The function, guarded in the run that `run_of` names at each call; a decorator, when it is None."""
    if function is None:
        return lambda given: guarded(run_of, given, how)
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(guarded(run_of, function.__func__, how))
    return functools.wraps(function)(_Guard(run_of, function, how).wrapper())


class _Guard:
    """One guarded function."""

    def __init__(self, run_of: Callable[[], GuardingRun], function: Any, how: GuardDetails) -> None:
        self._run_of, self._function = run_of, function
        self._tool = how.get("tool") or function.__name__
        self._bind = binder(function)
        self._details: CallDetails = {
            "action_hint": how.get("action_hint"),
            "annotations": how.get("annotations"),
            "wait": how.get("wait", True),
        }

    def wrapper(self) -> Callable[..., Any]:
        if inspect.isasyncgenfunction(self._function):
            return self._async_generator()
        if inspect.iscoroutinefunction(self._function):
            return self._coroutine()
        if inspect.isgeneratorfunction(self._function):
            return self._generator()
        return self._plain()

    def _asking(self, run: GuardingRun, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Flow[ToolDecision]:
        """Raises Refused."""
        arguments = self._bind(args, kwargs)
        decision = yield from run.asking(self._tool, arguments, self._details, goes_on=True)
        if not decision.allowed:
            raise Refused(decision)
        return decision

    def _plain(self) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            run = self._run_of()
            decision = run.driver.run(self._asking(run, args, kwargs))
            try:
                made = self._function(*args, **kwargs)
            except BaseException as error:
                run.failed(decision, error)
                raise
            return _handed_back(run, decision, made)

        return call

    def _coroutine(self) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            run = self._run_of()
            decision = await run.driver.run_async(self._asking(run, args, kwargs))
            with _Outcome(run, decision) as outcome:
                outcome.output = await self._function(*args, **kwargs)
            return outcome.output

        return call

    def _generator(self) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Iterator[Any]:
            run = self._run_of()
            decision = run.driver.run(self._asking(run, args, kwargs))
            with _Outcome(run, decision) as outcome:
                outcome.output = []
                for value in self._function(*args, **kwargs):
                    outcome.note(value)
                    yield value

        return call

    def _async_generator(self) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            run = self._run_of()
            decision = await run.driver.run_async(self._asking(run, args, kwargs))
            with _Outcome(run, decision) as outcome:
                outcome.output = []
                async for value in self._function(*args, **kwargs):
                    outcome.note(value)
                    yield value

        return call


def _handed_back(run: GuardingRun, decision: ToolDecision, made: Any) -> Any:
    """What a plain function has given; the call is over when that has come to something. What is a context
    as well (a request of aiohttp) stays what it is."""
    if isinstance(made, (asyncio.Future, ConcurrentFuture)):
        made.add_done_callback(functools.partial(_done, run, decision))
    elif inspect.isawaitable(made) and not hasattr(made, "__aenter__"):
        return _awaited(run, decision, made)
    else:
        run.completed(decision, made)
    return made


def _done(
    run: GuardingRun, decision: ToolDecision, made: asyncio.Future[Any] | ConcurrentFuture[Any]
) -> None:
    try:
        output = made.result()
    except BaseException as error:  # whoever waits for it is told, too
        run.failed(decision, error)
    else:
        run.completed(decision, output)


async def _awaited(run: GuardingRun, decision: ToolDecision, made: Awaitable[Any]) -> Any:
    with _Outcome(run, decision) as outcome:
        outcome.output = await made
    return outcome.output


class _Outcome:
    """What a call comes to, reported when it is over; a generator that is left early has completed."""

    def __init__(self, run: GuardingRun, decision: ToolDecision) -> None:
        self._run, self._decision = run, decision
        self.output: Any = None
        self._yielded = 0

    def note(self, value: Any) -> None:
        self._yielded += 1
        if len(self.output) < MOST_YIELDED:
            self.output.append(value)

    def __enter__(self) -> _Outcome:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, GeneratorExit):
            is_cut = self._yielded > MOST_YIELDED
            cut = {"cut": True, "values": self._yielded, "first": self.output}
            self._run.completed(self._decision, cut if is_cut else self.output)
        else:
            self._run.failed(self._decision, error)
