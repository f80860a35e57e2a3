"""OpenAI Agents SDK: a runner that asks before each function tool of an agent runs.

    runner = GovernedRunner(governance)
    result = await runner.run(agent, "pay the invoices of January")

It takes what `Runner` takes; one input is one run of the service, which continues the one whose results stand
in the input, in its session or in the conversation that it names. This runner knows the runs that it made
itself; of others `continues` says which it is, as `result.governance_run_id` was. Tools of MCP servers and of
agents that are handed over to are governed as well, and those of agents used as tools, if it is
`runner.govern(agent).as_tool()`. What was refused is the output of the tool, so that the model reads why and
goes on.

With `approvals="interrupt"` a call that waits for a person interrupts the run as the SDK's `needs_approval`
does: `result.interruptions` has it, `save` gives the run as text, and `resume` waits for what people say and
goes on, in whichever process. The service is asked again then: an approval counts only if it is its own. A
tool that has a `needs_approval` of its own keeps it; the SDK's is asked for first, by the SDK's own means.
"""

from __future__ import annotations

import copy
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeVar

from agents import (
    Agent,
    FunctionTool,
    Handoff,
    RunContextWrapper,
    Runner,
    RunResult,
    RunResultStreaming,
    RunState,
    Tool,
    ToolApprovalItem,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolInputGuardrailData,
    UserError,
)
from agents.agent_tool_state import get_agent_tool_state_scope, peek_agent_tool_run_result
from agents.tool_context import ToolContext

from governance_client.decision import Question, ToolDecision
from governance_client.governance import AsyncAgentRun, AsyncGovernance
from governance_client.guard import CallDetails
from governance_client.run_core import NoCurrentRun, RunCore, current_run

R = TypeVar("R", RunResult, RunResultStreaming)
Schema = dict[str, Any] | None
"""The JSON Schema of a tool's arguments."""
_FAILED = "_function_tool_default_failure_handled"
"""What the SDK notes in a call's context when a tool's exception became the text of its output."""
_RUN_ID = "governance_run_id"
_CONVERSATIONS = ("conversation_id", "previous_response_id")
"""Options that name what the provider keeps of what went before."""
MOST_REMEMBERED = 10_000
"""Calls and conversations of which a runner remembers the run."""


