"""The tools of a governed agent of the OpenAI Agents SDK: each asks before it is called, and tells what came
of it."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from typing import Any, Final

from agents import (
    FunctionTool,
    RunContextWrapper,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolInputGuardrailData,
)
from agents.agent_tool_state import get_agent_tool_state_scope, peek_agent_tool_run_result
from agents.tool_context import ToolContext

from governance_client.adapters.openai_conversations import Conversations, call_read
from governance_client.decision import Question, ToolDecision
from governance_client.guard import CallDetails
from governance_client.run_core import NoCurrentRun, RunCore, current_run

_FAILED: Final = "_function_tool_default_failure_handled"
"""What the SDK notes in a call's context when a tool's exception became the text of its output."""


class Calls:
    """Those of all runs of a runner: the decisions of those that have not begun, and what the runs of those
    that have go on from."""

    def __init__(self) -> None:
        self.conversations = Conversations()
        self._decided: dict[tuple[str, ...], list[ToolDecision]] = {}
        """By all that a call is: a model may give two the same id, and may want one twice."""

    async def decide(self, tool: GovernedTool, arguments: str, call_id: str, *, wait: bool) -> ToolDecision:
        """The decision on a call of the current run, which is kept if the call may run."""
        run = _current()
        key = run.run_id, *call_read(call_id, tool.tool.name, arguments)
        if key not in self._decided:
            decision = await tool.ask(run, arguments, call_id, wait=wait)
            if not decision.allowed:
                return decision
            self._decided.setdefault(key, []).append(decision)
        return self._decided[key][0]

    def begin(self, tool: GovernedTool, arguments: str, call_id: str) -> RunCore:
        """The run of a call that begins; its decision holds for nothing else."""
        run = _current()
        read = call_read(call_id, tool.tool.name, arguments)
        key = run.run_id, *read
        decided = self._decided.pop(key, [])
        if len(decided) > 1:
            self._decided[key] = decided[1:]
        self.conversations.remember(run.run_id, [(call_id,), read])
        return run


@dataclass(frozen=True)
class GovernedTool:
    """One tool. Where it `interrupts`, a call that waits for a person interrupts the run; else it waits."""

    calls: Calls
    tool: FunctionTool
    interrupts: bool = False

    def as_tool(self) -> FunctionTool:
        """A copy of the tool that is asked about. The gate stands outside of the time that the tool may
        take."""
        made = copy.copy(self.tool)
        if self.interrupts:
            made.needs_approval = self._needs_approval
        gate: ToolInputGuardrail[Any] = ToolInputGuardrail(self._check, name="governance")
        made.tool_input_guardrails = [*(self.tool.tool_input_guardrails or ()), gate]
        made.on_invoke_tool = self._invoke
        return made

    async def ask(self, run: RunCore, arguments: str, call_id: str, *, wait: bool) -> ToolDecision:
        """The service's decision on a call."""
        try:
            given = json.loads(arguments or "{}")
        except ValueError:
            given = None
        if not isinstance(given, dict):
            question = Question(run.run_id, self.tool.name, call_id, "{}")
            return question.without_answer("invalid", "its arguments are no JSON object")
        schema = self.tool.params_json_schema
        details: CallDetails = {"tool_call_id": call_id, "wait": wait, "input_schema": schema}
        return await run.driver.run_async(run.asking(self.tool.name, given, details))

    async def _needs_approval(
        self, context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str
    ) -> bool:
        decision = await self.calls.decide(self, json.dumps(arguments), call_id, wait=False)
        return decision.waiting

    async def _check(self, data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        call = data.context
        decision = await self.calls.decide(
            self, call.tool_arguments, call.tool_call_id, wait=not self.interrupts
        )
        if decision.allowed:
            return ToolGuardrailFunctionOutput.allow()
        return ToolGuardrailFunctionOutput.reject_content(decision.agent_message)

    async def _invoke(self, context: ToolContext[Any], arguments: str) -> Any:
        decision = await self.calls.decide(self, arguments, context.tool_call_id, wait=False)
        run = self.calls.begin(self, arguments, context.tool_call_id)
        if not decision.allowed:
            return decision.agent_message
        try:
            output = await self.tool.on_invoke_tool(context, arguments)
        except BaseException as error:
            run.failed(decision, error)
            raise
        if _is_interrupted(context):
            run.postponed(decision)
        elif getattr(context, _FAILED, False):
            run.failed(decision, str(output))
        else:
            run.completed(decision, output)
        self.calls.conversations.remember(run.run_id, [(context.tool_call_id, str(output))])
        return output


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
