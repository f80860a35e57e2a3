"""Tools of LangChain that say little of their arguments, or take them by any name."""

from __future__ import annotations

from typing import Any

import pytest
from governance_client import AsyncGovernance
from governance_client.adapters.langchain import GovernanceMiddleware
from langchain.agents import create_agent
from langchain_core.tools import BaseTool, Tool
from langchain_core.utils.function_calling import convert_to_openai_tool

from tests.api.client.adapters.langchain_driver import INPUT, ScriptedChatModel
from tests.api.client.adapters.place import Place, within


@pytest.mark.parametrize("given", [{"__arg1": "cats"}, {"tool_input": "cats"}])
def test_a_tool_of_one_text_takes_it_by_the_name_that_langchain_tells_the_model(
    place: Place, given: dict[str, str]
) -> None:
    asked = Tool(name="search", func=lambda query: f"found {query}", description="Search.")
    told = convert_to_openai_tool(asked)["function"]["parameters"]["properties"]
    assert list(told) == ["__arg1"]

    async def job(governance: AsyncGovernance) -> Any:
        model = ScriptedChatModel(script=[[("search", given)]])
        agent = create_agent(model, [asked], middleware=[GovernanceMiddleware(governance)])
        return (await agent.ainvoke(INPUT))["messages"][2].content

    assert within(place, job) == "found cats"
    assert [call["inputPayload"] for call in place.run()["toolCalls"]] == [given]


def test_a_tool_that_takes_any_name_has_its_defaults_asked_about(place: Place) -> None:
    class Search(BaseTool):
        name: str = "search"
        description: str = "Search."

        def _run(self, query: str, deep: bool = True, **kwargs: Any) -> str:
            return f"found {query}, {deep}, {kwargs}"

    async def job(governance: AsyncGovernance) -> Any:
        model = ScriptedChatModel(script=[[("search", {"query": "cats", "more": 1})]])
        agent = create_agent(model, [Search()], middleware=[GovernanceMiddleware(governance)])
        return (await agent.ainvoke(INPUT))["messages"][2].content

    assert within(place, job) == "found cats, True, {'more': 1}"
    assert [call["inputPayload"] for call in place.run()["toolCalls"]] == [
        {"query": "cats", "more": 1, "deep": True}
    ]


def test_a_function_is_given_json_in_a_text_as_that(place: Place) -> None:
    """Nobody reads it: it has said nothing of the type, or that a text may be none."""

    def save(content, note: str | None = None) -> str:  # type: ignore[no-untyped-def]
        """Save it."""
        return f"saved {content} {note}"

    async def job(governance: AsyncGovernance) -> Any:
        model = ScriptedChatModel(script=[[("save", {"content": '{"a": 1}', "note": "null"})]])
        agent = create_agent(model, [save], middleware=[GovernanceMiddleware(governance)])
        return (await agent.ainvoke(INPUT))["messages"][2].content

    assert within(place, job) == 'saved {"a": 1} null'
