"""Kill switches: every call of all agents, one agent or one run is blocked while one lasts."""

from __future__ import annotations

from typing import Any

from api.database.models import Halt
from api.database.transaction import Transaction

KINDS = ("all", "agent", "run")


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
        self._version = -1
        self._halts: dict[tuple[str, str, str], dict[str, Any]] = {}

    def refresh(self, version: int) -> None:
        if version == self._version:
            return
        rows = Halt.select().where(Halt.ended_at.is_null()).order_by(Halt.halt_id.desc())
        self._halts = {(row.organisation_id, row.kind, row.target): _halt(row) for row in rows}
        self._version = version

    def covering(self, organisation_id: str, agent_id: str, run_id: str) -> dict[str, Any] | None:
        """The halt that stops this run, if any; the widest first."""
        if not self._halts:
            return None
        for kind, target in (("all", ""), ("agent", agent_id), ("run", run_id)):
            halt = self._halts.get((organisation_id, kind, target))
            if halt is not None:
                return halt
        return None


def in_force(organisation_id: str, agent_id: str, run_id: str) -> dict[str, Any] | None:
    """The halt that stops this run now, by the database; the widest first."""
    rows = Halt.select().where(
        (Halt.organisation_id == organisation_id)
        & Halt.ended_at.is_null()
        & (
            (Halt.kind == "all")
            | ((Halt.kind == "agent") & (Halt.target == agent_id))
            | ((Halt.kind == "run") & (Halt.target == run_id))
        )
    )
    found = sorted(rows, key=lambda row: KINDS.index(row.kind))
    return _halt(found[0]) if found else None


def list_halts(organisation_id: str) -> list[dict[str, Any]]:
    """Those in force, oldest first."""
    query = (
        Halt.select()
        .where((Halt.organisation_id == organisation_id) & Halt.ended_at.is_null())
        .order_by(Halt.halt_id)
    )
    return [_halt(row) for row in query]


def halt(
    transaction: Transaction, organisation_id: str, kind: str, target: str, reason: str, actor: str
) -> dict[str, Any]:
    """Stop all agents, one agent or one run. Halting what is halted already returns the halt in force."""
    row = Halt.get_or_none(
        (Halt.organisation_id == organisation_id)
        & (Halt.kind == kind)
        & (Halt.target == target)
        & Halt.ended_at.is_null()
    )
    if row is not None:
        return _halt(row)
    row = Halt.create(
        halt_id=transaction.ids("hlt"),
        organisation_id=organisation_id,
        kind=kind,
        target=target,
        reason=reason,
        created_at=transaction.at,
        created_by=actor,
    )
    transaction.bump("halts")
    shape = _halt(row)
    transaction.audit(
        organisation_id,
        "agent.halted",
        actor=actor,
        reason=reason,
        agentId=target if kind == "agent" else None,
        runId=target if kind == "run" else None,
        details={"haltId": row.halt_id, "scope": kind},
    )
    transaction.notify(
        organisation_id,
        "agent.halted",
        {name: value for name, value in shape.items() if value is not None and not name.startswith("ended")},
    )
    transaction.publish(organisation_id, "halt", row.halt_id, scope=kind, target=target, active=True)
    return shape


def resume(
    transaction: Transaction, organisation_id: str, kind: str, target: str, actor: str
) -> list[dict[str, Any]]:
    """End the halts of exactly this scope; returns those that ended."""
    rows = list(
        Halt.select().where(
            (Halt.organisation_id == organisation_id)
            & (Halt.kind == kind)
            & (Halt.target == target)
            & Halt.ended_at.is_null()
        )
    )
    for row in rows:
        row.ended_at, row.ended_by = transaction.at, actor
        row.save()
        transaction.audit(
            organisation_id,
            "agent.resumed",
            actor=actor,
            agentId=target if kind == "agent" else None,
            runId=target if kind == "run" else None,
            details={"haltId": row.halt_id, "scope": kind},
        )
        transaction.publish(organisation_id, "halt", row.halt_id, scope=kind, target=target, active=False)
    if rows:
        transaction.bump("halts")
    return [_halt(row) for row in rows]