class GovernedRunner:
    """See the module. `ungoverned` names tools that may run where nobody can ask before it: hosted ones,
    and those of the SDK that are no function tools (shell, computer, apply_patch)."""

    def __init__(
        self,
        governance: AsyncGovernance,
        *,
        approvals: Literal["wait", "interrupt"] = "wait",
        ungoverned: Collection[str] = (),
    ) -> None:
        self._governance = governance
        self._waits = approvals == "wait"
        self._ungoverned = frozenset(ungoverned)
        self._decided: dict[tuple[str, ...], list[ToolDecision]] = {}
        """Calls that may run and have not begun, by all that they are: a model may give two the same id, and
        may want one twice."""
        self._runs: OrderedDict[str, str] = OrderedDict()
        """The runs of calls, answers and conversations, by their ids."""
        self._held: dict[tuple[str, str | None], Schema] = {}
        """Tools whose approvals are the service's, by the names of their agents and their own."""

    # As `Runner` has it ---------------------------------------------------------------------------

    async def run(
        self,
        starting_agent: Agent[Any],
        input: Any,
        *,
        run_id: str | None = None,
        continues: str | None = None,
        **options: Any,
    ) -> RunResult:
        """As `Runner.run`. `run_id` is the service's, for a `RunState` that goes on; `continues` that of the
        input before."""
        agent = self.govern(starting_agent, input)
        async with await self._begun(agent, input, run_id, continues, options) as run:
            return self._left(run, await Runner.run(agent, input, **options), options)

    @asynccontextmanager
    async def run_streamed(
        self,
        starting_agent: Agent[Any],
        input: Any,
        *,
        run_id: str | None = None,
        continues: str | None = None,
        **options: Any,
    ) -> AsyncIterator[RunResultStreaming]:
        """As `Runner.run_streamed`, to be left once the stream has ended."""
        agent = self.govern(starting_agent, input)
        async with await self._begun(agent, input, run_id, continues, options) as run:
            result = Runner.run_streamed(agent, input, **options)
            yield result
            self._left(run, result, options)

    async def _begun(
        self,
        agent: Agent[Any],
        input: Any,
        run_id: str | None,
        continues: str | None,
        options: dict[str, Any],
    ) -> AsyncAgentRun:
        before = continues or (None if run_id else await self._before(input, options))
        model = _model(agent, options)
        return self._governance.run(_text(input), run_id=run_id, model=model, continues=before)

    async def _before(self, input: Any, options: dict[str, Any]) -> str | None:
        """The run whose results the model reads before this input."""
        session = options.get("session")
        items = [] if session is None else list(await session.get_items())
        items += input if isinstance(input, list) else []
        ids = [item.get("call_id") for item in items if isinstance(item, dict)]
        ids += [options.get(name) for name in _CONVERSATIONS]
        return next((run for each in reversed(ids) if (run := self._runs.get(each or "")) is not None), None)

    def remember(self, run: RunCore, *ids: str | None) -> None:
        """Whoever reads these ids again has before it what the run was given."""
        for each in ids:
            if each is not None:
                self._runs[each] = run.run_id
                self._runs.move_to_end(each)
        while len(self._runs) > MOST_REMEMBERED:
            self._runs.popitem(last=False)

    def _left(self, run: AsyncAgentRun, result: R, options: dict[str, Any]) -> R:
        """The result with the run's id; a run that is interrupted has not ended."""
        if result.interruptions:
            run.pause()
        self.remember(run, result.last_response_id, options.get("conversation_id"))
        setattr(result, _RUN_ID, run.run_id)
        return result

    # Interrupted runs -----------------------------------------------------------------------------

    def save(self, result: RunResult | RunResultStreaming) -> str:
        """An interrupted run as text, to be kept where nobody but the application writes."""
        return json.dumps({"runId": getattr(result, _RUN_ID), "state": result.to_state().to_json()})

    async def resume(self, starting_agent: Agent[Any], saved: str, **options: Any) -> RunResult:
        """Go on with a run once people have decided all its calls that wait for them; the agent is the one
        that it began with, and `options` are those of `Runner.run`."""
        kept = json.loads(saved)
        agent = self.govern(starting_agent)
        context = options.get("context")
        async with self._governance.run(run_id=kept["runId"]) as run:
            state = await RunState.from_json(agent, kept["state"], context_override=context)
            for item in state.get_interruptions():
                if (item.agent.name, item.tool_name) in self._held:
                    await self._resolve(run, state, item)
            return self._left(run, await Runner.run(agent, state, **options), options)

    async def _resolve(self, run: AsyncAgentRun, state: RunState[Any, Any], item: ToolApprovalItem) -> None:
        call: Any = item.raw_item
        schema = self._held[item.agent.name, item.tool_name]
        decision = await self._ask(run, call.name, call.arguments, call.call_id, wait=True, schema=schema)
        run.postponed(decision)
        if decision.allowed:
            state.approve(item)
        else:
            state.reject(item, rejection_message=decision.agent_message)

    # Agents ---------------------------------------------------------------------------------------

    def govern(self, agent: Agent[Any], input: Any = None) -> GovernedAgent:
        """A copy of the agent, and of those that it hands over to, whose tools are asked about."""
        if isinstance(input, RunState) and not isinstance(input._current_agent, GovernedAgent):
            raise UserError(
                "this state is of another runner; `RunState.from_json` takes `runner.govern(agent)`"
            )
        return self._govern(agent, {})

    def _govern(self, agent: Agent[Any], known: dict[int, GovernedAgent]) -> GovernedAgent:
        if isinstance(agent, GovernedAgent):
            return agent
        if id(agent) in known:
            return known[id(agent)]
        if type(agent) is not Agent:
            raise UserError(f"`{type(agent).__name__}` has tools that nobody can ask about; give an `Agent`")
        members = {each.name: getattr(agent, each.name) for each in fields(agent) if each.init}
        known[id(agent)] = governed = GovernedAgent(**members, governor=self)
        governed.handoffs = [
            _checked(each) if isinstance(each, Handoff) else self._govern(each, known)
            for each in agent.handoffs
        ]
        return governed

    def governed(self, tool: Tool, agent: str) -> Tool:
        """A copy of the agent's tool that is asked about; raises UserError if that is not possible."""
        inner = getattr(tool, "_agent_instance", None)
        if not isinstance(tool, FunctionTool) or not isinstance(inner, GovernedAgent | None):
            if tool.name in self._ungoverned:
                return tool
            remedy = "use `runner.govern(agent).as_tool(...)`" if inner else "leave it out"
            raise UserError(
                f"nobody can ask before what `{tool.name}` does; {remedy}, or name it in"
                " `GovernedRunner(..., ungoverned=[...])`"
            )
        held = copy.copy(tool)
        interrupts = not self._waits and tool.needs_approval is False
        if interrupts:
            self._held[agent, tool.name] = tool.params_json_schema
            held.needs_approval = _Interruption(self, tool).needs_approval
        gate: ToolInputGuardrail[Any] = ToolInputGuardrail(
            _Gate(self, tool, waits=not interrupts).check, name="governance"
        )
        held.tool_input_guardrails = [*(tool.tool_input_guardrails or ()), gate]
        held.on_invoke_tool = _Invocation(self, tool).invoke
        return held

    # Calls ----------------------------------------------------------------------------------------

    async def decide(
        self, tool: str, arguments: str, call_id: str, *, wait: bool, schema: Schema = None
    ) -> ToolDecision:
        """The decision on a call of the current run, which is kept if the call may run."""
        run = _current()
        key = _call(run, tool, arguments, call_id)
        if key not in self._decided:
            decision = await self._ask(run, tool, arguments, call_id, wait=wait, schema=schema)
            if not decision.allowed:
                return decision
            self._decided.setdefault(key, []).append(decision)
        return self._decided[key][0]

    def take(self, tool: str, arguments: str, call_id: str) -> None:
        """A call begins; its decision holds for nothing else."""
        key = _call(_current(), tool, arguments, call_id)
        decided = self._decided.pop(key, [])
        if len(decided) > 1:
            self._decided[key] = decided[1:]

    async def _ask(
        self, run: RunCore, tool: str, arguments: str, call_id: str, *, wait: bool, schema: Schema
    ) -> ToolDecision:
        try:
            given = json.loads(arguments or "{}")
        except ValueError:
            given = None
        if not isinstance(given, dict):
            question = Question(run.run_id, tool, call_id, "{}")
            return question.without_answer("invalid", "its arguments are no JSON object")
        details: CallDetails = {"tool_call_id": call_id, "wait": wait, "input_schema": schema}
        return await run.driver.run_async(run.asking(tool, given, details))


