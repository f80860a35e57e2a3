"""Agents, admins and reviewers at work on several nodes at once, and whether each answer was possible.

Everything that can be changed - a tool's policy, a halt, a key, an approval - is a `History`: its states, and
for each change when it was sent and when it was answered. An answer to what was sent at one time and
came at another may rest on every state that was in force between the two, and on no older one: as soon as
a change is answered, no decision that is asked for later may rest on what was before, on whichever node.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.harness.cluster import Answer, Client, Cluster
from tests.harness.effort import LONG
from tests.harness.nodes import KEY, called
from tests.harness.nodes_outcomes import Outcomes
from tests.harness.policy_bodies import on_tool

TOOLS = 4
RUNS = 12
AGENTS = 3
AT_WORK = 8
LIMIT = 60 if LONG else 12
LIMITED = "limited"
MEANS = {"block": "blocked", "require_approval": "awaiting_approval", "warn": "allowed", "gone": "allowed"}
POLICIES = [
    on_tool(f"On tool {number}", "block", f"tool-{number}", policyId=f"on-tool-{number}")
    for number in range(TOOLS)
]
LIMITS = on_tool(
    "Limit", "block", LIMITED, rateLimit={"limit": LIMIT, "windowSeconds": 86_400, "per": ["toolName"]}
)


Send = Callable[..., Coroutine[Any, Any, Answer]]


class History:
    """See the module. Changes follow each other: the next is sent when the one before is answered."""

    def __init__(self, first: Any) -> None:
        self.now = first
        self._states = [first]
        self._sent = [-math.inf]
        self._answered = [-math.inf]

    @contextlib.contextmanager
    def changed(self, state: Any) -> Iterator[None]:
        """Around the request that changes it; one that fails leaves both states possible."""
        self._states.append(state)
        self._sent.append(time.monotonic())
        self._answered.append(math.inf)
        yield
        self._answered[-1] = time.monotonic()
        self.now = state

    def undo(self) -> None:
        """The last change was refused, and has never been in force."""
        for each in (self._states, self._sent, self._answered):
            each.pop()
        self.now = self._states[-1]

    def between(self, sent: float, answered: float) -> set[Any]:
        """The states that were in force at some moment between the two."""
        ends = [*self._answered[1:], math.inf]
        return {
            state
            for state, begin, end in zip(self._states, self._sent, ends, strict=True)
            if begin <= answered and end >= sent
        }


@dataclass
class Key:
    secret: str
    works: History


@dataclass
class Call:
    """One call as it was first answered."""

    event: dict[str, Any]
    key: Key
    answer: Answer
    status: str
    ended: set[bool]
    """Whether its run had."""
    resolved: History = field(default_factory=lambda: History("awaiting_approval"))


class Walk:
    """One walk over the nodes of a cluster. `name` keeps its ids apart from those of others."""

    def __init__(self, made: Cluster, name: str, seed: int) -> None:
        self._made = made
        self._name = name
        self._chance = random.Random(seed)
        self._policies = [History("block") for _ in range(TOOLS)]
        self._halts: dict[tuple[str, str], History] = {("all", ""): History(False)}
        self._halts |= {("agent", self._agent(n)): History(False) for n in range(AGENTS)}
        self._halts |= {("run", self._run(n)): History(False) for n in range(RUNS)}
        self._keys = [Key(KEY, History(True))]
        runs = {self._run(n): (self._agent(n % AGENTS), History(False)) for n in range(RUNS)}
        self._outcomes = Outcomes(name, self._chance, runs)
        self.calls: list[Call] = []
        self._waiting: list[Call] = []
        self._count = self.checked = self.changes = 0
        self._passed = 0
        self._revisions: list[tuple[float, float, int]] = []
        self._ended = False

    def _agent(self, number: int) -> str:
        return f"{self._name}-agent-{number}"

    def _run(self, number: int) -> str:
        return f"{self._name}-run-{number}"

    async def play(self, calls: int, changes: int) -> None:
        """Until so many calls are decided and so many changes made; raises what was wrong."""
        admins = [self._changes_policies(0), self._changes_policies(1), self._halts_and_resumes()]
        others = [self._makes_and_revokes_keys(), self._resolves(), self._resolves()]
        agents = [self._works(calls, changes) for _ in range(AT_WORK)]
        async with asyncio.TaskGroup() as group:
            for each in (*admins, *others):
                group.create_task(each)
            done = [group.create_task(each) for each in agents]
            await asyncio.wait(done, return_when=asyncio.ALL_COMPLETED)
            self._ended = True
        self._check_revisions()

    # Who asks ---------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _clients(self) -> AsyncIterator[Send]:
        """Sends each request to a node of chance."""
        clients = [Client(node.port) for node in self._made.nodes]

        async def send(*request: Any) -> Answer:
            return await self._chance.choice(clients).send(*request)

        try:
            yield send
        finally:
            for client in clients:
                client.close()

    async def _works(self, calls: int, changes: int) -> None:
        async with self._clients() as send:
            while len(self.calls) < calls or self.changes < changes:
                chance = self._chance.random()
                if chance < 0.5 or not self.calls:
                    await self._calls(send)
                elif chance < 0.65:
                    await self._repeats(send, same=True)
                elif chance < 0.8:
                    await self._repeats(send, same=False)
                elif chance < 0.97:
                    await self._completes(send)
                else:
                    await self._outcomes.ends(self._timed, send, self._keys[0])

    async def _changes_policies(self, which: int) -> None:
        """Two admins, each of half of the policies."""
        async with self._clients() as send:
            while not self._ended:
                number = self._chance.randrange(which, TOOLS, 2)
                history, policy = self._policies[number], POLICIES[number]
                wanted = self._chance.choice([each for each in MEANS if each != history.now])
                path, admin = f"/v1/policies/{policy['policyId']}", self._made.admin
                if self._chance.random() < 0.7:
                    await asyncio.to_thread(self._made.deafen)
                with history.changed(wanted):
                    if wanted == "gone":
                        answer = await send("DELETE", path, None, admin)
                    elif history.now == "gone":
                        body = {**policy, "enabled": True, "action": wanted}
                        answer = await send("POST", "/v1/policies", body, admin)
                    else:
                        answer = await send("PATCH", path, {"action": wanted}, admin)
                    assert answer.status in (200, 201, 204), answer.content
                await self._asks_everywhere(f"tool-{number}")
                await self._pause()

    async def _halts_and_resumes(self) -> None:
        async with self._clients() as send:
            while not self._ended:
                (kind, target), history = self._chance.choice(list(self._halts.items()))
                body = {"scope": kind} | ({f"{kind}Id": target} if target else {})
                for path, state in (("/v1/halt", True), ("/v1/resume", False)):
                    with history.changed(state):
                        answer = await send("POST", path, body, self._made.admin)
                        assert answer.status == 200, answer.content
                    runs = [n for n in range(RUNS) if target in ("", self._agent(n % AGENTS), self._run(n))]
                    await self._asks_everywhere("tool-0", run=self._chance.choice(runs))
                    await self._pause()

    async def _makes_and_revokes_keys(self) -> None:
        async with self._clients() as send:
            while not self._ended:
                answer = await send("POST", "/v1/api-keys", {"name": "walk"}, self._made.admin)
                assert answer.status == 201, answer.content
                made = answer.json()
                key = Key(made["key"], History(True))
                self._keys.append(key)
                await self._pause()
                with key.works.changed(False):
                    gone = await send("DELETE", f"/v1/api-keys/{made['keyId']}", None, self._made.admin)
                    assert gone.status == 204, gone.content
                await self._asks_everywhere("tool-0", key=key)
                await self._pause()
                self._keys.remove(key)

    async def _resolves(self) -> None:
        async with self._clients() as send:
            while not self._ended:
                if not self._waiting:
                    await asyncio.sleep(0.01)
                    continue
                call = self._waiting.pop(0)
                way, state = self._chance.choice([("approve", "allowed"), ("reject", "blocked")])
                path = f"/v1/approvals/{call.answer.json()['approvalId']}/{way}"
                sent = time.monotonic()
                with call.resolved.changed(state):
                    answer = await send("POST", path, {}, self._made.admin)
                    halted = self._halted(call.event, sent, time.monotonic())
                    if way == "approve" and halted == {True}:
                        assert answer.status == 409, "approved while it was halted"
                    elif answer.status != 200:
                        assert (way, answer.status) == ("approve", 409) and True in halted, answer.content
                if answer.status != 200:
                    call.resolved.undo()
                    self._waiting.append(call)
                self.changes += 1

    async def _asks_everywhere(self, tool: str, run: int | None = None, key: Key | None = None) -> None:
        """As soon as a change is answered, every node is asked for what it is about."""
        clients = [Client(node.port) for node in self._made.nodes]
        try:
            asked = (self._calls(client.send, tool, run, key or self._keys[0]) for client in clients)
            await asyncio.gather(*asked)
        finally:
            for client in clients:
                client.close()

    async def _pause(self) -> None:
        self.changes += 1
        await asyncio.sleep(self._chance.uniform(0, 0.3))

    # What is asked ----------------------------------------------------------------------------------

    async def _calls(
        self, send: Send, tool: str | None = None, run: int | None = None, key: Key | None = None
    ) -> None:
        """A new call, of chance where it is not said."""
        self._count += 1
        number = self._count
        tool = tool or self._chance.choice([LIMITED, *(f"tool-{each}" for each in range(TOOLS))])
        run = self._chance.randrange(RUNS) if run is None else run
        key = key or self._chance.choice(self._keys)
        # A run belongs to the key that began it, and to one agent.
        owner = "" if key.secret == KEY else f"-{key.secret[-8:]}-{number}"
        event = called(f"{self._name}-{number}", tool, self._run(run) + owner)
        event["agentId"] = self._agent(run % AGENTS)
        sent, answer, answered = await self._timed(send, event, key)
        if not self._let_in(key, answer, sent, answered):
            return
        told = answer.json()
        halted = self._halted(event, sent, answered)
        possible = {"blocked"} if True in halted else set()
        if False in halted:
            possible |= self._decided(event["metadata"]["toolName"], sent, answered)
        assert told["toolCallStatus"] in possible, f"{told} where {possible} was possible"
        self._revisions.append((sent, answered, told["policyRevision"]))
        ended = self._outcomes.ended(event["runId"], sent, answered)
        call = Call(event, key, answer, told["toolCallStatus"], ended)
        self.calls.append(call)
        if call.status == "awaiting_approval":
            self._waiting.append(call)
        if event["metadata"]["toolName"] == LIMITED and call.status == "allowed":
            self._passed += 1
            assert self._passed <= LIMIT, "more passed than the limit says"

    async def _repeats(self, send: Send, *, same: bool) -> None:
        """The same event, or the same call in another event."""
        call = self._chance.choice(self.calls)
        self._count += 1
        event = call.event if same else {**call.event, "eventId": f"{self._name}-again-{self._count}"}
        sent, answer, answered = await self._timed(send, event, call.key)
        if not self._let_in(call.key, answer, sent, answered):
            return
        told, halted = answer.json(), self._halted(event, sent, answered)
        possible = {call.status} if same else call.resolved.between(sent, answered)
        if not same and call.status != "awaiting_approval":
            possible = {call.status}
        if halted == {True}:
            possible -= {"allowed"}
        if True in halted:
            possible |= {"blocked"}
        assert told["toolCallStatus"] in possible, f"{told} where {possible} was possible"
        if same:
            assert answer.headers["idempotent-replay"] == "true"
            if halted == {False}:
                assert answer.content == call.answer.content, "two answers to one event"

    async def _completes(self, send: Send) -> None:
        """Mostly of a call of just now."""
        call = self.calls[-1] if self._chance.random() < 0.7 else self._chance.choice(self.calls)
        sent, answer, answered = await self._outcomes.completes(self._timed, send, call)
        self._let_in(call.key, answer, sent, answered)

    async def _timed(self, send: Send, event: dict[str, Any], key: Key) -> tuple[float, Answer, float]:
        sent = time.monotonic()
        answer = await send("POST", "/v1/events", event, {"X-API-Key": key.secret})
        self.checked += 1
        return sent, answer, time.monotonic()

    # What was possible ------------------------------------------------------------------------------

    def _let_in(self, key: Key, answer: Answer, sent: float, answered: float) -> bool:
        works = key.works.between(sent, answered)
        refused = {401, 429}  # many wrong keys slow down the next
        assert answer.status in set().union(*({200} if each else refused for each in works)), answer.content
        return answer.status == 200

    def _halted(self, event: dict[str, Any], sent: float, answered: float) -> set[bool]:
        scopes = [("all", ""), ("agent", event["agentId"]), ("run", event["runId"])]
        states = [self._halts[each].between(sent, answered) for each in scopes if each in self._halts]
        if {True} in states:
            return {True}
        return {True, False} if any(True in each for each in states) else {False}

    def _decided(self, tool: str, sent: float, answered: float) -> set[str]:
        if tool == LIMITED:
            # Those that were let through and have not been answered yet count, too.
            return {"allowed", "blocked"} if self._passed + AT_WORK > LIMIT else {"allowed"}
        states = self._policies[int(tool.removeprefix("tool-"))].between(sent, answered)
        return {MEANS[state] for state in states}

    def _check_revisions(self) -> None:
        """A decision that was asked for after another one was answered rests on the same rules or later."""
        answered = sorted((end, revision) for _, end, revision in self._revisions)
        newest, place = 0, 0
        for sent, _, revision in sorted(self._revisions):
            while place < len(answered) and answered[place][0] < sent:
                newest = max(newest, answered[place][1])
                place += 1
            assert revision >= newest, f"revision {revision} after {newest} had been used"

    def finish(self) -> None:
        """Every node tells the same record, and every answer is in it, once."""
        told = {call.answer.json()["auditId"]: call.status for call in self.calls}
        assert len(told) == len(self.calls)
        for node in self._made.nodes:
            found = {}
            for number in range(AGENTS):
                query = f"format=jsonl&type=decision&agentId={self._agent(number)}"
                answer = node.http.get(f"/v1/audit?{query}", headers=self._made.admin)
                for record in map(json.loads, answer.text.splitlines()):
                    assert record["auditId"] not in found
                    found[record["auditId"]] = record["decision"]
            assert found == told
            exported = node.http.get("/v1/audit?format=jsonl", headers=self._made.admin).text
            self._outcomes.check(self.calls, map(json.loads, exported.splitlines()))
            verified = node.http.get("/v1/audit/verify", headers=self._made.admin).json()
            assert verified["valid"], verified["problems"]
