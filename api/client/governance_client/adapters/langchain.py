"""LangChain and LangGraph: a middleware that asks before each tool of an agent runs.

    agent = create_agent(model, tools=[pay], middleware=[GovernanceMiddleware(governance)])

It stands last among the middleware, so that it sees the arguments that a tool runs with. One prompt is one
run of the service; its id is kept in the agent's state, so that an interrupted run goes on in another
process, and with its messages, so that the next prompt of a conversation, and the next agent that is given
these, are known to follow it. A prompt that is named was written by another agent, and is nobody's task. What
was refused is the tool's message, with the status `error`, so that the model reads why and goes
on. A graph of one's own gives its `ToolNode` the methods `wrap_tool_call` and `awrap_tool_call`, inside `with
governance.run(...)`.

With `approvals="interrupt"` a call that waits for a person is a LangGraph `interrupt`, for which the agent
needs a checkpointer; `outcomes` waits for what people say, and gives the `Command` to go on with. The service
is asked again then: an approval counts only if it is its own.

LangChain tells no middleware that a run has failed; where that is to be reported, the agent is also given
`.with_config(callbacks=[middleware.callback])`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Annotated, Any, Literal

from langchain.agents.middleware.types import (
    AgentMiddleware,
    AgentState,
    ModelRequest,
    ModelResponse,
    PrivateStateAttr,
    ToolCallRequest,
)
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime
from langgraph.types import Command, Interrupt
from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema

from governance_client.adapters.langgraph_interrupts import Interrupts
from governance_client.decision import ToolDecision, still_waiting
from governance_client.events import new_id
from governance_client.exchange import Flow
from governance_client.governance import AsyncGovernance, Governance
from governance_client.guard import CallDetails
from governance_client.run_core import NoCurrentRun, RunCore, current_run

MOST_RUNS = 1_000
"""That are remembered at a time; one beyond is known again by the id in its agent's state."""
_DECISION = "governance"
"""What the decision that an interrupt waits for is filed under."""
_RUN_ID = "governance_run_id"
_ANY_NAME = frozenset({"args", "config", "kwargs"})
"""What LangChain reads of the signature of a tool that takes any: `Tool`, or `_run(**kwargs)`."""


class _State(AgentState[Any]):
    governance_run_id: Annotated[str, PrivateStateAttr]
    governance_continues: Annotated[str | None, PrivateStateAttr]


