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

import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
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
    UserError,
)

from governance_client.adapters.openai_conversations import conversation, names_read
from governance_client.adapters.openai_tools import Calls, GovernedTool
from governance_client.governance import AsyncAgentRun, AsyncGovernance

R = TypeVar("R", RunResult, RunResultStreaming)
_RUN_ID = "governance_run_id"


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
        self._calls = Calls()

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
        """As `Runner.run`. `run_id` is the service's, for a `RunState` that goes on and is of another runner;
        `continues` that of the input before."""
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
        session = options.get("session")
        items = [] if session is None else list(await session.get_items())
        read = conversation(items + _items(input), options)
        before = None if run_id or continues else self._calls.conversations.latest_run(read)
        if isinstance(input, RunState) and input.get_interruptions():
            run_id = run_id or before  # the run that was interrupted
        else:
            continues = continues or before
        model = _model(agent, options)
        run = self._governance.run(_text(input), run_id=run_id, model=model, continues=continues)
        self._calls.conversations.remember(run.run_id, read)
        return run

    def _left(self, run: AsyncAgentRun, result: R, options: dict[str, Any]) -> R:
        """The result with the run's id; a run that is interrupted has not ended."""
        if result.interruptions:
            run.pause()
        named = names_read({**options, "previous_response_id": result.last_response_id})
        self._calls.conversations.remember(run.run_id, conversation(result.to_input_list(), {}) + named)
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
                held = item.agent.held if isinstance(item.agent, GovernedAgent) else {}
                if (tool := held.get(item.tool_name)) is not None:
                    await self._resolve(run, tool, state, item)
            return self._left(run, await Runner.run(agent, state, **options), options)

    async def _resolve(
        self, run: AsyncAgentRun, tool: GovernedTool, state: RunState[Any, Any], item: ToolApprovalItem
    ) -> None:
        call: Any = item.raw_item
        decision = await tool.ask(run, call.arguments, call.call_id, wait=True)
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

    def governed(self, tool: Tool, held: dict[str | None, GovernedTool]) -> Tool:
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
        interrupts = not self._waits and tool.needs_approval is False
        made = GovernedTool(self._calls, tool, interrupts=interrupts)
        if interrupts:
            held[tool.name] = made
        return made.as_tool()


@dataclass
class GovernedAgent(Agent[Any]):
    """An agent whose tools, those of MCP servers among them, are asked about before they run."""

    governor: GovernedRunner | None = field(default=None, repr=False, compare=False)
    held: dict[str | None, GovernedTool] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Its tools whose approvals are the service's."""

    async def get_all_tools(self, run_context: RunContextWrapper[Any]) -> list[Tool]:
        if self.governor is None:
            raise UserError("an agent is governed by `runner.govern(agent)`")
        tools = await super().get_all_tools(run_context)
        self.held.clear()
        return [self.governor.governed(tool, self.held) for tool in tools]


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


def _items(input: Any) -> list[Any]:
    """What stands in an input, or in a run that goes on."""
    if isinstance(input, RunState):
        made = [each for each in input._generated_items if not isinstance(each, ToolApprovalItem)]
        return _items(input._original_input) + [each.to_input_item() for each in made]
    return input if isinstance(input, list) else []


def _text(input: Any) -> str | None:
    """What a person has asked for last."""
    if isinstance(input, str) or not isinstance(input, list):
        return input if isinstance(input, str) else None
    said = [item for item in input if isinstance(item, dict) and item.get("role") == "user"]
    content = said[-1].get("content") if said else None
    if isinstance(content, str) or content is None:
        return content
    return "\n".join(part.get("text", "") for part in content if isinstance(part, dict))
