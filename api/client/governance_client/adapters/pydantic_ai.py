"""Pydantic AI: a capability that asks before each tool of an agent runs.

    agent = Agent("openai:gpt-5", tools=[pay], capabilities=[Governed(governance)])

What follows one prompt is one run of the service, also when it is interrupted and goes on in another process:
a run without a prompt of its own, or with one that comes beside the results of calls that waited, belongs to
the one whose prompt stands last before that. One with a prompt continues that one, since its model reads what
that was given. What was refused is the failed result of
the tool (`ToolFailed`), so that the model reads why and goes on.

With `approvals="interrupt"` a call that waits for a person ends the agent's run with `DeferredToolRequests`,
which `output_type` must name; `outcomes` waits for what people say, and the next run takes that as its
`deferred_tool_results`. The service is asked again then: an approval counts only if it is its own.
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from dataclasses import asdict, replace
from typing import Any, Literal, Self

from pydantic_ai import AgentRunResult, ApprovalRequired, CallDeferred, RunContext, ToolFailed
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.capabilities.abstract import (
    WrapOutputProcessHandler,
    WrapRunHandler,
    WrapToolExecuteHandler,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart, UserPromptPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.output import OutputContext
from pydantic_ai.tools import (
    DeferredToolApprovalResult,
    DeferredToolRequests,
    DeferredToolResults,
    ToolApproved,
    ToolDefinition,
    ToolDenied,
)
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset

from governance_client.decision import still_waiting
from governance_client.governance import AsyncAgentRun, AsyncGovernance

_DECISION = "governance"
"""What the decision that a deferred call waits for is filed under, in the metadata of the call."""


class Governed(AbstractCapability[Any]):
    """See the module. `ungoverned` names tools that may run where nobody can ask before it: those of the
    model's provider, those that are executed outside of the agent, and functions of `output_type`."""

    def __init__(
        self,
        governance: AsyncGovernance,
        *,
        approvals: Literal["wait", "interrupt"] = "wait",
        ungoverned: Collection[str] = (),
    ) -> None:
        super().__init__()
        self._governance = governance
        self._waits = approvals == "wait"
        self._ungoverned = frozenset(ungoverned)
        self._run: AsyncAgentRun | None = None

    async def outcomes(self, requests: DeferredToolRequests) -> DeferredToolResults:
        """What people have said to the calls that wait for them, once they have; other requests are left
        out."""
        approvals: dict[str, DeferredToolApprovalResult] = {}
        for tool_call_id, metadata in requests.metadata.items():
            if (waiting := still_waiting(metadata.get(_DECISION))) is not None:
                decision = await self._governance.run(run_id=waiting.run_id).wait(waiting)
                approvals[tool_call_id] = (
                    ToolApproved() if decision.allowed else ToolDenied(decision.agent_message)
                )
        return requests.build_results(
            approvals=approvals, metadata={each: {_DECISION: True} for each in approvals}
        )

    # What Pydantic AI calls -----------------------------------------------------------------------

    def get_ordering(self) -> CapabilityOrdering:
        """Innermost: what other capabilities make of the arguments is what is asked about."""
        return CapabilityOrdering(position="innermost")

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        return _Unapproved(toolset)

    async def for_run(self, ctx: RunContext[Any]) -> Self:
        return copy.copy(self)

    async def wrap_run(self, ctx: RunContext[Any], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        before, waits = _run_before(ctx)
        said, begins = _text(ctx.prompt), ctx.prompt is not None and not waits
        about = self._governance.run(
            said if begins else None,
            run_id=ctx.run_id if begins else before or ctx.run_id,
            model=ctx.model.model_name,
            continues=before if begins else None,
        )
        async with about as self._run:
            if said and not begins:
                self._run.said(said)
            result = await handler()
            if isinstance(result.output, DeferredToolRequests):
                self._run.pause()
            return result

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        asked = request_context.model_request_parameters
        elsewhere = {tool.kind for tool in asked.native_tools}
        elsewhere |= {tool.name for tool in asked.function_tools if tool.kind == "external"}
        if unknown := elsewhere - self._ungoverned:
            raise UserError(
                f"nobody can ask before these tools run: {sorted(unknown)}; leave them out, or name them in"
                " `Governed(..., ungoverned=[...])`"
            )
        return request_context

    async def wrap_output_process(
        self,
        ctx: RunContext[Any],
        *,
        output_context: OutputContext,
        output: Any,
        handler: WrapOutputProcessHandler,
    ) -> Any:
        """A function that the model calls with its output runs only where it is named."""
        name = output_context.function_name or "output function"
        if output_context.has_function and name not in self._ungoverned:
            raise UserError(
                f"nobody can ask before the output function `{name}` runs; make it a tool, or name it in"
                " `Governed(..., ungoverned=[...])`"
            )
        return await handler(output)

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: WrapToolExecuteHandler,
    ) -> Any:
        run = self._run
        if run is None:
            raise UserError("a tool was called outside of a run of the agent")
        decision = await run.check(
            call.tool_name,
            args,
            tool_call_id=call.tool_call_id,
            wait=self._waits,
            input_schema=_unread_schema(ctx, tool_def),
        )
        if decision.waiting:
            raise ApprovalRequired({_DECISION: {**asdict(decision), "matched": ()}})
        if not decision.allowed:
            raise ToolFailed(decision.agent_message)
        try:
            output = await handler(args)
        except (ApprovalRequired, CallDeferred):
            run.postponed(decision)
            raise
        except BaseException as error:
            run.failed(decision, error)
            raise
        run.completed(decision, output)
        return output


class _Unapproved(WrapperToolset[Any]):
    """A yes of the service is none to what a tool asks for itself."""

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        if _DECISION in (ctx.tool_call_metadata or {}):
            ctx = replace(ctx, tool_call_approved=False)
        return await super().call_tool(name, tool_args, ctx, tool)


def _unread_schema(ctx: RunContext[Any], tool: ToolDefinition) -> dict[str, Any] | None:
    """That of a tool whose arguments Pydantic AI does not validate, like those of MCP servers and of
    other SDKs: what a model gives is converted by whoever runs them."""
    known = ctx.tool_manager.tools if ctx.tool_manager is not None else None
    if known is None or tool.name not in known:
        return None
    kind = str(getattr(known[tool.name].args_validator, "title", ""))
    return tool.parameters_json_schema if kind == "any" or kind.startswith("dict[") else None


def _text(prompt: Any) -> str | None:
    """What of a prompt is text."""
    if prompt is None or isinstance(prompt, str):
        return prompt
    return "\n".join(part if isinstance(part, str) else getattr(part, "content", "") for part in prompt)


def _run_before(ctx: RunContext[Any]) -> tuple[str | None, bool]:
    """The run that the history belongs to: that of the last prompt which did not come while calls waited for
    their results; and whether some do. Pydantic AI gives each part of a run an id of its own, and a tool may
    say something that looks like a prompt."""
    found: str | None = None
    part: str | None = None
    waiting = set[str]()
    for message in ctx.messages:
        if message.run_id == ctx.run_id:
            continue
        if isinstance(message, ModelResponse):
            waiting = {call.tool_call_id for call in message.tool_calls}
        elif message.run_id not in (None, part):
            if not waiting and any(isinstance(each, UserPromptPart) for each in message.parts):
                found = message.run_id
            part = message.run_id
        if isinstance(message, ModelRequest):
            waiting -= {getattr(each, "tool_call_id", "") for each in message.parts}
    return found, bool(waiting) and ctx.messages[-1].state != "interrupted"