class GovernanceMiddleware(AgentMiddleware[Any, Any, Any]):
    """See the module; for `invoke` and `ainvoke`, with either client. `ungoverned` names tools of the model's
    provider that may run where nobody can ask before it."""

    state_schema = _State

    def __init__(
        self,
        governance: Governance | AsyncGovernance,
        *,
        approvals: Literal["wait", "interrupt"] = "wait",
        ungoverned: Collection[str] = (),
    ) -> None:
        super().__init__()
        self._governance = governance
        self._waits = approvals == "wait"
        self._ungoverned = frozenset(ungoverned)
        self._runs: OrderedDict[str, RunCore] = OrderedDict()
        self.callback: BaseCallbackHandler = _Failures()

    # People ---------------------------------------------------------------------------------------

    def outcomes(self, interrupts: Sequence[Interrupt]) -> Command[Any]:
        """What people have said to the calls that wait for them, once they have, to go on with; other
        interrupts are left out."""
        about = self._about(_waiting(interrupts))
        return _resumption([at for at, run, each in about if run.driver.run(run.waiting(each, None))])

    async def aoutcomes(self, interrupts: Sequence[Interrupt]) -> Command[Any]:
        """As `outcomes`."""
        about = self._about(_waiting(interrupts))
        return _resumption(
            [at for at, run, each in about if await run.driver.run_async(run.waiting(each, None))]
        )

    def _about(self, waiting: dict[str, ToolDecision]) -> Iterator[tuple[str, RunCore, ToolDecision]]:
        return ((at, self._governance.run(run_id=each.run_id), each) for at, each in waiting.items())

    # What LangChain calls -------------------------------------------------------------------------

    def before_agent(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any]:
        return {_RUN_ID: f"run-{new_id()}", "governance_continues": _run_before(state)}

    async def abefore_agent(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any]:
        return self.before_agent(state, runtime)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        with self._model(request):
            return self._answered(request, handler(request))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        with self._model(request):
            return self._answered(request, await handler(request))

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        run = self._run(request.state)
        decision = run.driver.run(self._deciding(run, request))
        if not decision.allowed:
            return _refusal(request, decision)
        with _making(run, decision) as made:
            made.append(handler(request))
        return made[0]

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        run = self._run(request.state)
        decision = await run.driver.run_async(self._deciding(run, request))
        if not decision.allowed:
            return _refusal(request, decision)
        with _making(run, decision) as made:
            made.append(await handler(request))
        return made[0]

    def after_agent(self, state: Any, runtime: Runtime[Any]) -> None:
        run = self._run(state)
        self._runs.pop(run.run_id, None)
        run.driver.run(run.ending(None))

    async def aafter_agent(self, state: Any, runtime: Runtime[Any]) -> None:
        run = self._run(state)
        self._runs.pop(run.run_id, None)
        await run.driver.run_async(run.ending(None))

    # The run --------------------------------------------------------------------------------------

    def _run(self, state: Any) -> RunCore:
        """Of an agent by its state; of a graph of one's own, the current one."""
        run_id = _run_id(state)
        run = (
            current_run() if run_id is None else self._runs.get(run_id) or self._remember(run_id, None, None)
        )
        if run is None:
            raise NoCurrentRun
        return run

    def _remember(
        self, run_id: str, task: str | None, model: str | None, continues: str | None = None
    ) -> RunCore:
        run = self._governance.run(task, run_id=run_id, model=model, continues=continues)
        self._runs[run_id] = run
        if len(self._runs) > MOST_RUNS:
            self._runs.popitem(last=False)
        return run

    @contextmanager
    def _model(self, request: ModelRequest[Any]) -> Iterator[None]:
        """The model is asked; its first question begins the run."""
        elsewhere = {
            str(tool.get("name") or tool.get("type")) for tool in request.tools if isinstance(tool, dict)
        }
        if unknown := elsewhere - self._ungoverned:
            raise ValueError(
                f"nobody can ask before these tools run: {sorted(unknown)}; leave them out, or name them in"
                " `GovernanceMiddleware(..., ungoverned=[...])`"
            )
        run_id = _run_id(request.state)
        if run_id is not None and run_id not in self._runs:
            model = getattr(request.model, "model_name", None) or getattr(request.model, "model", None)
            continues = request.state.get("governance_continues")
            self._remember(run_id, _task(request.messages), model, continues).report_start()
        try:
            yield
        except Exception as error:
            _passing(self._run(request.state), error)
            raise

    def _answered(self, request: ModelRequest[Any], answer: ModelResponse[Any]) -> ModelResponse[Any]:
        for message in answer.result:
            _tell(message, self._run(request.state))
        return answer

    def _deciding(self, run: RunCore, request: ToolCallRequest) -> Flow[ToolDecision]:
        """Asks until the call waits for nobody; each time that it does, the graph is interrupted."""
        call = request.tool_call
        details: CallDetails = {"wait": self._waits, "tool_call_id": call["id"]}
        if request.tool is not None:
            details["input_schema"] = _schema(request.tool)
            # One that is known by its JSON Schema alone may be of an MCP server.
            details["plain_texts"] = not isinstance(request.tool.args_schema, dict)
        decision = yield from run.asking(call["name"], call["args"], details)
        interrupts = Interrupts(call["id"])
        while decision.waiting:
            interrupts.wait(_request(request, decision))
            decision = yield from run.asking(call["name"], call["args"], details)
        interrupts.leave()
        return decision


class _Failures(BaseCallbackHandler):
    """Reports the end of runs that an exception has ended."""

    def on_chain_error(self, error: BaseException, *, parent_run_id: Any = None, **about: Any) -> None:
        run = getattr(error, "governance_run", None)
        if parent_run_id is None and isinstance(run, RunCore):
            run.report_end(error)


