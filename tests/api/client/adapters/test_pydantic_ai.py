"""What Pydantic AI has besides plain tools: its own approvals, agents in tools, tools that run elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

import pytest
from governance_client import AsyncGovernance, ToolDecision
from governance_client.adapters.pydantic_ai import Governed
from langchain_core.tools import StructuredTool
from pydantic import BaseModel
from pydantic_ai import Agent, ApprovalRequired, DeferredToolRequests, RunContext, ToolReturn
from pydantic_ai.capabilities import WebSearch
from pydantic_ai.exceptions import UserError
from pydantic_ai.ext.langchain import tool_from_langchain
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ExternalToolset

from tests.api.client.adapters.driver import DONE, TASK, Tools
from tests.api.client.adapters.place import Place, within


def asking(*calls: tuple[str, dict[str, Any]]) -> FunctionModel:
    """A model that asks for these tools, one after another, and then says `DONE`."""

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        step = sum(isinstance(message, ModelResponse) for message in messages)
        if step < len(calls):
            return ModelResponse([ToolCallPart(*calls[step], tool_call_id=f"call-{step}")])
        return ModelResponse([TextPart(DONE)])

    return FunctionModel(model)


WIRE = ("wire", {"to": "mallory"})
PAY = ("pay", {"to": "bob", "amount": 7})


def test_an_agent_in_a_tool_has_a_run_of_its_own_below_the_other(place: Place, tools: Tools) -> None:
    async def job(governance: AsyncGovernance) -> Any:
        governed = Governed(governance)
        clerk = Agent(asking(WIRE), tools=tools.functions, capabilities=[governed])
        chief = Agent(asking(("delegate", {"what": "wire it"})), capabilities=[governed])

        @chief.tool_plain
        async def delegate(what: str) -> str:
            return (await clerk.run(what)).output

        return (await chief.run(TASK)).output

    assert within(place, job) == DONE
    below, above = sorted(place.runs(), key=lambda run: run["task"] == TASK)
    assert (above["task"], above["parentRunId"], above["status"]) == (TASK, None, "completed")
    assert (below["task"], below["parentRunId"], below["status"]) == ("wire it", above["runId"], "completed")
    assert tools.ran == []


def test_two_runs_one_after_the_other_have_nothing_to_do_with_each_other(place: Place, tools: Tools) -> None:
    async def job(governance: AsyncGovernance) -> None:
        agent = Agent(asking(WIRE), tools=tools.functions, capabilities=[Governed(governance)])
        first = await agent.run(TASK)
        await agent.run("go on", message_history=first.all_messages())

    within(place, job)
    assert [run["parentRunId"] for run in place.runs()] == [None, None]
    assert sorted(run["task"] for run in place.runs()) == ["go on", TASK]


def test_a_yes_of_pydantic_ai_is_none_of_the_service(place: Place, tools: Tools) -> None:
    async def job(governance: AsyncGovernance) -> Any:
        governed = Governed(governance, approvals="interrupt")
        agent = Agent(
            asking(PAY),
            tools=tools.functions,
            capabilities=[governed],
            output_type=[str, DeferredToolRequests],
        )
        first = await agent.run(TASK)
        assert isinstance(first.output, DeferredToolRequests)
        again = await agent.run(
            message_history=first.all_messages(),
            deferred_tool_results=first.output.build_results(approve_all=True),
        )
        assert tools.ran == [] and isinstance(again.output, DeferredToolRequests)
        results, _ = await asyncio.gather(governed.outcomes(again.output), place.person("approve"))
        return await agent.run(message_history=again.all_messages(), deferred_tool_results=results)

    assert within(place, job).output == DONE
    assert tools.ran == [PAY] and place.run()["status"] == "completed"


def test_an_approval_that_a_tool_asks_for_itself_is_left_to_its_asker(place: Place, tools: Tools) -> None:
    async def job(governance: AsyncGovernance) -> Any:
        governed = Governed(governance, approvals="interrupt")
        agent = Agent(asking(("tidy", {})), capabilities=[governed], output_type=[str, DeferredToolRequests])

        @agent.tool_plain(requires_approval=True)
        def tidy() -> str:
            tools.ran.append(("tidy", {}))
            return "tidy"

        first = await agent.run(TASK)
        assert isinstance(first.output, DeferredToolRequests)
        assert not (await governed.outcomes(first.output)).approvals
        results = first.output.build_results(approve_all=True)
        return await agent.run(message_history=first.all_messages(), deferred_tool_results=results)

    assert within(place, job).output == DONE
    (call,) = place.run()["toolCalls"]
    assert (call["toolName"], call["completion"]) == ("tidy", "completed") and len(tools.ran) == 1


def test_what_a_tool_asks_in_our_words_is_left_to_its_asker(place: Place) -> None:
    async def job(governance: AsyncGovernance) -> Any:
        governed = Governed(governance, approvals="interrupt")
        agent = Agent(asking(("tidy", {})), capabilities=[governed], output_type=[str, DeferredToolRequests])

        @agent.tool_plain
        def tidy() -> str:
            allowed = ToolDecision("allowed", "tidy", "run-1", "call-1", "as it says", "")
            raise ApprovalRequired({"governance": asdict(allowed)})

        first = await agent.run(TASK)
        assert isinstance(first.output, DeferredToolRequests)
        return await governed.outcomes(first.output)

    assert within(place, job).approvals == {}


async def after_the_service(place: Place, agent: Agent[None, Any], governed: Governed, first: Any) -> Any:
    """What the agent says once a person has approved what waits at the service."""
    going = governed.outcomes(first.output)
    outcomes, _ = await asyncio.gather(going, place.person("approve"))
    return await agent.run(message_history=first.all_messages(), deferred_tool_results=outcomes)


def test_a_yes_of_the_service_is_none_to_what_a_tool_asks_itself(place: Place) -> None:
    ran: list[str] = []

    async def job(governance: AsyncGovernance) -> Any:
        governed = Governed(governance, approvals="interrupt")
        agent = Agent(asking(PAY), capabilities=[governed], output_type=[str, DeferredToolRequests])

        @agent.tool
        def pay(ctx: RunContext[None], to: str, amount: int) -> str:
            if not ctx.tool_call_approved:
                raise ApprovalRequired({"mine": True})
            ran.append(to)
            return "paid"

        asked = await after_the_service(place, agent, governed, await agent.run(TASK))
        assert ran == [] and list(asked.output.metadata.values()) == [{"mine": True}]
        results = asked.output.build_results(approve_all=True)
        return await agent.run(message_history=asked.all_messages(), deferred_tool_results=results)

    assert within(place, job).output == DONE
    assert ran == ["bob"]


def test_an_approval_that_a_tool_names_is_none_of_its_own(place: Place, tools: Tools) -> None:
    """As where a model chooses what the person is shown."""
    named: dict[str, Any] = {}
    ran: list[str] = []

    async def job(governance: AsyncGovernance) -> Any:
        governed, types = Governed(governance, approvals="interrupt"), [str, DeferredToolRequests]

        def tidy(ctx: RunContext[None]) -> str:
            if not ctx.tool_call_approved:
                raise ApprovalRequired(named)
            ran.append("tidy")
            return "tidied"

        payer = Agent(asking(PAY), tools=tools.functions, capabilities=[governed], output_type=types)
        named.update((await payer.run(TASK)).output.metadata["call-0"])
        agent = Agent(asking(("tidy", {})), tools=[tidy], capabilities=[governed], output_type=types)
        return await after_the_service(place, agent, governed, await agent.run(TASK))

    assert within(place, job).output.metadata == {"call-0": named}
    assert ran == [] and tools.ran == []


@pytest.mark.parametrize("prompt", [None, "and be quick"])
def test_it_is_one_run_however_often_it_goes_on(place: Place, prompt: str | None) -> None:
    """Also where something like a prompt stands in between: what a tool says beside its result, or what a
    person adds to their answers. The next prompt of its own begins the next run, which continues it."""
    paid: list[int] = []

    async def job(governance: AsyncGovernance) -> Any:
        governed = Governed(governance, approvals="interrupt")
        script = [("pay", {"amount": 1}), ("look", {}), ("pay", {"amount": 2}), ("pay", {"amount": 3})]
        agent = Agent(asking(*script), capabilities=[governed], output_type=[str, DeferredToolRequests])

        @agent.tool_plain
        def pay(amount: int) -> str:
            paid.append(amount)
            return "paid"

        @agent.tool_plain
        def look() -> ToolReturn[str]:
            return ToolReturn("seen", content="this is what it looks like")

        result = await agent.run(TASK)
        for _ in range(3):
            assert isinstance(result.output, DeferredToolRequests)
            results, _ = await asyncio.gather(governed.outcomes(result.output), place.person("approve"))
            history = ModelMessagesTypeAdapter.validate_json(result.all_messages_json())
            result = await agent.run(prompt, message_history=history, deferred_tool_results=results)
        assert result.output == DONE
        return (await agent.run("go on", message_history=result.all_messages())).output

    assert within(place, job) == DONE
    after, run = sorted(place.runs(), key=lambda run: run["task"] == TASK)
    assert paid == [1, 2, 3] and [call["completion"] for call in run["toolCalls"]] == ["completed"] * 4
    assert not any(call["flags"] for call in run["toolCalls"])
    assert (run["status"], run["labels"]) == ("completed", ["looked"])
    assert (after["task"], after["labels"], after["toolCalls"]) == ("go on", ["looked"], [])


class Address(BaseModel):
    street: str
    city: str = "Hamburg"


def test_arguments_are_asked_about_as_the_tool_gets_them(place: Place) -> None:
    async def job(governance: AsyncGovernance) -> Any:
        agent = Agent(asking(("visit", {"at": {"street": "Elm"}})), capabilities=[Governed(governance)])

        @agent.tool
        def visit(ctx: RunContext[None], at: Address, days: int = 2) -> str:
            return at.city

        return (await agent.run(TASK)).output

    assert within(place, job) == DONE
    (call,) = place.run()["toolCalls"]
    assert call["inputPayload"] == {"at": {"street": "Elm", "city": "Hamburg"}, "days": 2}
    assert call["outputPayload"] == "Hamburg"


def test_arguments_that_nobody_has_validated_are_refused_where_they_would_be_converted(place: Place) -> None:
    """Of tools that are known by their schema, as those of MCP servers and of LangChain."""
    ran: list[bool] = []

    def drop(really: bool = True) -> str:
        """Drop everything."""
        ran.append(really)
        return "dropped"

    async def job(governance: AsyncGovernance) -> Any:
        tools = [tool_from_langchain(StructuredTool.from_function(drop))]
        model = asking(*(("drop", given) for given in ({"really": "yes"}, {}, {"really": False})))
        return await Agent(model, tools=tools, capabilities=[Governed(governance)]).run(TASK)

    within(place, job)
    assert ran == [False]
    assert [call["inputPayload"] for call in place.run()["toolCalls"]] == [
        {"really": True},
        {"really": False},
    ]


@pytest.mark.parametrize(
    ("elsewhere", "name"),
    [
        ({"capabilities": [WebSearch(local=False)]}, "web_search"),
        ({"toolsets": [ExternalToolset([ToolDefinition(name="fetch")])]}, "fetch"),
    ],
)
def test_what_runs_elsewhere_is_refused_unless_it_is_named(
    place: Place, elsewhere: dict[str, Any], name: str
) -> None:
    async def job(governance: AsyncGovernance, *ungoverned: str) -> Any:
        own = [*elsewhere.get("capabilities", ()), Governed(governance, ungoverned=ungoverned)]
        agent = Agent(
            asking(),
            output_type=[str, DeferredToolRequests],
            capabilities=own,
            toolsets=elsewhere.get("toolsets"),
        )
        return (await agent.run(TASK)).output

    with pytest.raises(UserError, match=rf"nobody can ask before these tools run: \['{name}'\]"):
        within(place, job)
    if name == "fetch":  # the scripted model has no provider that searches
        assert within(place, lambda governance: job(governance, name)) == DONE


@pytest.mark.parametrize("streams", [False, True])
def test_an_output_function_runs_only_where_it_is_named(place: Place, streams: bool) -> None:
    """The model calls it with its output, as it calls a tool."""
    ran: list[str] = []

    def wire(to: str) -> str:
        ran.append(to)
        return "wired"

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([ToolCallPart(info.output_tools[0].name, {"to": "mallory"}, "call-0")])

    async def parts(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[DeltaToolCalls]:
        yield {0: DeltaToolCall(info.output_tools[0].name, '{"to": ', tool_call_id="call-0")}
        yield {0: DeltaToolCall(json_args='"mallory"}')}

    async def job(governance: AsyncGovernance, *named: str) -> Any:
        governed = Governed(governance, ungoverned=named)
        agent = Agent(FunctionModel(model, stream_function=parts), output_type=wire, capabilities=[governed])
        if not streams:
            return (await agent.run(TASK)).output
        async with agent.run_stream(TASK) as stream:
            return await stream.get_output()

    with pytest.raises(UserError, match="output function `wire`"):
        within(place, job)
    assert ran == []
    assert within(place, lambda governance: job(governance, "wire")) == "wired"
    assert ran[-1] == "mallory"
