"""What a client asks besides decisions: once, with its key, and whatever is answered is given back."""

from __future__ import annotations

import asyncio

import pytest
from governance_client import AgentRun, AsyncGovernance, ClientRequest, Governance, Unreachable

from api.guide.client_reference import OF_CLIENT, OF_RUN, client
from tests.api.client.conftest import Told

KINDS = (Governance, AgentRun)
BEHIND = {"agent_id", "run_id", "driver", "asking", "waiting", "ending", "report_start", "report_end"}
"""What of a run adapters use, or is no method."""


def test_any_answer_is_given_back(told: Told) -> None:
    with Governance(told()) as governance:
        found = governance.request(ClientRequest("GET", "/health/ready"))
        missing = governance.request(ClientRequest("GET", "/v1/runs/none"))
    assert found.status == 200
    assert (missing.status, missing.json()["code"]) == (404, "not_found")


def test_nobody_answers(told: Told) -> None:
    async def ask() -> None:
        async with AsyncGovernance(told(port=1)) as governance:
            await governance.request(ClientRequest("GET", "/v1/runs"))

    with pytest.raises(Unreachable):
        asyncio.run(ask())


def test_the_reference_has_what_an_author_calls() -> None:
    shown = client()
    for name in (*OF_CLIENT, *OF_RUN):
        assert f"| `{name}(" in shown, name
    of_client, of_run = ({name for name in dir(kind) if not name.startswith("_")} for kind in KINDS)
    assert of_client - set(OF_CLIENT) == {"settings"}
    assert of_run - set(OF_RUN) == BEHIND
