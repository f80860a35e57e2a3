"""The next prompt of a conversation: the model still reads what the tools gave it before, so what is known of
that run holds for this one."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from agents import Agent, MaxTurnsExceeded, SQLiteSession, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call
from governance_client import AsyncGovernance
from governance_client.adapters.langchain import GovernanceMiddleware
from governance_client.adapters.openai_agents import GovernedRunner
from governance_client.adapters.openai_conversations import (
    Conversations,
    call_read,
    conversation,
    names_read,
)
from governance_client.adapters.pydantic_ai import Governed
from langchain.agents import create_agent
from langchain_core.caches import InMemoryCache
from langchain_core.messages import HumanMessage, messages_from_dict, messages_to_dict
from langgraph.checkpoint.memory import InMemorySaver
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.messages import ModelMessagesTypeAdapter

from tests.api.client.adapters.driver import TASK, Script, Tools
from tests.api.client.adapters.langchain_driver import CONFIG, INPUT, ScriptedChatModel
from tests.api.client.adapters.openai_agents_driver import UNTRACED
from tests.api.client.adapters.place import Place
from tests.api.client.adapters.pydantic_ai_driver import _agent

LOOK: Script = [[("look", {"at": "the mails"})]]
NEXT = "and now the next thing"


def models() -> ScriptedModel:
    """Looks once, and then only talks."""
    look = [function_call("look", '{"at": "the mails"}', call_id="call-of-the-conversation")]
    return ScriptedModel([look, [assistant_message("done")], [assistant_message("done")]])


def agents_of(tools: Tools) -> Agent[Any]:
    return Agent(name="clerk", model=models(), tools=[function_tool(each) for each in tools.functions])


async def openai_by_input(governance: AsyncGovernance, tools: Tools) -> None:
    runner, agent = GovernedRunner(governance), agents_of(tools)
    result = await runner.run(agent, TASK, run_config=UNTRACED)
    said = [*result.to_input_list(), {"role": "user", "content": NEXT}]
    await runner.run(agent, said, run_config=UNTRACED)


async def openai_by_session(governance: AsyncGovernance, tools: Tools) -> None:
    runner, agent = GovernedRunner(governance), agents_of(tools)
    session = SQLiteSession("conversation")
    await runner.run(agent, TASK, session=session, run_config=UNTRACED)
    async with runner.run_streamed(agent, NEXT, session=session, run_config=UNTRACED) as stream:
        async for _ in stream.stream_events():
            pass


async def openai_by_name(governance: AsyncGovernance, tools: Tools) -> None:
    agent = agents_of(tools)
    result: Any = await GovernedRunner(governance).run(agent, TASK, run_config=UNTRACED)
    said: Any = [*result.to_input_list(), {"role": "user", "content": NEXT}]
    later = GovernedRunner(governance)
    await later.run(agent, said, continues=result.governance_run_id, run_config=UNTRACED)


async def langchain_by_checkpoint(governance: AsyncGovernance, tools: Tools) -> None:
    database = InMemorySaver()
    for said in (INPUT, {"messages": [{"role": "user", "content": NEXT}]}):
        middleware, model = GovernanceMiddleware(governance), ScriptedChatModel(script=LOOK)
        agent = create_agent(model, tools.functions, middleware=[middleware], checkpointer=database)
        await agent.ainvoke(said, CONFIG)


async def langchain_by_messages(governance: AsyncGovernance, tools: Tools) -> None:
    agent = create_agent(
        ScriptedChatModel(script=LOOK), tools.functions, middleware=[GovernanceMiddleware(governance)]
    )
    before = messages_to_dict((await agent.ainvoke(INPUT))["messages"])
    await agent.ainvoke({"messages": [*messages_from_dict(before), {"role": "user", "content": NEXT}]})


async def langchain_by_another_agent(governance: AsyncGovernance, tools: Tools) -> None:
    """Which reads what the first one said, but none of its results."""
    middleware = GovernanceMiddleware(governance)
    reader = create_agent(ScriptedChatModel(script=LOOK), tools.functions, middleware=[middleware])
    writer = create_agent(ScriptedChatModel(script=[]), tools.functions, middleware=[middleware])
    said = (await reader.ainvoke(INPUT))["messages"][-1]
    await writer.ainvoke({"messages": [said, HumanMessage(NEXT), HumanMessage("to eve", name="reader")]})


async def pydantic_by_history(governance: AsyncGovernance, tools: Tools) -> None:
    agent: PydanticAgent[None, Any] = _agent(LOOK, tools, Governed(governance))
    before = (await agent.run(TASK)).all_messages_json()
    await agent.run(NEXT, message_history=ModelMessagesTypeAdapter.validate_json(before))


@pytest.mark.parametrize(
    "talk",
    [
        openai_by_input,
        openai_by_session,
        openai_by_name,
        langchain_by_checkpoint,
        langchain_by_messages,
        langchain_by_another_agent,
        pydantic_by_history,
    ],
)
def test_the_next_prompt_has_the_labels_of_the_one_before(
    talk: Callable[[AsyncGovernance, Tools], Awaitable[None]], place: Place, tools: Tools
) -> None:
    async def whole() -> None:
        async with place.governance() as governance:
            await talk(governance, tools)

    asyncio.run(whole())
    found = {run["task"]: run for run in place.runs()}
    assert sorted(found) == sorted([TASK, NEXT]) and len(tools.ran) == 1
    for run in found.values():
        assert (run["status"], run["labels"], run["parentRunId"]) == ("completed", ["looked"], None)


def test_conversations_whose_models_count_their_calls_alike_are_told_apart(place: Place) -> None:
    def look(at: str) -> str:
        return at

    def read(at: str) -> str:
        return mails.pop()

    def agent(*calls: tuple[str, str]) -> Agent[Any]:
        steps = [
            [function_call(tool, f'{{"at": "{at}"}}', call_id=f"call_{number}")]
            for number, (tool, at) in enumerate(calls)
        ]
        model = ScriptedModel([*steps, [assistant_message("done")]])
        return Agent(name="clerk", model=model, tools=[function_tool(look), function_tool(read)])

    async def whole() -> None:
        async with place.governance() as governance:
            runner = GovernedRunner(governance)
            talks = {
                "looked": [("look", "mails"), ("read", "inbox")],
                "other call": [("read", "inbox"), ("read", "inbox")],
                "other output": [("read", "inbox"), ("read", "inbox")],
                "fewer": [("read", "inbox")],
            }
            said = {
                name: (await runner.run(agent(*calls), name, run_config=UNTRACED)).to_input_list()
                for name, calls in talks.items()
            }
            for name in (*talks, *reversed(talks)):
                next_prompt = [*said[name], {"role": "user", "content": f"{name}, next"}]
                await runner.run(agent(), next_prompt, run_config=UNTRACED)

    mails = [str(number) for number in range(9)]
    asyncio.run(whole())
    found = [(run["task"], run["labels"]) for run in place.runs() if run["task"].endswith("next")]
    assert len(found) == 8
    assert all(labels == (["looked"] if task == "looked, next" else []) for task, labels in found), found


def test_the_same_calls_with_other_outputs_are_another_conversation() -> None:
    conversations = Conversations()
    call = {"type": "function_call", "call_id": "1", "name": "read", "arguments": '{"a": 1, "b": 2}'}
    spelled = {**call, "arguments": '{"b":2,"a":1}'}
    for run, output in (("run-1", "one"), ("run-2", "two"), ("run-3", None)):
        conversations.remember(run, [("1",), call_read("1", "read", '{"a": 1, "b": 2}')])
        if output is not None:
            conversations.remember(run, [("1", output)])
    conversations.remember("run-4", names_read({"conversation_id": "conversation-1"}))

    def before(*items: Any, **options: str) -> str | None:
        return conversations.latest_run(conversation([*items], options))

    said = {"type": "function_call_output", "call_id": "1"}
    assert before(spelled, {**said, "output": "one"}) == "run-1"
    assert before(call, {**said, "output": "two"}) == "run-2"
    assert before(call) == "run-3", "the latest"
    assert before({**said, "output": "cut"}) == "run-3"
    assert before(call, conversation_id="conversation-1") == "run-4"
    assert before({**call, "call_id": "2"}, {"role": "user", "content": "hello"}, "odd") is None


@pytest.mark.parametrize("turns", [10, 2], ids=["ends", "breaks"])
def test_a_call_that_was_refused_is_none_of_another_conversation(
    turns: int, place: Place, tools: Tools
) -> None:
    """Whose model gave the same id to one that was made."""

    def agent(*calls: str) -> Agent[Any]:
        steps = [
            [function_call(tool, {"to" if tool == "wire" else "at": "x"}, call_id=f"call_{number}")]
            for number, tool in enumerate(calls)
        ]
        model = ScriptedModel([*steps, [assistant_message("done")]])
        return Agent(name="clerk", model=model, tools=[function_tool(each) for each in tools.functions])

    async def whole() -> None:
        async with place.governance() as governance:
            runner = GovernedRunner(governance)
            session = SQLiteSession("conversation")
            with contextlib.suppress(MaxTurnsExceeded):
                await runner.run(
                    agent("look", "wire"), TASK, session=session, max_turns=turns, run_config=UNTRACED
                )
            await runner.run(agent("stumble", "stumble"), "something else", run_config=UNTRACED)
            await runner.run(agent(), NEXT, session=session, run_config=UNTRACED)

    asyncio.run(whole())
    labels = {run["task"]: run["labels"] for run in place.runs()}
    assert labels == {TASK: ["looked"], "something else": [], NEXT: ["looked"]}


def test_a_run_that_goes_on_by_its_state_is_the_one_that_was_interrupted(place: Place, tools: Tools) -> None:
    """By an approval of the SDK's own; nobody has to say which run it was."""
    look = function_tool(tools.functions[0])
    stumble = function_tool(tools.functions[-1], needs_approval=True)
    steps: list[Any] = [[function_call(each, '{"at": "x"}', call_id=each)] for each in ("look", "stumble")]
    model = ScriptedModel([*steps, [assistant_message("done")]])
    agent = Agent(name="clerk", model=model, tools=[look, stumble])

    async def whole() -> None:
        async with place.governance() as governance:
            runner = GovernedRunner(governance)
            state = (await runner.run(agent, TASK, run_config=UNTRACED)).to_state()
            for each in state.get_interruptions():
                state.approve(each)
            await runner.run(agent, state, run_config=UNTRACED)

    asyncio.run(whole())
    assert (place.run()["labels"], len(place.run()["toolCalls"])) == (["looked"], 2)


