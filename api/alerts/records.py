"""From the audit log to happenings: records of one organisation, read some at a time and put together.

Decides what a record means for detectors and for what is known of agents. Like records of one minute become
one happening, so that what follows costs little however many there are. It must not know detectors, nor how
far the log was read.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from api.clock import APART_SECONDS, seconds
from api.database.audit_chain import ChainName, Record
from api.database.connection import Database
from api.store.alerts.agents import AgentFacts
from engine.detectors.happening import Happening

log = logging.getLogger("governance")

Agents = Mapping[str, AgentFacts]

_RECORDS: Final = (
    "SELECT record FROM audit WHERE organisation_id = ? AND chain = ? AND sequence BETWEEN ? AND ?"
    " ORDER BY sequence"
)
_KEY: Final = "key:"
APART_MINUTES: Final = int(APART_SECONDS) // 60 + 1
"""A minute by the clock of one node may be so far ahead for another."""

_all = msgspec.json.Decoder(list[Record]).decode
_one = msgspec.json.Decoder(Record).decode


def read(store: Database, chain: ChainName, first: int, last: int) -> list[Record]:
    """The records of a span, in order."""
    rows = store.rows(_RECORDS, (*chain, first, last))
    try:
        return _all(f"[{','.join([row[0] for row in rows])}]")
    except msgspec.DecodeError:
        return list(_readable([row[0] for row in rows]))


def _readable(texts: Sequence[str]) -> Iterator[Record]:
    """A record that somebody tampered with is for `governance audit verify`; the others still count."""
    for text in texts:
        try:
            yield _one(text)
        except msgspec.DecodeError:
            log.warning("a record of the audit log cannot be read and is left out of what is watched")


Key = tuple[str, str, str | None, str | None, str | None, str | None, str | None, str | None]
"""Minute, type, agent, actor, run, user, tool, decision."""


class Gathered:
    """Records of one organisation, those that are alike together. `by_run`, `by_user`: who made a call within
    the same agent matters. `counts`: what detectors take notice of; of all else there are no happenings."""

    def __init__(self, *, by_run: bool, by_user: bool, counts: Container[str]) -> None:
        self._by_run, self._by_user = by_run, by_user
        self._counts = counts
        self._records: list[Record] = []
        self._groups: defaultdict[Key, list[int]] = defaultdict(list)

    def add(self, found: Sequence[Record]) -> None:
        groups, by_run, by_user = self._groups, self._by_run, self._by_user
        at = minute = ""
        for number, r in enumerate(found, len(self._records)):
            if (type := r.type) in _SEEN:
                run_id, user_id = r.runId if by_run else "", r.userId if by_user else ""
            elif type in _ALSO:
                run_id, user_id = r.runId, r.userId
            else:
                continue
            if r.at is not at:  # those of one commit have the same
                at = r.at
                minute = at[:16]
            groups[minute, type, r.agentId, r.actor, run_id, user_id, r.toolName, r.decision].append(number)
        self._records += found

    def count_agents(self) -> int:
        return len({key[2] for key in self._groups})

    def happenings(
        self, known: Callable[[list[str]], dict[str, AgentFacts]]
    ) -> tuple[list[Happening], dict[str, AgentFacts]]:
        """What they say, oldest first, and the agents they are about, as they are known afterwards.

        `known` gives agents as they were known before.
        """
        agents = known(sorted({key[2] for key in self._groups if key[2] and key[1] in _SEEN}))
        happened: list[Happening] = []
        for key, order in self._groups.items():
            group = _Group(key, order, self._records, self._counts, happened)
            if key[1] in _SEEN and key[2]:
                _seen(group, agents)
            _tell(group, agents)
        return happened, agents


_SEEN: Final = frozenset(("decision", "event", "decision.repeated"))
"""Types of records by which an agent shows itself."""
_ALSO: Final = frozenset(("approval.resolved", "request.refused", "enforcement.gap"))
"""Others that anything follows from."""


class _Group(msgspec.Struct):
    """Records that are alike, and where what they say is put, as far as it `counts`."""

    key: Key
    order: list[int]
    records: Sequence[Record]
    counts: Container[str]
    happened: list[Happening]

    def happens(self, on: Any, order: Sequence[int] | None = None, **members: Any) -> None:
        if on not in self.counts:
            return
        minute, _, agent_id, actor, run_id, user_id, tool_name, _ = (each or "" for each in self.key)
        key_id = actor.removeprefix(_KEY) if actor.startswith(_KEY) else ""
        place = (on, _minute(minute), self.order if order is None else order, self.audit_id)
        self.happened.append(Happening(*place, agent_id, key_id, run_id, user_id, tool_name, **members))

    def audit_id(self, number: int) -> str:
        return self.records[number].auditId


def _tell(group: _Group, agents: dict[str, AgentFacts]) -> None:
    """What follows from records of one type."""
    type, agent_id, decision, count = group.key[1], group.key[2], group.key[7] or "", len(group.order)
    facts = agents.get(agent_id) if agent_id else None
    match type:
        case "decision":
            if facts is not None:
                facts.calls += count
                facts.decisions[decision] = facts.decisions.get(decision, 0) + count
                facts.called(group.key[6] or "", count)
            group.happens("tool.called")
            if decision == "blocked":
                group.happens("tool.refused")
        case "approval.resolved":
            if facts is not None:
                facts.resolutions[decision] = facts.resolutions.get(decision, 0) + count
            if decision == "rejected":
                group.happens("tool.refused")
        case "request.refused":
            counts = ((group.records[number].details or {}).get("count") for number in group.order)
            refused = sum(each for each in counts if isinstance(each, int))
            group.happens("request.refused", count=refused)
        case "enforcement.gap":
            if facts is not None:
                facts.gaps += count
            group.happens("enforcement.gap")


def _seen(group: _Group, agents: dict[str, AgentFacts]) -> None:
    """An agent that is new, or comes with something else than ever before."""
    (_, type, agent_id, actor, *_), order, records = group.key, group.order, group.records
    assert agent_id is not None
    first, last = records[order[0]].at, records[order[-1]].at
    facts = agents.get(agent_id)
    if facts is None:
        facts = agents[agent_id] = AgentFacts(first_seen_at=first)
        group.happens("agent.new", order[:1])
    if first < facts.first_seen_at:
        facts.first_seen_at = first
    if last > facts.last_seen_at:
        facts.last_seen_at = last
    if actor is not None and actor.startswith(_KEY):
        key_id = actor.removeprefix(_KEY)
        if facts.saw(facts.keys, key_id, last):
            group.happens("agent.changed", order[:1], what="apiKeyId", value=key_id)
    if type != "event":
        return
    for number in order:
        record = records[number]
        if (record.details or {}).get("eventType") != "run.started":
            continue
        said = record.asserted or {}
        for what, names, value in (
            ("model", facts.models, said.get("model")),
            ("client", facts.clients, said.get("host")),
        ):
            if isinstance(value, str) and value and facts.saw(names, value, record.at):
                group.happens("agent.changed", [number], what=what, value=value)


@lru_cache(maxsize=10_000)
def _minute(text: str) -> int:
    """The minutes since the epoch of `2026-01-31T09:30`."""
    return int(seconds(text)) // 60