@dataclass
class GovernedAgent(Agent[Any]):
    """An agent whose tools, those of MCP servers among them, are asked about before they run."""

    governor: GovernedRunner | None = field(default=None, repr=False, compare=False)

    async def get_all_tools(self, run_context: RunContextWrapper[Any]) -> list[Tool]:
        if self.governor is None:
            raise UserError("an agent is governed by `runner.govern(agent)`")
        return [self.governor.governed(tool, self.name) for tool in await super().get_all_tools(run_context)]


@dataclass(frozen=True)
class _Interruption:
    """Whether a call interrupts the run."""

    runner: GovernedRunner
    tool: FunctionTool

    async def needs_approval(
        self, context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str
    ) -> bool:
        name, schema = self.tool.name, self.tool.params_json_schema
        decision = await self.runner.decide(name, json.dumps(arguments), call_id, wait=False, schema=schema)
        return decision.waiting


@dataclass(frozen=True)
class _Gate:
    """What stands before a tool, outside of the time that the tool may take."""

    runner: GovernedRunner
    tool: FunctionTool
    waits: bool

    async def check(self, data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        call = data.context
        decision = await self.runner.decide(
            call.tool_name,
            call.tool_arguments,
            call.tool_call_id,
            wait=self.waits,
            schema=self.tool.params_json_schema,
        )
        if decision.allowed:
            return ToolGuardrailFunctionOutput.allow()
        return ToolGuardrailFunctionOutput.reject_content(decision.agent_message)


@dataclass(frozen=True)
class _Invocation:
    """The call itself, and the report of what came of it."""

    runner: GovernedRunner
    tool: FunctionTool

    async def invoke(self, context: ToolContext[Any], arguments: str) -> Any:
        run = _current()
        call_id = context.tool_call_id
        schema = self.tool.params_json_schema
        decision = await self.runner.decide(context.tool_name, arguments, call_id, wait=False, schema=schema)
        self.runner.take(context.tool_name, arguments, call_id)
        self.runner.remember(run, call_id)
        if not decision.allowed:
            return decision.agent_message
        try:
            output = await self.tool.on_invoke_tool(context, arguments)
        except BaseException as error:
            run.failed(decision, error)
            raise
        if _is_interrupted(context):
            run.postponed(decision)
            return output
        if getattr(context, _FAILED, False):
            run.failed(decision, str(output))
        else:
            run.completed(decision, output)
        return output


def _call(run: RunCore, tool: str, arguments: str, call_id: str) -> tuple[str, ...]:
    """All that a call is; the same arguments are the same however they are spelled."""
    with suppress(ValueError):
        arguments = json.dumps(json.loads(arguments or "{}"), sort_keys=True)
    return run.run_id, call_id, tool, arguments


def _current() -> RunCore:
    run = current_run()
    if run is None:
        raise NoCurrentRun
    return run


def _is_interrupted(context: ToolContext[Any]) -> bool:
    """Whether the tool is an agent that waits for an approval; it will be called again."""
    if context.tool_call is None:
        return False
    result = peek_agent_tool_run_result(context.tool_call, scope_id=get_agent_tool_state_scope(context))
    return bool(getattr(result, "interruptions", None))


def _checked(handoff: Handoff[Any, Any]) -> Handoff[Any, Any]:
    """A handoff of one's own hands over to governed agents alone."""
    original = handoff.on_invoke_handoff

    async def invoke(context: RunContextWrapper[Any], arguments: str) -> Agent[Any]:
        agent: Agent[Any] = await original(context, arguments)
        if not isinstance(agent, GovernedAgent):
            raise UserError(f"`{agent.name}` is not governed; write `handoff(runner.govern(agent))`")
        return agent

    return replace(handoff, on_invoke_handoff=invoke)


def _model(agent: Agent[Any], options: dict[str, Any]) -> str | None:
    model = getattr(options.get("run_config"), "model", None) or agent.model
    return model if isinstance(model, str) or model is None else getattr(model, "model", None)


def _text(input: Any) -> str | None:
    """What a person has asked for last."""
    if isinstance(input, str) or not isinstance(input, list):
        return input if isinstance(input, str) else None
    said = [item for item in input if isinstance(item, dict) and item.get("role") == "user"]
    content = said[-1].get("content") if said else None
    if isinstance(content, str) or content is None:
        return content
    return "\n".join(part.get("text", "") for part in content if isinstance(part, dict))
