"""What the OpenAI Agents SDK has besides plain tools: handoffs, agents as tools, MCP servers, streams."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from agents import Agent, FunctionTool, Runner, RunState, UserError, WebSearchTool, function_tool, handoff
from agents.mcp import MCPServer as AgentsMcpServer
from agents.testing import ScriptedModel, assistant_message, function_call
from governance_client import ToolDecision
from governance_client.adapters.openai_agents import GovernedRunner
from governance_client.adapters.openai_tools import Calls, GovernedTool
from mcp.types import CallToolResult, TextContent
from mcp.types import Tool as McpTool
from pydantic import BaseModel

from tests.api.client.adapters.driver import DONE, TASK, Tools
from tests.api.client.adapters.openai_agents_driver import UNTRACED
from tests.api.client.adapters.place import Place, within

SAID = [assistant_message(DONE)]


def asks(tool: str, arguments: str = "{}", call_id: str = "call-1") -> list[Any]:
    return [function_call(tool, arguments, call_id=call_id)]


def agent(used: Tools, *steps: Any, name: str = "treasurer", **members: Any) -> Agent[Any]:
    """One whose model does these steps and then says `DONE`; its tools are those of a test, or `tools`."""
    own = [function_tool(each) for each in used.functions]
    model = ScriptedModel([*steps, SAID])
    return Agent(name=name, model=model, **{"tools": own, **members})


def governed(place: Place, job: Callable[[GovernedRunner], Awaitable[Any]], **how: Any) -> Any:
    return within(place, lambda governance: job(GovernedRunner(governance, **how)))


def outputs(result: Any) -> list[str]:
    return [str(item.output) for item in result.new_items if item.type == "tool_call_output_item"]


WIRE = asks("wire", '{"to": "mallory"}')
PAY = asks("pay", '{"to": "bob", "amount": 7}')


def test_a_stream_is_governed_and_ends_its_run(place: Place, tools: Tools) -> None:
    async def job(runner: GovernedRunner) -> Any:
        async with runner.run_streamed(agent(tools, WIRE), TASK, run_config=UNTRACED) as stream:
            async for _ in stream.stream_events():
                pass
        return stream

    (output,) = outputs(governed(place, job))
    assert "No wires" in output and tools.ran == []
    assert place.run()["status"] == "completed"


def test_an_agent_that_is_handed_over_to_is_governed(place: Place, tools: Tools) -> None:
    clerk = agent(tools, WIRE, name="clerk")
    chief = agent(tools, asks("transfer_to_clerk", call_id="call-0"), handoffs=[clerk])
    clerk.handoffs = [chief]

    result = governed(place, lambda runner: runner.run(chief, TASK, run_config=UNTRACED))

    assert tools.ran == [] and "No wires" in outputs(result)[-1]


def test_a_handoff_of_ones_own_hands_over_to_governed_agents_alone(place: Place, tools: Tools) -> None:
    clerk = agent(tools, WIRE, name="clerk")

    def chief(to: Agent[Any]) -> Agent[Any]:
        return agent(tools, asks("transfer_to_clerk", call_id="call-0"), handoffs=[handoff(to)])

    with pytest.raises(UserError, match="`clerk` is not governed"):
        governed(place, lambda runner: runner.run(chief(clerk), TASK, run_config=UNTRACED))

    async def job(runner: GovernedRunner) -> Any:
        to = runner.govern(clerk)
        return await runner.run(chief(to), TASK, run_config=UNTRACED)

    assert "No wires" in outputs(governed(place, job))[-1]
    assert tools.ran == []


def test_an_agent_as_a_tool_must_be_governed_itself(place: Place, tools: Tools) -> None:
    clerk = agent(tools, WIRE, name="clerk")
    ask = asks("clerk", '{"input": "wire it"}', "call-0")

    def chief(tool: FunctionTool) -> Agent[Any]:
        return agent(tools, ask, tools=[tool])

    with pytest.raises(UserError, match=r"runner\.govern\(agent\)\.as_tool"):
        governed(
            place, lambda runner: runner.run(chief(clerk.as_tool(None, None)), TASK, run_config=UNTRACED)
        )

    async def job(runner: GovernedRunner) -> Any:
        tool = runner.govern(clerk).as_tool(None, None)
        return await runner.run(chief(tool), TASK, run_config=UNTRACED)

    governed(place, job)
    calls = {call["toolName"]: call for run in place.runs() for call in run["toolCalls"]}
    assert (calls["wire"]["status"], calls["clerk"]["status"]) == ("blocked", "allowed")
    assert tools.ran == []


def test_an_agent_as_a_tool_can_be_interrupted(place: Place, tools: Tools) -> None:
    ask = asks("clerk", '{"input": "pay"}', "call-0")

    def chief(runner: GovernedRunner, steps: list[Any], inner: list[Any]) -> Agent[Any]:
        clerk = agent(tools, *inner, name="clerk")
        return agent(tools, *steps, tools=[runner.govern(clerk).as_tool(None, None)])

    async def begun(runner: GovernedRunner) -> str:
        return runner.save(await runner.run(chief(runner, [ask], [PAY]), TASK, run_config=UNTRACED))

    async def gone_on(runner: GovernedRunner) -> Any:
        going = runner.resume(chief(runner, [], []), saved, run_config=UNTRACED)
        return (await asyncio.gather(going, place.person("approve")))[0]

    saved = governed(place, begun, approvals="interrupt")
    result = governed(place, gone_on, approvals="interrupt")

    assert tools.ran == [("pay", {"to": "bob", "amount": 7})] and result.final_output == DONE
    run = place.run()
    assert {call["toolName"]: call["completion"] for call in run["toolCalls"]} == {
        "clerk": "completed",
        "pay": "completed",
    }
    assert not any(call["flags"] for call in run["toolCalls"])


def test_what_runs_on_the_side_of_the_provider_is_refused_unless_it_is_named(
    place: Place, tools: Tools
) -> None:
    searching = agent(tools, tools=[WebSearchTool()])

    with pytest.raises(UserError, match="nobody can ask before what `web_search` does"):
        governed(place, lambda runner: runner.run(searching, TASK, run_config=UNTRACED))

    result = governed(
        place, lambda runner: runner.run(searching, TASK, run_config=UNTRACED), ungoverned=["web_search"]
    )
    assert result.final_output == DONE


def test_a_yes_of_the_sdk_is_none_of_the_service(place: Place, tools: Tools) -> None:
    async def begun(runner: GovernedRunner) -> Any:
        chief = runner.govern(agent(tools, PAY))
        result = await runner.run(chief, TASK, run_config=UNTRACED)
        state = result.to_state()
        state.approve(result.interruptions[0])
        return await runner.run(
            chief,
            state,
            run_id=result.governance_run_id,
            run_config=UNTRACED,
        )

    (output,) = outputs(governed(place, begun, approvals="interrupt"))
    assert tools.ran == [] and "approval" in output


class Account(BaseModel):
    number: str
    bank: str = "elsewhere"


def remitting(ran: list[Any], amount: int) -> FunctionTool:
    """A tool with defaults of its own."""

    def pay(to: Account, amount: int = amount, note: str | None = None) -> str:
        """Pay into an account."""
        ran.append((to.bank, amount, note))
        return "paid"

    return function_tool(pay)


@pytest.mark.parametrize("approvals", ["wait", "interrupt"])
def test_defaults_are_asked_about_as_the_tool_runs_with_them(
    place: Place, tools: Tools, approvals: str
) -> None:
    """Each agent's tool has its own, also where two are of one name, and where the run goes on elsewhere."""
    ran: list[Any] = []
    pay = asks("pay", '{"to": {"number": "1"}}')

    def chief(*steps: Any, inner: Any = ()) -> Agent[Any]:
        clerk = agent(tools, *inner, name="clerk", tools=[remitting(ran, 5_000)])
        return agent(tools, *steps, tools=[remitting(ran, 7)], handoffs=[clerk])

    async def begun(runner: GovernedRunner) -> Any:
        over = asks("transfer_to_clerk", call_id="call-0")
        result = await runner.run(chief(over, inner=[pay]), TASK, run_config=UNTRACED)
        return runner.save(result) if result.interruptions else None

    async def within_or_not() -> Any:
        if approvals == "interrupt":
            return await asyncio.to_thread(governed, place, begun, approvals="interrupt")
        going = asyncio.to_thread(governed, place, begun)
        return (await asyncio.gather(going, place.person("approve")))[0]

    if saved := asyncio.run(within_or_not()):

        async def gone_on(runner: GovernedRunner) -> Any:
            going = runner.resume(chief(), saved, run_config=UNTRACED)
            return (await asyncio.gather(going, place.person("approve")))[0]

        governed(place, gone_on, approvals="interrupt")
    (call,) = place.run()["toolCalls"]
    assert call["inputPayload"] == {"to": {"number": "1", "bank": "elsewhere"}, "amount": 5_000}
    assert ran == [("elsewhere", 5_000, None)]
    assert (call["completion"], call["flags"]) == ("completed", [])


