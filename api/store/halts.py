"""Kill switches: every call of all agents, one agent or one run is blocked while one lasts.

Each halt is a record of its own, also where the same scope is halted already, and a call is free when none
covers it: nobody ends by accident what somebody else had a reason for.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, Final

from peewee import fn

from api.database.models import Halt, Run
from api.database.transaction import Transaction
from engine.worktree.paths import DEFAULT

log = logging.getLogger("governance")

KINDS = ("all", "agent", "run")
MOST_IN_FORCE: Final = 1_000
"""Halts of one organisation: with each change of one, all are read again before the next event."""


class TooManyHalts(Exception):
    """The organisation has `MOST_IN_FORCE` halts; reading still more would slow everybody down."""

    code = "conflict"


def _halt(row: Halt) -> dict[str, Any]:
    shape = {
        "haltId": row.halt_id,
        "scope": row.kind,
        "reason": row.reason,
        "createdAt": row.created_at,
        "createdBy": row.created_by,
        "endedAt": row.ended_at,
        "endedBy": row.ended_by,
    }
    if row.kind != "all":
        shape[f"{row.kind}Id"] = row.target
    return shape


class HaltBook:
    """The halts in force, in memory; read again whenever the `halts` counter has moved."""

    def __init__(self) -> None:
        self.version = -1
        self._halts: dict[tuple[str, str, str], dict[str, Any]] = {}

    def refresh(self, version: int) -> None:
        if version == self.version:
            return
        rows = Halt.select().where(Halt.ended_at.is_null()).order_by(Halt.halt_id.desc())
        before = self._halts
        self._halts = {(row.organisation_id, row.kind, row.target): _halt(row) for row in rows}
        self.version = version
        _tell_of_lost([halt for scope, halt in before.items() if scope not in self._halts])

    def covering(self, organisation_id: str, agent_id: str, run_id: str) -> dict[str, Any] | None:
        """The halt that stops this run, if any; the widest first, of these the oldest."""
        if not self._halts:
            return None
        for kind, target in (("all", ""), ("agent", agent_id), ("run", run_id)):
            halt = self._halts.get((organisation_id, kind, target))
            if halt is not None:
                return halt
        return None


def _tell_of_lost(gone: list[dict[str, Any]]) -> None:
    """Of halts that cover nothing any more, those that nobody has ended."""
    if not gone:
        return
    rows = Halt.select(Halt.halt_id).where(Halt.halt_id.in_([halt["haltId"] for halt in gone]))
    known = {row.halt_id for row in rows}
    for halt in gone:
        if halt["haltId"] not in known:
            log.error(
                "the database does not know the halt %s of %s by %s, which was in force here, as after an "
                "older copy was put back or took over: it holds nobody any more; halt again what it is for",
                halt["haltId"],
                _scope(halt["scope"], halt.get(f"{halt['scope']}Id")),
                halt["createdBy"],
            )


def _scope(kind: str, target: str | None) -> str:
    """The names of agents and runs are anybody's: they stay on one line."""
    return "all agents" if kind == "all" else f"{kind} {target!a}"


def in_force(organisation_id: str, agent_id: str, run_id: str) -> dict[str, Any] | None:
    """The same by the database as it is now."""
    rows = Halt.select().where(
        (Halt.organisation_id == organisation_id)
        & Halt.ended_at.is_null()
        & (
            (Halt.kind == "all")
            | ((Halt.kind == "agent") & (Halt.target == agent_id))
            | ((Halt.kind == "run") & (Halt.target == run_id))
        )
    )
    found = sorted(rows.order_by(Halt.halt_id), key=lambda row: KINDS.index(row.kind))
    return _halt(found[0]) if found else None


def list_halts(organisation_id: str) -> list[dict[str, Any]]:
    """Those in force, oldest first."""
    query = (
        Halt.select()
        .where((Halt.organisation_id == organisation_id) & Halt.ended_at.is_null())
        .order_by(Halt.halt_id)
    )
    return [_halt(row) for row in query]


