"""What LangChain has besides plain agents: agents in tools, graphs of one's own, other middleware."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

import pytest
from governance_client import AsyncGovernance, NoCurrentRun, ToolDecision
from governance_client.adapters.langchain import GovernanceMiddleware
from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from tests.api.client.adapters import langchain_driver
from tests.api.client.adapters.driver import DONE, MODEL, TASK, Script, Tools
from tests.api.client.adapters.langchain_driver import (
    CONFIG,
    INPUT,
    LangChain,
    LangChainInThreads,
    ScriptedChatModel,
)
from tests.api.client.adapters.place import Place, within

WIRE: Script = [[("wire", {"to": "mallory"})]]
PAY: Script = [[("pay", {"to": "bob", "amount": 7})]]
ALLOWED = ToolDecision("allowed", "confirm", "run-1", "call-1", "as it says", "")


def test_an_agent_in_a_tool_has_a_run_of_its_own_below_the_other(place: Place, tools: Tools) -> None:
    async def job(governance: AsyncGovernance) -> Any:
        middleware = GovernanceMiddleware(governance)
        clerk = create_agent(ScriptedChatModel(script=WIRE), tools.functions, middleware=[middleware])

        async def delegate(what: str) -> str:
            """Have the clerk do something."""
            result = await clerk.ainvoke({"messages": [HumanMessage(what)]})
            return str(result["messages"][-1].content)

        model = ScriptedChatModel(script=[[("delegate", {"what": "wire it"})]])
        return await create_agent(model, [delegate], middleware=[middleware]).ainvoke(INPUT)

    assert within(place, job)["messages"][-1].content == DONE
    below, above = sorted(place.runs(), key=lambda run: run["task"] == TASK)
    assert (above["task"], above["parentRunId"], above["status"]) == (TASK, None, "completed")
    assert (below["task"], below["parentRunId"], below["status"]) == ("wire it", above["runId"], "completed")
    assert below["model"] == MODEL and tools.ran == []


def test_a_run_that_an_exception_ends_ends_the_one_above_it(place: Place, tools: Tools) -> None:
    async def job(governance: AsyncGovernance) -> Any:
        middleware = GovernanceMiddleware(governance)
        stumbling = ScriptedChatModel(script=[[("stumble", {"at": "the stairs"})]])
        clerk = create_agent(stumbling, tools.functions, middleware=[middleware])

        def delegate(what: str) -> str:
            """Have the clerk do something."""
            return str(clerk.invoke({"messages": [HumanMessage(what)]}))

        model = ScriptedChatModel(script=[[("delegate", {"what": "stumble"})]])
        agent = create_agent(model, [delegate], middleware=[middleware])
        return await agent.with_config(callbacks=[middleware.callback]).ainvoke(INPUT)

    with pytest.raises(ValueError, match="stumbled"):
        within(place, job)
    assert [run["status"] for run in place.runs()] == ["failed", "failed"]


def test_a_tool_node_of_ones_own_graph_is_governed_within_a_run(place: Place, tools: Tools) -> None:
    def graph(governance: AsyncGovernance) -> Any:
        middleware = GovernanceMiddleware(governance)
        node = ToolNode(
            tools.functions,
            wrap_tool_call=middleware.wrap_tool_call,
            awrap_tool_call=middleware.awrap_tool_call,
        )
        built = StateGraph(MessagesState)
        built.add_node("tools", node)
        built.add_edge(START, "tools")
        built.add_edge("tools", END)
        return built.compile()

    asked = {"name": "wire", "args": {"to": "mallory"}, "id": "call-1"}
    given = {"messages": [AIMessage("", tool_calls=[asked])]}

    async def job(governance: AsyncGovernance) -> Any:
        async with governance.run(task=TASK):
            return await graph(governance).ainvoke(given)

    assert "No wires" in within(place, job)["messages"][-1].content
    assert place.run()["task"] == TASK and tools.ran == []
    with pytest.raises(NoCurrentRun):
        within(place, lambda governance: graph(governance).ainvoke(given))


def test_a_yes_of_langgraph_is_none_of_the_service(place: Place, tools: Tools) -> None:
    async def job(governance: AsyncGovernance) -> Any:
        middleware = GovernanceMiddleware(governance, approvals="interrupt")
        agent = create_agent(
            ScriptedChatModel(script=PAY),
            tools.functions,
            middleware=[middleware],
            checkpointer=InMemorySaver(),
        )
        await agent.ainvoke(INPUT, CONFIG)
        again = await agent.ainvoke(Command(resume={"type": "approve"}), CONFIG)
        assert tools.ran == [] and again["__interrupt__"][0].value["name"] == "pay"
        going = middleware.aoutcomes(again["__interrupt__"])
        outcomes, _ = await asyncio.gather(going, place.person("approve"))
        return await agent.ainvoke(outcomes, CONFIG)

    assert within(place, job)["messages"][-1].content == DONE
    assert tools.ran == [("pay", {"to": "bob", "amount": 7})]


@pytest.mark.parametrize("approved_by", ["outcomes", "hand"])
@pytest.mark.parametrize("waits", ["tasks", "threads"])
def test_an_interrupt_of_the_tool_itself_is_given_its_own_answer(
    place: Place, approved_by: str, waits: str
) -> None:
    """The same where the approval is answered by hand, and each step is another process."""
    database, ran = InMemorySaver(), list[str]()

    def pay(to: str, amount: int) -> str:
        """Pay somebody."""
        ran.append(f"{interrupt('from where?')} {interrupt('when?')}")
        return "paid"

    async def process(governance: AsyncGovernance, answer: Any) -> Any:
        middleware = GovernanceMiddleware(governance, approvals="interrupt")
        model = ScriptedChatModel(script=PAY)
        agent = create_agent(model, [pay], middleware=[middleware], checkpointer=database)
        if answer == "approval" and approved_by == "outcomes":
            answer = await middleware.aoutcomes(agent.get_state(CONFIG).interrupts)
        elif answer == "approval":
            answer = Command(resume={"type": "approve"})
        if waits == "tasks":
            return await agent.ainvoke(answer, CONFIG)
        return await asyncio.to_thread(agent.invoke, answer, CONFIG)

    def step(answer: Any) -> Any:
        result = within(place, lambda governance: process(governance, answer))
        return result["__interrupt__"][0].value if "__interrupt__" in result else result["messages"]

    assert step(INPUT)["name"] == "pay"
    if approved_by == "hand":
        assert step("approval")["name"] == "pay"  # nobody has approved it yet
    asyncio.run(place.person("approve"))
    assert step("approval") == "from where?"
    if approved_by == "outcomes":  # LangGraph itself gives an answer without an id once more
        assert step(None) == "from where?"
    assert step(Command(resume="the till")) == "when?"
    assert step(Command(resume="now"))[-1].content == DONE
    assert ran == ["the till now"]
    (call,) = place.run()["toolCalls"]
    assert (call["completion"], call["flags"]) == ("completed", [])


def test_two_calls_of_one_node_keep_their_answers_apart(place: Place) -> None:
    """A tool that asks for itself, beside one that waits for an approval."""
    ran: list[str] = []

    def pay(to: str, amount: int) -> str:
        """Pay somebody."""
        ran.append("paid")
        return "paid"

    def ask(what: str) -> str:
        """Ask the user."""
        ran.append(interrupt(what))
        return "asked"

    async def job(governance: AsyncGovernance) -> Any:
        middleware = GovernanceMiddleware(governance, approvals="interrupt")
        script: Script = [[*PAY[0], ("ask", {"what": "when?"})]]
        agent = create_agent(
            ScriptedChatModel(script=script),
            [pay, ask],
            middleware=[middleware],
            checkpointer=InMemorySaver(),
        )
        first = await agent.ainvoke(INPUT, CONFIG)
        asked = {each.value if isinstance(each.value, str) else "": each for each in first["__interrupt__"]}
        second = await agent.ainvoke(Command(resume={asked["when?"].id: "now"}), CONFIG)
        assert second["__interrupt__"] == [asked[""]]
        going = middleware.aoutcomes(second["__interrupt__"])
        outcomes, _ = await asyncio.gather(going, place.person("approve"))
        return await agent.ainvoke(outcomes, CONFIG)

    assert within(place, job)["messages"][-1].content == DONE
    assert ran == ["now", "paid"]


def test_a_tool_whose_interrupt_names_an_approval_that_there_is_is_told_nothing(place: Place) -> None:
    said: list[Any] = []
    real: dict[str, Any] = {}

    def confirm(what: str) -> str:
        """Ask the user."""
        said.append(interrupt({"what": what, **real}))
        return "asked"

    async def job(governance: AsyncGovernance) -> Any:
        middleware = GovernanceMiddleware(governance, approvals="interrupt")
        for script in (PAY, [[("confirm", {"what": "delete it?"})]]):
            model, kept = ScriptedChatModel(script=script), InMemorySaver()
            agent = create_agent(
                model, [*Tools().functions, confirm], middleware=[middleware], checkpointer=kept
            )
            first = await agent.ainvoke(INPUT, CONFIG)
            real["governance"] = first["__interrupt__"][0].value["governance"]
        going = middleware.aoutcomes(first["__interrupt__"])
        outcomes, _ = await asyncio.gather(going, place.person("approve"))
        await agent.ainvoke(outcomes, CONFIG)

    within(place, job)
    assert said == [{}]


@pytest.mark.parametrize("kept", [asdict(ALLOWED), {}, {"status": "awaiting_approval"}, "allowed"])
def test_what_a_tool_asks_in_our_words_is_left_to_its_asker(place: Place, kept: Any) -> None:
    """As where a model chooses what the person is shown."""

    def confirm(what: str) -> str:
        """Ask the user."""
        return str(interrupt({"what": what, "governance": kept}))

    async def job(governance: AsyncGovernance) -> Any:
        middleware = GovernanceMiddleware(governance, approvals="interrupt")
        script: Script = [[("confirm", {"what": "delete it?"})]]
        agent = create_agent(
            ScriptedChatModel(script=script), [confirm], middleware=[middleware], checkpointer=InMemorySaver()
        )
        first = await agent.ainvoke(INPUT, CONFIG)
        return await middleware.aoutcomes(first["__interrupt__"])

    assert within(place, job).resume == {}


@pytest.mark.parametrize("verbs", [("approve", "reject"), ("approve", "approve")])
@pytest.mark.parametrize("driver", [LangChain(), LangChainInThreads()], ids=lambda driver: driver.name)
def test_the_same_call_twice_under_one_id_is_decided_twice(
    place: Place, tools: Tools, driver: LangChain, verbs: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other SDKs refuse such an answer of a model, or make its calls one after another."""
    monkeypatch.setattr(langchain_driver, "call_id", lambda step, at: "call_0")

    async def people() -> None:
        waiting = await place.waiting(2)
        for verb, approval in zip(verbs, waiting, strict=True):
            path = f"/v1/approvals/{approval['approvalId']}/{verb}"
            await asyncio.to_thread(place.service.call, "reviewer", "POST", path, {})

    within(
        place,
        lambda governance: asyncio.gather(driver.run(governance, [[*PAY[0], *PAY[0]]], tools), people()),
    )
    assert tools.ran == [PAY[0][0]] * verbs.count("approve")
    assert not any(call["flags"] for call in place.run()["toolCalls"])