def test_of_what_was_read_only_digests_are_kept() -> None:
    conversations = Conversations()
    conversations.remember("run-1", [("1", "x" * 1_000_000)])
    assert conversations.latest_run([("1", "x" * 1_000_000)]) == "run-1"
    assert len(pickle.dumps(conversations)) < 1_000


def test_what_nobody_has_read_is_looked_for_in_little_time() -> None:
    conversations = Conversations()
    for run in range(2_000):
        conversations.remember(f"run-{run}", [(f"call-{run}", f"{each}") for each in range(10)])
    read = [(f"other-{each}",) for each in range(3_000)]
    began = time.process_time()
    assert conversations.latest_run(read) is None
    assert time.process_time() - began < 0.2


def test_an_answer_that_a_cache_gives_out_again_keeps_its_run(place: Place, tools: Tools) -> None:
    async def both() -> list[Any]:
        async with place.governance() as governance:
            model = ScriptedChatModel(script=[], cache=InMemoryCache())
            agent = create_agent(model, tools.functions, middleware=[GovernanceMiddleware(governance)])
            return [(await agent.ainvoke(INPUT))["messages"][-1] for _ in range(2)]

    one, other = asyncio.run(both())
    assert one.response_metadata["governance_run_id"] != other.response_metadata["governance_run_id"]
