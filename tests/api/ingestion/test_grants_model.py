"""Random stories of calls, grants, exemptions, ends and time: calls are decided as plain rules say.

So no grant loosens a block, or covers another payload, tool, run, agent, key or organisation than its own.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.harness.application import Service
from tests.harness.effort import LONG
from tests.harness.policy_bodies import policy_body, where

STEPS = 2_000 if LONG else 200
WHO = ("agent", "second agent")
"""Keys of one organisation."""


def policy(name: str, action: str, **values: str) -> dict[str, Any]:
    conditions = (where(path.replace("_", "."), "equals", value) for path, value in values.items())
    return policy_body(name, action, *conditions, policyId=name)


POLICIES = [
    policy("mail", "require_approval", toolName="mail"),
    policy("pay", "require_approval", toolName="pay"),
    policy("odd", "require_approval", agentContext_goal="odd"),
    policy("evil", "block", agentContext_goal="evil"),
    policy("secret-mail", "require_approval", toolName="post", run_labels="secret"),
    policy("secret-pay", "block", toolName="pay", run_labels="secret"),
    policy("label", "allow", toolName="read_secret") | {"labels": {"add": ["secret"]}},
]


@dataclass
class Granted:
    """What a grant should cover; without a `call` it is an exemption."""

    grant_id: str
    run: tuple[str, str, str]
    until: float
    call: tuple[str, str] | None = None
    whole_agent: bool = False
    policies: frozenset[str] = frozenset()
    left: int = 0
    revoked: bool = False


@dataclass
class Story:
    """The plain rules, and what has happened so far."""

    now: float = 0.0
    grants: list[Granted] = field(default_factory=list)
    labelled: set[tuple[str, str, str]] = field(default_factory=set)
    ended: set[tuple[str, str, str]] = field(default_factory=set)

    def active(self, grant: Granted) -> bool:
        return not grant.revoked and self.now < grant.until

    def decide(self, run: tuple[str, str, str], call: tuple[str, str], goal: str) -> tuple[str, list[str]]:
        """The status, and by which grants. A run is `(key, agent, run)`."""
        tool, secret = call[0], run in self.labelled
        if tool == "read_secret":
            self.labelled.add(run)
        if goal == "evil" or (tool == "pay" and secret):
            return "blocked", []
        holding = {name for name in ("mail", "pay") if tool == name} | ({"odd"} if goal == "odd" else set())
        by: list[str] = []
        if tool == "post" and secret:
            exempt = [g for g in self.grants if g.call is None and g.run == run and self.active(g)]
            if exempt and run not in self.ended:
                by = sorted(grant.grant_id for grant in exempt)
            else:
                holding.add("secret-mail")
        if not holding:
            return "allowed", by
        if run in self.ended:
            return "awaiting_approval", by
        for grant in sorted(self.grants, key=lambda each: (each.until, each.grant_id)):
            same = grant.run == run or (grant.whole_agent and grant.run[:2] == run[:2])
            if (
                grant.call == call
                and same
                and self.active(grant)
                and grant.left
                and holding <= grant.policies
            ):
                grant.left -= 1
                return "allowed", sorted([*by, grant.grant_id])
        return "awaiting_approval", by


@pytest.mark.parametrize("seed", range(2))
def test_calls_are_covered_as_plain_rules_say(tmp_path: Path, seed: int) -> None:
    asyncio.run(play(tmp_path, random.Random(seed)))


async def play(folder: Path, chance: random.Random) -> None:
    story, seen = Story(), set[tuple[str, bool]]()
    async with Service(folder, POLICIES) as service:
        for number in range(STEPS):
            step = chance.random()
            if step < 0.06:
                seconds = chance.choice([10, 60, 200])
                service.clock.advance(seconds)
                story.now += seconds
            elif step < 0.1 and story.grants:
                grant = chance.choice(story.grants)
                grant.revoked = grant.revoked or await revoked(service, grant)
            elif step < 0.12:
                run = some_run(chance)
                story.ended.add(run)
                await service.report(run[0], number, "run.completed", agentId=run[1], runId=run[2])
            elif step < 0.16 and (open_runs := sorted(story.labelled - story.ended)):
                await exempt(service, story, chance.choice(open_runs))
            else:
                seen.add(await one_call(service, story, chance, number))
        verified = await service.call("admin", "GET", "/v1/audit/verify")
        assert verified.json()["valid"], verified.json()["problems"]
    assert {("allowed", True), ("awaiting_approval", False), ("blocked", False)} <= seen


def some_run(chance: random.Random) -> tuple[str, str, str]:
    who, agent = chance.choice(WHO), chance.choice(["mailer", "payer"])
    return who, agent, f"{who[:3]}-{agent}-{chance.randrange(3)}-{chance.randrange(12) // 4}"


async def one_call(service: Service, story: Story, chance: random.Random, number: int) -> tuple[str, bool]:
    run = some_run(chance)
    call = chance.choice(["mail", "pay", "post", "post", "read_secret"]), chance.choice(["ann", "bob"])
    goal = chance.choice(["", "", "", "odd", "evil"])
    expected, by = story.decide(run, call, goal)
    body = {"toolCallId": f"c-{number}", "toolName": call[0], "inputPayload": {"to": call[1]}}
    body |= {"agentId": run[1], "runId": run[2], "agentContext": {"goal": goal}}
    answer = (await service.report(run[0], number, "tool.called", **body)).json()
    assert (answer["toolCallStatus"], sorted(answer.get("grantIds", []))) == (expected, by), answer
    again = (await service.report(run[0], f"again-{number}", "tool.called", **body)).json()
    assert (again["toolCallStatus"], sorted(again.get("grantIds", []))) == (expected, by), again
    stranger = (await service.report("other agent", f"other-{number}", "tool.called", **body)).json()
    assert "grantIds" not in stranger
    if expected == "awaiting_approval":
        held = {match["policyId"] for match in answer["matchedPolicies"] if match["action"] != "allow"}
        await resolve(service, story, chance, answer["approvalId"], run, call, frozenset(held))
    return expected, bool(by)


async def resolve(
    service: Service,
    story: Story,
    chance: random.Random,
    approval_id: str,
    run: tuple[str, str, str],
    call: tuple[str, str],
    held: frozenset[str],
) -> None:
    path = f"/v1/approvals/{approval_id}"
    whole = chance.random() < 0.5
    if chance.random() < 0.4 or (run in story.ended and not whole):
        assert (await service.call("reviewer", "POST", f"{path}/reject")).status_code == 200
        return
    calls, minutes = chance.randint(1, 4), chance.randint(1, 9)
    terms = {"scope": "agent" if whole else "run", "calls": calls, "minutes": minutes}
    made = await service.call("reviewer", "POST", f"{path}/approve", {"grant": terms})
    grant = made.json()["grant"]
    assert {each["policyId"] for each in grant["policies"]} == held
    until = story.now + 60 * minutes
    story.grants.append(Granted(grant["grantId"], run, until, call, whole, held, calls))


async def exempt(service: Service, story: Story, run: tuple[str, str, str]) -> None:
    body = {"runId": run[2], "labels": ["secret"], "minutes": 3, "reason": "looked at"}
    made = await service.call("reviewer", "POST", "/v1/grants", body)
    story.grants.append(Granted(made.json()["grantId"], run, story.now + 180))


async def revoked(service: Service, grant: Granted) -> bool:
    answer = await service.call("reviewer", "POST", f"/v1/grants/{grant.grant_id}/revoke")
    return bool(answer.json()["status"] == "revoked")
