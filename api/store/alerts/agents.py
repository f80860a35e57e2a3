"""Agents: what the log says of each, as far as it was read (`api/alerts`).

Records come out in the contract's shape; nothing here reads the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec

from api.database.connection import Database, marks
from api.database.models import Agent
from api.database.table import page_of
from api.database.transaction import Transaction

MOST_TOOLS: Final = 100
MOST_OF_TOOLS: Final = 4_096
"""Bytes of their names. INVARIANT: what is known of an agent is small, whatever it calls its tools and its
model, since all of it is written anew whenever the agent shows itself."""
MOST_NAMES: Final = 20
"""Keys, models and clients of each agent that are remembered, the newest ones."""
MOST_OF_NAME: Final = 100
"""Bytes of each; a longer one is known by its beginning and its digest."""
MOST_LATEST: Final = 1_000
"""Agents whose tools are told together."""

COLUMNS: Final = ("organisation_id", "agent_id", "first_seen_at", "last_seen_at", "calls", "facts")
_KEY: Final = COLUMNS[:2]


class AgentFacts(msgspec.Struct, omit_defaults=True):
    """What is known of an agent. `keys`, `models` and `clients`: when each was seen last."""

    first_seen_at: str = ""
    last_seen_at: str = ""
    calls: int = 0
    decisions: dict[str, int] = {}
    resolutions: dict[str, int] = {}
    gaps: int = 0
    tools: dict[str, int] = {}
    other_tools: int = 0
    """Calls of tools beyond `MOST_TOOLS`, or beyond the bytes of their names."""
    keys: dict[str, str] = {}
    models: dict[str, str] = {}
    clients: dict[str, str] = {}

    def saw(self, names: dict[str, str], name: str, at: str) -> bool:
        """One of its keys, models or clients; returns whether it is another one than ever before."""
        name = _bounded(name)
        is_other = bool(names) and name not in names
        names[name] = max(at, names.pop(name, ""))
        if len(names) > MOST_NAMES:
            del names[min(names, key=names.__getitem__)]
        return is_other

    def called(self, tool_name: str, count: int) -> None:
        if tool_name in self.tools or self._has_room(tool_name):
            self.tools[tool_name] = self.tools.get(tool_name, 0) + count
        else:
            self.other_tools += count

    def _has_room(self, tool_name: str) -> bool:
        size = sum(len(name.encode()) for name in (*self.tools, tool_name))
        return len(self.tools) < MOST_TOOLS and size <= MOST_OF_TOOLS


def _bounded(name: str) -> str:
    text = name.encode()
    if len(text) <= MOST_OF_NAME:
        return name
    return f"{text[: MOST_OF_NAME // 2].decode(errors='ignore')}... sha256:{sha256(text).hexdigest()[:16]}"


def known(store: Database, organisation_id: str, agent_ids: Sequence[str]) -> dict[str, AgentFacts]:
    """Those of these agents that were seen before."""
    found: dict[str, AgentFacts] = {}
    for start in range(0, len(agent_ids), 500):
        part = agent_ids[start : start + 500]
        rows = store.rows(
            f"SELECT agent_id, facts FROM agents WHERE organisation_id = ? AND agent_id IN ({marks(part)})",
            (organisation_id, *part),
        )
        found |= {agent_id: msgspec.json.decode(facts, type=AgentFacts) for agent_id, facts in rows}
    return found


def keep(transaction: Transaction, agents: Mapping[tuple[str, str], AgentFacts]) -> None:
    """Write what is known of these agents now, by organisation and id."""
    rows = [
        (*name, facts.first_seen_at, facts.last_seen_at, facts.calls, msgspec.json.encode(facts).decode())
        for name, facts in sorted(agents.items())
    ]
    transaction.store.insert_many("agents", COLUMNS, rows, key=_KEY)


Position = tuple[str, str]
"""Where a page ends: `firstSeenAt` and `agentId` of its last agent."""


def list_agents(
    organisation_id: str, limit: int, after: Position | None, *, newest: bool = False, search: str = ""
) -> tuple[list[dict[str, Any]], int, Position | None]:
    """One page, how many there are in all, and where the next page begins, if any. `newest`: those first whom
    nobody knew before, else by id."""
    chosen = Agent.organisation_id == organisation_id
    if search:
        chosen &= Agent.agent_id.contains(search)
    query, keys = Agent.select().where(chosen), (Agent.first_seen_at, Agent.agent_id)
    order = keys if newest else keys[1:]
    rows, total, position = page_of(query, keys, limit, after, ascending=not newest, order=order)
    return [_agent(row) for row in rows], total, position


def find_agent(organisation_id: str, agent_id: str) -> dict[str, Any] | None:
    row = Agent.get_or_none((Agent.organisation_id == organisation_id) & (Agent.agent_id == agent_id))
    return None if row is None else _agent(row)


def tools_called(organisation_id: str) -> dict[str, dict[str, int]]:
    """Tool name to how often which agent called it, of the agents that were seen last."""
    rows = (
        Agent.select(Agent.agent_id, Agent.facts)
        .where(Agent.organisation_id == organisation_id)
        .order_by(Agent.last_seen_at.desc(), Agent.agent_id)
        .limit(MOST_LATEST)
    )
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        for name, calls in msgspec.json.decode(row.facts, type=AgentFacts).tools.items():
            found.setdefault(name, {})[row.agent_id] = calls
    return found


def _agent(row: Agent) -> dict[str, Any]:
    facts = msgspec.json.decode(row.facts, type=AgentFacts)
    decisions = {name: facts.decisions.get(name, 0) for name in ("allowed", "blocked", "awaiting_approval")}
    return {
        "agentId": row.agent_id,
        "firstSeenAt": row.first_seen_at,
        "lastSeenAt": row.last_seen_at,
        "calls": row.calls,
        "decisions": decisions,
        "resolutions": dict(sorted(facts.resolutions.items())),
        "enforcementGaps": facts.gaps,
        "tools": [
            {"toolName": name, "calls": calls}
            for name, calls in sorted(facts.tools.items(), key=lambda item: (-item[1], item[0]))
        ],
        "callsOfOtherTools": facts.other_tools,
        "apiKeys": _newest(facts.keys, "apiKeyId"),
        "models": _newest(facts.models, "model"),
        "clients": _newest(facts.clients, "client"),
    }


def _newest(names: Mapping[str, str], called: str) -> list[dict[str, str]]:
    """The last seen first."""
    items: Iterable[tuple[str, str]] = sorted(
        names.items(), key=lambda item: (item[1], item[0]), reverse=True
    )
    return [{called: name, "lastSeenAt": at} for name, at in items]
