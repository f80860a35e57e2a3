"""The client as agents use it: `Governance` for threads, `AsyncGovernance` for tasks.

    governance = Governance.from_env()
    with governance.run(task="pay the invoices of January") as run:
        @run.guard
        def create_payment(amount: float) -> str: ...

Both have the same core; what differs is who waits: with `Governance` the thread that asks, one connection
each; with `AsyncGovernance` a task, so that hundreds of agents wait in one thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypedDict, TypeVar, Unpack

from governance_client.core import ClientCore
from governance_client.decision import ToolDecision
from governance_client.exchange import ClientRequest, ClientResponse, once
from governance_client.guard import CallDetails, GuardDetails, guarded
from governance_client.run_core import NoCurrentRun, RunCore, current_run, seconds_to_wait
from governance_client.settings import ClientSettings

R = TypeVar("R", bound=RunCore)


class RunDetails(TypedDict, total=False):
    """What may be said of a run. `agent_id`, if it is not the client's. `run_id` goes on with an earlier run,
    also after a restart. `model`, `reason` and `context` are facts that policies may ask about. `host` names
    the program through which the agent acts. `parent` is the run that started this one: a run, or its id; by
    default the current run, if there is one; False: none. `continues` is the id of the run before this one,
    whose outputs the agent still has before it, as in a conversation.
    """

    agent_id: str | None
    run_id: str | None
    model: str | None
    host: str | None
    reason: str | None
    context: Mapping[str, Any] | None
    parent: RunCore | str | Literal[False] | None
    continues: str | None


class AgentRun(RunCore):
    """A run whose questions the asking thread waits for. `with` begins and ends it."""

    def __enter__(self) -> Self:
        return self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(error)

    def end(self, error: BaseException | None = None) -> None:
        """Report the end, and what is queued. For runs that `begin` has begun, without `with`."""
        self.driver.run(self.ending(error))

    def check(self, tool: str, arguments: Mapping[str, Any], **details: Unpack[CallDetails]) -> ToolDecision:
        """Ask whether a tool may run, waiting for people unless `wait` says otherwise. Never raises for an
        answer, or for none: what is not `allowed` must not run. Report the outcome by `completed` or
        `failed`."""
        return self.driver.run(self.asking(tool, arguments, details))

    def wait(self, decision: ToolDecision, seconds: bool | float = True) -> ToolDecision:
        """Wait (on) for the person that a call waits for; the decision as it is then."""
        return self.driver.run(self.waiting(decision, seconds_to_wait(seconds)))


class AsyncAgentRun(RunCore):
    """A run whose questions tasks wait for. `async with` begins and ends it."""

    async def __aenter__(self) -> Self:
        return self.begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.end(error)

    async def end(self, error: BaseException | None = None) -> None:
        """As `AgentRun.end`."""
        await self.driver.run_async(self.ending(error))

    async def check(
        self, tool: str, arguments: Mapping[str, Any], **details: Unpack[CallDetails]
    ) -> ToolDecision:
        """As `AgentRun.check`."""
        return await self.driver.run_async(self.asking(tool, arguments, details))

    async def wait(self, decision: ToolDecision, seconds: bool | float = True) -> ToolDecision:
        """As `AgentRun.wait`."""
        return await self.driver.run_async(self.waiting(decision, seconds_to_wait(seconds)))


class _Client(Generic[R]):
    """What both have in common."""

    _runs: type[R]

    def __init__(self, settings: ClientSettings) -> None:
        self.core = ClientCore(settings)
        self._process_run: R | None = None

    @classmethod
    def from_env(cls, environment: Mapping[str, str] | None = None) -> Self:
        """By `GOVERNANCE_URL`, `GOVERNANCE_API_KEY`, `GOVERNANCE_AGENT_ID`, `GOVERNANCE_FAIL_MODE` and
        `GOVERNANCE_JOURNAL`. Raises ValueError naming the one that is wrong."""
        return cls(ClientSettings.from_env(environment))

    @property
    def settings(self) -> ClientSettings:
        return self.core.settings

    def run(self, task: str | None = None, **details: Unpack[RunDetails]) -> R:
        """A run to be entered; `task` is what was asked for, in the words of whoever asked."""
        return self._runs(self.core, task, **details)

    def start(self, task: str | None = None, **details: Unpack[RunDetails]) -> R:
        """A run that is begun at once, and stands in for the current run wherever there is none; for a
        process that is one run. `end` ends it."""
        self._process_run = self.run(task, **details).begin()
        return self._process_run

    def guard(self, function: Any = None, **how: Unpack[GuardDetails]) -> Any:
        """As `guard` of a run, in whichever run is current when the tool is called. Raises NoCurrentRun."""
        return guarded(self._current, function, how)

    def _current(self) -> RunCore:
        run = current_run() or self._process_run
        if run is None:
            raise NoCurrentRun
        return run


class Governance(_Client[AgentRun]):
    """See the module. One for a process is enough; `close` or the end of the process sends what is queued."""

    _runs = AgentRun

    def request(self, request: ClientRequest) -> ClientResponse:
        """Ask for something else, once, with the key of this client; any answer is given back. Raises
        Unreachable."""
        return self.core.driver.run(once(request))

    def close(self) -> None:
        """Send what is queued, and let go of connections."""
        self.core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class AsyncGovernance(_Client[AsyncAgentRun]):
    """See the module. One may be used in several event loops, one after another or at once."""

    _runs = AsyncAgentRun

    async def request(self, request: ClientRequest) -> ClientResponse:
        """As `Governance.request`."""
        return await self.core.driver.run_async(once(request))

    async def close(self) -> None:
        """Send what is queued, and let go of the connections of this event loop."""
        await self.core.driver.run_async(self.core.flushing())
        await self.core.driver.close_async()
        self.core.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
