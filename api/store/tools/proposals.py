"""Proposed tools: what the holder of an API key says of the tools of a server, for an admin to look at.

Nothing here decides a call. A key has one proposal for each server, which it tells anew as often as it likes;
what it tells twice changes nothing. INVARIANT: what an admin admits is what they have read: the digest is
that of the tools, and another one is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec

from api.caller import Caller
from api.database.models import ToolProposal
from api.database.table import page_of
from api.database.transaction import Transaction
from api.store.tools.admitted import Proposed, admit, admitted, state
from engine.canonical_json import canonical_json

STATUSES: Final = ("pending", "admitted", "dismissed")
MOST_OF_A_KEY: Final = 20
"""Servers that one key may tell of. The oldest proposal that nobody needs to look at makes room."""
MOST_NAMED: Final = 50
"""Tools that a record names."""

Position = tuple[str, str]
"""Where a page ends: `createdAt` and `proposalId` of its last proposal."""


class TooManyProposals(Exception):
    """A key has told of more servers than it may, and an admin has looked at none."""

    code = "conflict"


class ProposalChanged(Exception):
    """It is not what the admin has read."""

    code = "precondition_failed"


# Reading ------------------------------------------------------------------------------------------


def list_proposals(
    caller: Caller, server: str | None, status: str | None, limit: int, before: Position | None
) -> tuple[list[dict[str, Any]], int, Position | None]:
    """One page, newest first, without the tools; how many there are in all; where the next page begins."""
    chosen = _own(caller)
    if server is not None:
        chosen &= ToolProposal.server == server
    if status is not None:
        chosen &= ToolProposal.status == status
    keys = (ToolProposal.created_at, ToolProposal.proposal_id)
    rows, total, position = page_of(ToolProposal.select().where(chosen), keys, limit, before)
    return [_summary(row) for row in rows], total, position


def find_proposal(caller: Caller, proposal_id: str) -> dict[str, Any] | None:
    """The proposal with its tools, each with its `state`, and what was admitted before where that differs;
    None when the caller may not know of it."""
    row = ToolProposal.get_or_none(_own(caller) & (ToolProposal.proposal_id == proposal_id))
    if row is None:
        return None
    known = admitted(row.organisation_id, row.server)
    tools = []
    for tool in _tools(row):
        shown = tool | {"state": state(tool, known)}
        if shown["state"] == "changed":
            shown["admitted"] = known[tool["name"]]
        tools.append(shown)
    return _summary(row) | {"tools": tools}


def _own(caller: Caller) -> Any:
    """People see those of their organisation, an API key those that it made."""
    chosen = ToolProposal.organisation_id == caller.organisation_id
    return chosen if caller.kind != "key" else chosen & (ToolProposal.key_id == caller.key_id)


def _tools(row: ToolProposal) -> list[Proposed]:
    found: list[Proposed] = msgspec.json.decode(row.tools)
    return found


def _summary(row: ToolProposal) -> dict[str, Any]:
    known = admitted(row.organisation_id, row.server)
    counts = {"admitted": 0, "changed": 0, "new": 0}
    for tool in _tools(row):
        counts[state(tool, known)] += 1
    return {
        "proposalId": row.proposal_id,
        "server": row.server,
        "keyId": row.key_id,
        "status": row.status,
        "digest": row.digest,
        "counts": counts,
        "createdAt": row.created_at,
        "updatedAt": row.updated_at,
        "resolvedAt": row.resolved_at,
        "resolvedBy": row.resolved_by,
    }


# Changing -----------------------------------------------------------------------------------------


class ProposedTools(msgspec.Struct, frozen=True):
    """What a key says of the tools of a server; `text` is all of it, with its digest."""

    server: str
    tools: Sequence[Proposed]
    text: str
    digest: str

    @classmethod
    def of(cls, server: str, tools: Sequence[Proposed]) -> ProposedTools:
        text = canonical_json(sorted(tools, key=lambda tool: tool["name"]))
        return cls(server, tools, text.decode(), sha256(text).hexdigest())


def find_same(caller: Caller, told: ProposedTools) -> str | None:
    """The `proposalId` of what a key has told already."""
    row = _told_before(caller, told.server)
    return str(row.proposal_id) if row is not None and row.digest == told.digest else None


def _told_before(caller: Caller, server: str) -> ToolProposal | None:
    """What a key says of a server so far, without the tools, which may be large."""
    found = ToolProposal.select(ToolProposal.proposal_id, ToolProposal.digest)
    row: ToolProposal | None = found.where(_own(caller) & (ToolProposal.server == server)).first()
    return row


def propose(transaction: Transaction, caller: Caller, told: ProposedTools) -> str:
    """What a key says of a server's tools now; returns the `proposalId`. Raises TooManyProposals."""
    server, tools, digest = told.server, told.tools, told.digest
    row = _told_before(caller, server)
    if row is not None and row.digest == digest:
        return str(row.proposal_id)
    known = admitted(caller.organisation_id, server)
    all_known = all(state(tool, known) == "admitted" for tool in tools)
    now = {
        "tools": told.text,
        "digest": digest,
        "status": "admitted" if all_known else "pending",
        "updated_at": transaction.at,
        "resolved_at": None,
        "resolved_by": None,
    }
    if row is None:
        _make_room(caller)
        row = ToolProposal.create(
            proposal_id=transaction.ids("tpr"),
            organisation_id=caller.organisation_id,
            key_id=caller.key_id,
            server=server,
            created_at=transaction.at,
            **now,
        )
    else:
        ToolProposal.update(**now).where(ToolProposal.proposal_id == row.proposal_id).execute()
    _record(transaction, "tools.proposed", caller, row.proposal_id, server, digest, tools)
    return str(row.proposal_id)


