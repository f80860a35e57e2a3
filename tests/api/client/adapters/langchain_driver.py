"""LangChain under test: a chat model that reads the script, and LangGraph's checkpoints as the database."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

from governance_client import AsyncGovernance
from governance_client.adapters.langchain import GovernanceMiddleware
from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver

from tests.api.client.adapters.driver import DONE, MODEL, TASK, Outcome, OutOfOrder, Script, Tools, call_id

NUMBERS = count(1)
DATABASES: dict[str, InMemorySaver] = {}
"""LangGraph keeps a run itself, written as bytes; what a test keeps is where."""
CONFIG: Any = {"configurable": {"thread_id": "thread-1"}}
INPUT: Any = {"messages": [{"role": "user", "content": TASK}]}


class ScriptedChatModel(BaseChatModel):
    script: Script
    breaks: bool = False
    model_name: str = MODEL

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **options: Any
    ) -> ChatResult:
        step = sum(isinstance(message, AIMessage) for message in messages)
        if step < len(self.script):
            calls = enumerate(self.script[step])
            asked = [{"name": tool, "args": args, "id": call_id(step, at)} for at, (tool, args) in calls]
            answer = AIMessage(content="", tool_calls=asked)
        elif self.breaks:
            raise OutOfOrder
        else:
            answer = AIMessage(content=DONE)
        return ChatResult(generations=[ChatGeneration(message=answer)])


class LangChain:
    name = "langchain"
    pauses, survives, knows_task = True, False, True

    async def run(
        self, governance: AsyncGovernance, script: Script, tools: Tools, *, breaks: bool = False
    ) -> Outcome:
        middleware = GovernanceMiddleware(governance)
        model = ScriptedChatModel(script=script, breaks=breaks)
        agent = create_agent(model, tools.functions, middleware=[middleware])
        return _outcome(await self._invoke(agent.with_config(callbacks=[middleware.callback]), INPUT))

    async def pause(self, governance: AsyncGovernance, script: Script, tools: Tools) -> str:
        saved = f"database-{next(NUMBERS)}"
        database = DATABASES[saved] = InMemorySaver()
        agent = _interrupted(GovernanceMiddleware(governance, approvals="interrupt"), script, tools, database)
        assert (await self._invoke(agent, INPUT))["__interrupt__"]
        return saved

    async def resume(self, governance: AsyncGovernance, script: Script, tools: Tools, saved: str) -> Outcome:
        middleware = GovernanceMiddleware(governance, approvals="interrupt")
        agent = _interrupted(middleware, script, tools, DATABASES[saved])
        while True:
            interrupts = agent.get_state(CONFIG).interrupts
            result = await self._invoke(agent, await self._outcomes(middleware, interrupts))
            if "__interrupt__" not in result:
                return _outcome(result)

    async def _invoke(self, agent: Any, given: Any) -> Any:
        return await agent.ainvoke(given, CONFIG)

    async def _outcomes(self, middleware: GovernanceMiddleware, interrupts: Any) -> Any:
        return await middleware.aoutcomes(interrupts)


class LangChainInThreads(LangChain):
    """The same agents by `invoke`."""

    name = "langchain-in-threads"

    async def _invoke(self, agent: Any, given: Any) -> Any:
        return await asyncio.to_thread(agent.invoke, given, CONFIG)

    async def _outcomes(self, middleware: GovernanceMiddleware, interrupts: Any) -> Any:
        return await asyncio.to_thread(middleware.outcomes, interrupts)


def _interrupted(
    middleware: GovernanceMiddleware, script: Script, tools: Tools, database: InMemorySaver
) -> Any:
    model = ScriptedChatModel(script=script)
    return create_agent(model, tools.functions, middleware=[middleware], checkpointer=database)


def _outcome(result: Any) -> Outcome:
    messages = result["messages"]
    answers = [message.content for message in messages if isinstance(message, ToolMessage)]
    return Outcome(answers, messages[-1].content)
