"""Pydantic AI under test: its `FunctionModel` reads the script."""

from __future__ import annotations

import json
from typing import Any

from governance_client import AsyncGovernance
from governance_client.adapters.pydantic_ai import Governed
from pydantic import TypeAdapter
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tests.api.client.adapters.driver import DONE, MODEL, TASK, Outcome, OutOfOrder, Script, Tools, call_id

REQUESTS = TypeAdapter(DeferredToolRequests)


class PydanticAi:
    name = "pydantic-ai"
    pauses, survives, knows_task = True, False, True

    async def run(
        self, governance: AsyncGovernance, script: Script, tools: Tools, *, breaks: bool = False
    ) -> Outcome:
        agent = _agent(script, tools, Governed(governance), breaks)
        result = await agent.run(TASK)
        return _outcome(result.all_messages(), result.output)

    async def pause(self, governance: AsyncGovernance, script: Script, tools: Tools) -> str:
        agent = _agent(script, tools, Governed(governance, approvals="interrupt"))
        result = await agent.run(TASK)
        return _saved(result)

    async def resume(self, governance: AsyncGovernance, script: Script, tools: Tools, saved: str) -> Outcome:
        governed = Governed(governance, approvals="interrupt")
        kept = json.loads(saved)
        while True:
            results = await governed.outcomes(REQUESTS.validate_python(kept["requests"]))
            result = await _agent(script, tools, governed).run(
                message_history=ModelMessagesTypeAdapter.validate_python(kept["messages"]),
                deferred_tool_results=results,
            )
            if not isinstance(result.output, DeferredToolRequests):
                return _outcome(result.all_messages(), result.output)
            kept = json.loads(_saved(result))


def _saved(result: Any) -> str:
    assert isinstance(result.output, DeferredToolRequests), "the run was not interrupted"
    messages = json.loads(result.all_messages_json())
    return json.dumps({"messages": messages, "requests": REQUESTS.dump_python(result.output, mode="json")})


def _agent(
    script: Script, tools: Tools, governed: Governed, breaks: bool = False
) -> Agent[None, str | DeferredToolRequests]:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        step = sum(isinstance(message, ModelResponse) for message in messages)
        if step < len(script):
            calls = enumerate(script[step])
            return ModelResponse([ToolCallPart(tool, args, call_id(step, at)) for at, (tool, args) in calls])
        if breaks:
            raise OutOfOrder
        return ModelResponse([TextPart(DONE)])

    return Agent(
        FunctionModel(model, model_name=MODEL),
        tools=tools.functions,
        capabilities=[governed],
        output_type=[str, DeferredToolRequests],
    )


def _outcome(messages: list[ModelMessage], output: Any) -> Outcome:
    returned = {
        part.tool_call_id: part.model_response_str()
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    }
    asked = [
        part.tool_call_id
        for message in messages
        if isinstance(message, ModelResponse)
        for part in message.parts
        if isinstance(part, ToolCallPart)
    ]
    return Outcome([returned[each] for each in asked if each in returned], str(output))
