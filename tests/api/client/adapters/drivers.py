"""The SDKs that there is an adapter for."""

from __future__ import annotations

from tests.api.client.adapters.driver import Driver
from tests.api.client.adapters.langchain_driver import LangChain, LangChainInThreads
from tests.api.client.adapters.mcp_driver import McpSession
from tests.api.client.adapters.openai_agents_driver import OpenAiAgents
from tests.api.client.adapters.pydantic_ai_driver import PydanticAi

DRIVERS: tuple[Driver, ...] = (
    LangChain(),
    LangChainInThreads(),
    McpSession(),
    OpenAiAgents(),
    PydanticAi(),
)
