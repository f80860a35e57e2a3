"""The OpenAI Agents SDK under test, with the scripted model that it brings along."""

from __future__ import annotations

import json
from typing import Any

from agents import Agent, RunConfig, RunResult, function_tool
from agents.items import ToolCallOutputItem
from agents.testing import ScriptedModel, assistant_message, function_call
from governance_client import AsyncGovernance
from governance_client.adapters.openai_agents import GovernedRunner

from tests.api.client.adapters.driver import DONE, MODEL, TASK, Outcome, OutOfOrder, Script, Tools, call_id

UNTRACED = RunConfig(tracing_disabled=True)


class OpenAiAgents:
    name = "openai-agents"
    pauses, survives, knows_task = True, True, True

    async def run(
        self, governance: AsyncGovernance, script: Script, tools: Tools, *, breaks: bool = False
    ) -> Outcome:
        agent = _agent(script, tools, breaks=breaks)
        return _outcome(await GovernedRunner(governance).run(agent, TASK, run_config=UNTRACED))

    async def pause(self, governance: AsyncGovernance, script: Script, tools: Tools) -> str:
        runner = GovernedRunner(governance, approvals="interrupt")
        result = await runner.run(_agent(script, tools), TASK, run_config=UNTRACED)
        return _saved(runner, result)

    async def resume(self, governance: AsyncGovernance, script: Script, tools: Tools, saved: str) -> Outcome:
        runner = GovernedRunner(governance, approvals="interrupt")
        while True:
            behind, kept = saved.split(" ", 1)
            agent = _agent(script, tools, behind=int(behind))
            result = await runner.resume(agent, kept, run_config=UNTRACED)
            if not result.interruptions:
                return _outcome(result)
            saved = _saved(runner, result)


def _saved(runner: GovernedRunner, result: RunResult) -> str:
    """How many steps the model is behind, and the run as the adapter saves it."""
    assert result.interruptions, "the run was not interrupted"
    return f"{len(result.raw_responses)} {runner.save(result)}"


def _agent(script: Script, tools: Tools, *, behind: int = 0, breaks: bool = False) -> Agent[Any]:
    steps: list[Any] = [
        [
            function_call(tool, json.dumps(args), call_id=call_id(step, at))
            for at, (tool, args) in enumerate(calls)
        ]
        for step, calls in enumerate(script)
    ]
    steps.append(OutOfOrder() if breaks else [assistant_message(DONE)])
    model = ScriptedModel(steps[behind:])
    model.model = MODEL  # type: ignore[attr-defined]  # as the SDK's own models have it
    return Agent(name="treasurer", model=model, tools=[function_tool(each) for each in tools.functions])


def _outcome(result: RunResult) -> Outcome:
    returned = [item for item in result.new_items if isinstance(item, ToolCallOutputItem)]
    returned.sort(key=lambda item: str(item.call_id))  # an interrupted run has them as they came
    return Outcome([str(item.output) for item in returned], str(result.final_output))