def affected_agents(organisation_id: str, kind: str, target: str) -> int:
    """How many agents in a scope have a run that has not ended."""
    own = (Run.organisation_id == organisation_id) & Run.ended_at.is_null()
    if kind != "all":
        own &= (Run.agent_id if kind == "agent" else Run.run_id) == target
    return int(Run.select(fn.COUNT(Run.agent_id.distinct())).where(own).scalar())


def halt(
    transaction: Transaction, organisation_id: str, kind: str, target: str, reason: str, actor: str
) -> dict[str, Any]:
    """Stop all agents, one agent or one run, whatever other halts there are. Raises TooManyHalts, never to
    whoever stops all agents for the first time."""
    mine = (Halt.organisation_id == organisation_id) & Halt.ended_at.is_null()
    if Halt.select().where(mine).count() >= MOST_IN_FORCE:
        if Halt.select().where(mine & (Halt.kind == "all")).exists():
            raise TooManyHalts(f"all agents are halted already, and {MOST_IN_FORCE} halts are in force")
        if kind != "all":
            raise TooManyHalts(
                f"{MOST_IN_FORCE} halts are in force, as many as may be; halt all agents (`{{}}`), or resume"
                " what runs no more"
            )
    row = Halt.create(
        halt_id=transaction.ids("hlt"),
        organisation_id=organisation_id,
        kind=kind,
        target=target,
        reason=reason,
        created_at=transaction.at,
        created_by=actor,
    )
    shape = _halt(row)
    _record(transaction, row, "agent.halted", actor, reason)
    transaction.notify(
        organisation_id,
        "agent.halted",
        {name: value for name, value in shape.items() if value is not None and not name.startswith("ended")},
    )
    return shape


def find(organisation_id: str, halt_id: str) -> dict[str, Any] | None:
    """A halt, in force or ended."""
    row = Halt.get_or_none((Halt.organisation_id == organisation_id) & (Halt.halt_id == halt_id))
    return None if row is None else _halt(row)


def resume(
    transaction: Transaction, organisation_id: str, kind: str, target: str, actor: str, reason: str | None
) -> list[dict[str, Any]]:
    """End the halts of exactly this scope; returns those that ended, oldest first."""
    return _end(transaction, organisation_id, (Halt.kind == kind) & (Halt.target == target), actor, reason)


def resume_one(
    transaction: Transaction, organisation_id: str, halt_id: str, actor: str, reason: str | None
) -> list[dict[str, Any]]:
    """End one halt; returns it, or nothing when it is not in force."""
    return _end(transaction, organisation_id, Halt.halt_id == halt_id, actor, reason)


def _end(
    transaction: Transaction, organisation_id: str, which: Any, actor: str, reason: str | None
) -> list[dict[str, Any]]:
    in_force = (Halt.organisation_id == organisation_id) & Halt.ended_at.is_null()
    rows = list(Halt.select().where(in_force & which).order_by(Halt.halt_id))
    for row in rows:
        row.ended_at, row.ended_by = transaction.at, actor
        row.save()
        _record(transaction, row, "agent.resumed", actor, reason)
    return [_halt(row) for row in rows]


def _record(transaction: Transaction, row: Halt, type: str, actor: str, reason: str | None) -> None:
    transaction.bump("halts")
    transaction.audit(
        row.organisation_id,
        type,
        actor=actor,
        reason=reason,
        agentId=row.target if row.kind == "agent" else None,
        runId=row.target if row.kind == "run" else None,
        details={"haltId": row.halt_id, "scope": row.kind},
    )
    scope = _scope(row.kind, row.target)
    whose = "" if row.organisation_id == DEFAULT else f" of `{row.organisation_id}`"
    done = "halted" if type == "agent.halted" else "resumed"
    transaction.after_commit(
        partial(log.warning, "%s %s %s%s (halt %s)", actor, done, scope, whose, row.halt_id)
    )
    transaction.publish(
        row.organisation_id,
        "halt",
        row.halt_id,
        scope=row.kind,
        target=row.target,
        active=type == "agent.halted",
    )