def _run_id(state: Any) -> str | None:
    """As `before_agent` has put it there; a graph of one's own may have any state."""
    run_id: str | None = state.get(_RUN_ID) if isinstance(state, dict) else None
    return run_id


def _schema(tool: BaseTool) -> dict[str, Any] | None:
    """Of the arguments that a model may give to the tool."""
    schema: Any = tool.tool_call_schema
    if isinstance(schema, dict):
        return schema
    try:
        found: dict[str, Any] = (
            schema.model_json_schema() if issubclass(schema, BaseModel) else schema.schema()
        )
    except PydanticInvalidForJsonSchema:  # no model of a provider can be told of such a tool
        return None
    declared = found.get("properties", {})
    if tool.args_schema is None and "kwargs" in declared:  # any name, of which LangChain converts nothing
        named = {name: each for name, each in declared.items() if name not in _ANY_NAME}
        return {**found, "properties": named, "additionalProperties": True}
    return found


def _tell(message: BaseMessage, run: RunCore) -> None:
    """A message says of which run it is. What a cache of models gives out again, several of them hold."""
    message.response_metadata = {**message.response_metadata, _RUN_ID: run.run_id}


def _run_before(state: Any) -> str | None:
    """The run that went before, by the last message of one, or by the agent's state."""
    said = [each for each in state.get("messages", ()) if isinstance(each, AIMessage | ToolMessage)]
    told = (each.response_metadata.get(_RUN_ID) for each in reversed(said))
    return next((each for each in told if isinstance(each, str)), None) or _run_id(state)


def _passing(run: RunCore, error: BaseException) -> None:
    """An exception leaves a run's model or tool; a run inside the tool has ended by it."""
    inner = getattr(error, "governance_run", run)
    if inner is not run:
        inner.report_end(error)
    with suppress(AttributeError):
        error.governance_run = run  # type: ignore[attr-defined]


@contextmanager
def _making(run: RunCore, decision: ToolDecision) -> Iterator[list[ToolMessage | Command[Any]]]:
    """The call is made; what it gives is put into the list. A tool that interrupts the run is called
    again."""
    made: list[ToolMessage | Command[Any]] = []
    try:
        with run.current():
            yield made
    except GraphBubbleUp:
        run.postponed(decision)
        raise
    except BaseException as error:
        run.failed(decision, error)
        _passing(run, error)
        raise
    answer = made[0]
    if not isinstance(answer, ToolMessage):
        run.completed(decision, answer)
    elif answer.status == "error":
        run.failed(decision, answer.text or str(answer.content))
    else:
        run.completed(decision, answer.content)
    if isinstance(answer, ToolMessage):
        _tell(answer, run)


def _refusal(request: ToolCallRequest, decision: ToolDecision) -> ToolMessage:
    call = request.tool_call
    return ToolMessage(decision.agent_message, name=call["name"], tool_call_id=call["id"], status="error")


def _request(request: ToolCallRequest, decision: ToolDecision) -> dict[str, Any]:
    """In the shape of LangChain's own requests for an approval, and the decision."""
    call = request.tool_call
    return {
        "type": "tool_approval",
        "tool_call_id": call["id"],
        "name": call["name"],
        "args": call["args"],
        "description": decision.reason,
        _DECISION: {**asdict(decision), "matched": ()},
    }


def _waiting(interrupts: Sequence[Interrupt]) -> dict[str, ToolDecision]:
    """Those of ours by their ids."""
    told = {each.id: each.value for each in interrupts if isinstance(each.value, dict)}
    ours = {at: still_waiting(value.get(_DECISION)) for at, value in told.items()}
    return {at: decision for at, decision in ours.items() if decision is not None}


def _resumption(decided: Sequence[str]) -> Command[Any]:
    """INVARIANT: it says neither yes nor no: the service is asked again, and a tool whose own interrupt is
    given this, as where it names our approval or stands in one node with our call, is told nothing."""
    return Command(resume={at: {} for at in decided})


def _task(messages: Sequence[AnyMessage]) -> str | None:
    """What a person has asked for last. Agents that work together hand on what they found as a prompt with
    their name."""
    people = (each for each in reversed(messages) if isinstance(each, HumanMessage) and not each.name)
    return next((each.text for each in people), None)
