"""Definitions of tools that an admin has admitted: what a server said of each, by the digest of all of it.

A definition is known by organisation, server and name. INVARIANT: it changes by an admin's admission alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from api.database.models import ToolDefinition
from api.database.transaction import Transaction

SHOWN: Final = ("title", "description", "annotations")
"""What is kept of a definition beside its digest, for who compares."""

_FORGET: Final = "DELETE FROM tool_definitions WHERE organisation_id = ? AND server = ? AND tool_name = ?"

Proposed = dict[str, Any]
"""A tool as it was proposed: `name`, `definition`, and of `SHOWN` what there is."""


def admitted(organisation_id: str, server: str) -> dict[str, Proposed]:
    """Name to what was admitted, with `admittedAt` and `admittedBy`."""
    rows = ToolDefinition.select().where(
        (ToolDefinition.organisation_id == organisation_id) & (ToolDefinition.server == server)
    )
    return {
        row.tool_name: {
            "definition": row.definition,
            **msgspec.json.decode(row.shown),
            "admittedAt": row.admitted_at,
            "admittedBy": row.admitted_by,
        }
        for row in rows
    }


def state(tool: Proposed, known: Mapping[str, Proposed]) -> str:
    """`admitted`, `changed` since it was, or `new`."""
    before = known.get(tool["name"])
    if before is None:
        return "new"
    return "admitted" if before["definition"] == tool["definition"] else "changed"


def admit(
    transaction: Transaction, organisation_id: str, server: str, tools: Iterable[Proposed], actor: str
) -> None:
    """From now on these definitions are the admitted ones."""
    for tool in tools:
        transaction.store.rows_changed(_FORGET, (organisation_id, server, tool["name"]))
        ToolDefinition.create(
            organisation_id=organisation_id,
            server=server,
            tool_name=tool["name"],
            definition=tool["definition"],
            shown=msgspec.json.encode({name: tool[name] for name in SHOWN if name in tool}).decode(),
            admitted_at=transaction.at,
            admitted_by=actor,
        )