def _make_room(caller: Caller) -> None:
    told = ToolProposal.select(ToolProposal.proposal_id, ToolProposal.status)
    rows = list(told.where(_own(caller)).order_by(ToolProposal.updated_at))
    if len(rows) < MOST_OF_A_KEY:
        return
    done = next((row for row in rows if row.status != "pending"), None)
    if done is None:
        raise TooManyProposals(
            f"this API key has told of {MOST_OF_A_KEY} servers that no admin has looked at yet; ask one"
            " to admit or dismiss them"
        )
    done.delete_instance()


def read_proposal(caller: Caller, proposal_id: str, digest: str) -> tuple[str, list[Proposed]] | None:
    """Server and tools of a proposal that an admin has read; None when there is none. Raises
    ProposalChanged."""
    row = ToolProposal.get_or_none(_own(caller) & (ToolProposal.proposal_id == proposal_id))
    if row is None:
        return None
    if row.digest != digest:
        raise ProposalChanged(
            f"the proposal `{proposal_id}` changed since you read it; read it again, and send its `digest`"
        )
    return row.server, _tools(row)


def admit_proposal(
    transaction: Transaction, caller: Caller, proposal_id: str, digest: str, names: Sequence[str]
) -> bool:
    """Admit these tools of it; False when it is gone. Raises ProposalChanged."""
    found = read_proposal(caller, proposal_id, digest)
    if found is None:
        return False
    server, tools = found
    chosen = [tool for tool in tools if tool["name"] in names]
    admit(transaction, caller.organisation_id, server, chosen, caller.actor)
    known = admitted(caller.organisation_id, server)
    rest = [tool for tool in tools if state(tool, known) != "admitted"]
    _resolve(transaction, proposal_id, "pending" if rest else "admitted", caller)
    for start in range(0, len(chosen), MOST_NAMED):  # so that the log names all that is admitted
        part = chosen[start : start + MOST_NAMED]
        _record(transaction, "tools.admitted", caller, proposal_id, server, digest, part)
    return True


def dismiss_proposal(transaction: Transaction, caller: Caller, proposal_id: str) -> bool:
    """Nobody needs to look at it any more, until it changes; False when there is none."""
    row = ToolProposal.get_or_none(_own(caller) & (ToolProposal.proposal_id == proposal_id))
    if row is None:
        return False
    if row.status == "pending":
        _resolve(transaction, proposal_id, "dismissed", caller)
        _record(transaction, "tools.dismissed", caller, proposal_id, row.server, row.digest, _tools(row))
    return True


def _resolve(transaction: Transaction, proposal_id: str, status: str, caller: Caller) -> None:
    ToolProposal.update(status=status, resolved_at=transaction.at, resolved_by=caller.actor).where(
        ToolProposal.proposal_id == proposal_id
    ).execute()


def _record(
    transaction: Transaction,
    type: str,
    caller: Caller,
    proposal_id: str,
    server: str,
    digest: str,
    tools: Sequence[Proposed],
) -> None:
    named = {tool["name"]: tool["definition"] for tool in tools[:MOST_NAMED]}
    details = {"proposalId": proposal_id, "server": server, "digest": digest, "count": len(tools)}
    transaction.audit(
        caller.organisation_id, type, actor=caller.actor, details=details | {"definitions": named}
    )