def test_a_state_of_agents_that_are_not_governed_does_not_go_on(place: Place, tools: Tools) -> None:
    async def job(runner: GovernedRunner) -> Any:
        chief = agent(tools, PAY)
        saved = (await Runner.run(agent(tools), TASK, run_config=UNTRACED)).to_state().to_json()
        state = await RunState.from_json(chief, saved)
        return await runner.run(chief, state, run_config=UNTRACED)

    with pytest.raises(UserError, match="of another runner"):
        governed(place, job)


def test_arguments_that_are_no_object_run_nothing(place: Place, tools: Tools) -> None:
    for approvals in ("wait", "interrupt"):

        async def job(runner: GovernedRunner) -> Any:
            result = await runner.run(agent(tools, asks("look", "[1]")), TASK, run_config=UNTRACED)
            if result.interruptions:
                saved = runner.save(result)
                return await runner.resume(agent(tools), saved, run_config=UNTRACED)
            return result

        (output,) = outputs(governed(place, job, approvals=approvals))
        assert tools.ran == [] and "no JSON object" in output


class Shed(AgentsMcpServer):
    """An MCP server with one tool."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []

    name, offers = "shed", "wire"

    async def connect(self) -> None: ...

    async def cleanup(self) -> None: ...

    async def list_tools(self, *_: Any, **__: Any) -> list[McpTool]:
        schema = {"type": "object", "properties": {"to": {"type": "string"}}}
        return [McpTool(name=self.offers, input_schema=schema)]

    async def call_tool(self, tool_name: str, *_: Any, **__: Any) -> CallToolResult:
        self.called.append(tool_name)
        return CallToolResult(content=[TextContent(type="text", text="wired")])

    async def list_prompts(self) -> Any: ...

    async def get_prompt(self, *_: Any, **__: Any) -> Any: ...


def test_tools_of_mcp_servers_are_governed(place: Place, tools: Tools) -> None:
    shed = Shed()
    result = governed(
        place,
        lambda runner: runner.run(
            agent(tools, WIRE, tools=[], mcp_servers=[shed]), TASK, run_config=UNTRACED
        ),
    )
    assert "No wires" in outputs(result)[0] and shed.called == []


def test_a_tool_that_can_be_asked_about_is_whatever_it_is_called(place: Place, tools: Tools) -> None:
    """A server must not go ungoverned by the name of a hosted tool that does."""
    shed = Shed()
    shed.offers = "web_search"
    call = asks("web_search", '{"to": "mallory"}')
    used = agent(tools, call, tools=[], mcp_servers=[shed])
    governed(place, lambda runner: runner.run(used, TASK, run_config=UNTRACED), ungoverned=["web_search"])
    assert shed.called == ["web_search"]
    (on_record,) = place.run()["toolCalls"]
    assert (on_record["toolName"], on_record["status"]) == ("web_search", "allowed")


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_the_same_call_twice_under_one_id_runs_as_often_as_it_was_approved(
    place: Place, tools: Tools, verb: str
) -> None:
    async def job(runner: GovernedRunner) -> Any:
        going = runner.run(agent(tools, PAY + PAY), TASK, run_config=UNTRACED)
        return (await asyncio.gather(going, place.person(verb)))[0]

    governed(place, job)
    assert len(tools.ran) == (verb == "approve")
    assert not any(call["flags"] for call in place.run()["toolCalls"])


def test_a_decision_is_of_its_own_call_though_another_has_its_id(place: Place, tools: Tools) -> None:
    def look(at: str, by: int = 0) -> str:
        return at

    calls, functions = Calls(), [*tools.functions, look]
    of = {each.__name__: GovernedTool(calls, function_tool(each)) for each in functions}

    async def decided(tool: str, arguments: str) -> ToolDecision:
        return await calls.decide(of[tool], arguments, "call-1", wait=False)

    async def job(runner: GovernedRunner) -> Any:
        async with place.governance() as governance, governance.run(TASK):
            look = await decided("look", '{"at": "it", "by": 1}')
            again = await decided("look", '{"by":1,"at":"it"}')
            wire = await decided("wire", '{"to": "mallory"}')
            other = await decided("look", '{"at": "another"}')
        return look, again, wire, other

    look, again, wire, other = governed(place, job)
    assert look.allowed and again is look
    assert (wire.status, other.status) == ("blocked", "allowed")
    assert len({look.tool_call_id, wire.tool_call_id, other.tool_call_id}) == 3


def test_a_tool_of_the_same_name_does_not_answer_for_the_approval_that_another_asks_for(place: Place) -> None:
    """Also of an agent of the same name, in another conversation of the runner."""
    ran: list[str] = []

    def with_tool(*steps: Any, **how: Any) -> Agent[Any]:
        def ping(what: str) -> str:
            ran.append(what)
            return what

        return Agent(name="clerk", model=ScriptedModel([*steps]), tools=[function_tool(ping, **how)])

    async def job(runner: GovernedRunner) -> Any:
        await runner.run(with_tool(SAID), "hello", run_config=UNTRACED)
        call = asks("ping", '{"what": "it"}')
        held = await runner.run(with_tool(call, needs_approval=True), TASK, run_config=UNTRACED)
        going = with_tool(SAID, needs_approval=True)
        return await runner.resume(going, runner.save(held), run_config=UNTRACED)

    result = governed(place, job, approvals="interrupt")
    assert len(result.interruptions) == 1 and ran == []