def test_a_no_counts_in_another_process_though_the_call_has_the_id_of_one_that_was_made(
    place: Place, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(langchain_driver, "call_id", lambda step, at: f"call_{at}")
    database = InMemorySaver()

    async def process(governance: AsyncGovernance, verb: str = "") -> Any:
        middleware = GovernanceMiddleware(governance, approvals="interrupt")
        model = ScriptedChatModel(script=PAY + PAY)
        agent = create_agent(model, tools.functions, middleware=[middleware], checkpointer=database)
        if not verb:
            return await agent.ainvoke(INPUT, CONFIG)
        going = middleware.aoutcomes(agent.get_state(CONFIG).interrupts)
        outcomes, _ = await asyncio.gather(going, place.person(verb))
        return await agent.ainvoke(outcomes, CONFIG)

    within(place, process)
    within(place, lambda governance: process(governance, "approve"))
    assert len(tools.ran) == 1
    result = within(place, lambda governance: process(governance, "reject"))
    assert len(tools.ran) == 1 and result["messages"][-1].content == DONE


class Account(BaseModel):
    number: str
    bank: str = "elsewhere"


@pytest.mark.parametrize("waits", ["tasks", "threads"])
def test_defaults_are_asked_about_as_the_tool_runs_with_them(place: Place, waits: str) -> None:
    ran: list[Any] = []

    def remit(to: Account, amount: int = 5_000, note: str | None = None) -> str:
        """Pay into an account."""
        ran.append((to.bank, amount, note))
        return "paid"

    async def job(governance: AsyncGovernance) -> Any:
        model = ScriptedChatModel(script=[[("remit", {"to": {"number": "1"}})]])
        agent = create_agent(model, [remit], middleware=[GovernanceMiddleware(governance)])
        if waits == "tasks":
            return await agent.ainvoke(INPUT)
        return await asyncio.to_thread(agent.invoke, INPUT)

    within(place, job)
    (call,) = place.run()["toolCalls"]
    told = {"to": {"number": "1", "bank": "elsewhere"}, "amount": 5_000, "note": None}
    assert call["inputPayload"] == told and ran == [("elsewhere", 5_000, None)]
    assert (call["completion"], call["flags"]) == ("completed", [])


def test_a_tool_that_is_tried_again_is_one_call_that_has_failed(place: Place, tools: Tools) -> None:
    async def job(governance: AsyncGovernance) -> Any:
        middleware = [
            ToolRetryMiddleware(max_retries=1, initial_delay=0, jitter=False),
            GovernanceMiddleware(governance),
        ]
        model = ScriptedChatModel(script=[[("stumble", {"at": "the stairs"})]])
        return await create_agent(model, tools.functions, middleware=middleware).ainvoke(INPUT)

    assert within(place, job)["messages"][-1].content == DONE
    run = place.run()
    assert run["status"] == "completed"
    assert [call["completion"] for call in run["toolCalls"]] == ["failed"]


def test_what_runs_on_the_side_of_the_provider_is_refused_unless_it_is_named(
    place: Place, tools: Tools
) -> None:
    def job(*ungoverned: str) -> Any:
        def ask(governance: AsyncGovernance) -> Any:
            middleware = GovernanceMiddleware(governance, ungoverned=ungoverned)
            model = ScriptedChatModel(script=[])
            return create_agent(model, [{"type": "web_search"}], middleware=[middleware]).ainvoke(INPUT)

        return ask

    with pytest.raises(ValueError, match=r"nobody can ask before these tools run: \['web_search'\]"):
        within(place, job())
    assert within(place, job("web_search"))["messages"][-1].content == DONE
