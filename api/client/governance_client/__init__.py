"""The client of the Agent Governance Service: it asks before a tool runs, waits for people where the service
says so, and reports what came of it. It imports httpx and the standard library alone.

What it promises: a tool runs only after the service has answered `allowed` to this very call, or, where the
fail mode `open` was chosen and nobody was there to ask, after the call was written to disk to be reported
later. Everything else - a refusal, no answer, an answer that cannot be understood, a revoked key - runs
nothing.
"""

from governance_client.decision import MatchedPolicy, Refused, Status, ToolDecision
from governance_client.exchange import ClientRequest, ClientResponse, Unreachable
from governance_client.governance import AgentRun, AsyncAgentRun, AsyncGovernance, Governance
from governance_client.run_core import NoCurrentRun, RunCore, current_run
from governance_client.settings import ClientSettings

VERSION = "0.1.0"

__all__ = [
    "VERSION",
    "AgentRun",
    "AsyncAgentRun",
    "AsyncGovernance",
    "ClientRequest",
    "ClientResponse",
    "ClientSettings",
    "Governance",
    "MatchedPolicy",
    "NoCurrentRun",
    "Refused",
    "RunCore",
    "Status",
    "ToolDecision",
    "Unreachable",
    "current_run",
]
