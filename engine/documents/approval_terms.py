"""What a policy asks of the approval of the calls that it holds: its JSON, and what several ask together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, cast

from engine.model import REVIEW_ROLES, ApprovalTerms, Json, ReviewRole

TERMS: Final = ("expiresAfterSeconds", "onExpiry", "escalateSeconds", "approvers", "roles", "allowSelf")
"""The keys, in the order in which they are written."""
NOTHING_SAID: Final = ApprovalTerms()
"""What holds where no policy says anything of it."""


def terms_from_json(shape: Mapping[str, Json] | None) -> ApprovalTerms | None:
    """Of the key `approval` of a document, which has the right shape; None where it is not there."""
    if not shape:
        return None
    expires, escalate = shape.get("expiresAfterSeconds"), shape.get("escalateSeconds")
    roles = shape.get("roles", REVIEW_ROLES)
    return ApprovalTerms(
        expires_after_seconds=None if expires is None else int(expires),
        on_expiry=shape.get("onExpiry", "block"),
        escalate_seconds=None if escalate is None else int(escalate),
        approvers=int(shape.get("approvers", 1)),
        roles=tuple(role for role in REVIEW_ROLES if role in roles),
        allow_self=shape.get("allowSelf", False),
    )


def terms_as_json(terms: ApprovalTerms) -> dict[str, Json]:
    """The other way; what says nothing new is left out."""
    own = ApprovalTerms()
    values = (
        terms.expires_after_seconds,
        terms.on_expiry if terms.on_expiry != own.on_expiry else None,
        terms.escalate_seconds,
        terms.approvers if terms.approvers != own.approvers else None,
        list(terms.roles) if terms.roles != own.roles else None,
        terms.allow_self or None,
    )
    shape = {name: value for name, value in zip(TERMS, values, strict=True) if value is not None}
    return shape or {"approvers": own.approvers}


def strictest(asked: Iterable[ApprovalTerms | None]) -> ApprovalTerms:
    """What holds for a call that several policies hold: of each point the strictest that one of them asks.

    Where the roles that they ask for have none in common, admins approve.
    """
    said = list(asked)
    if not any(said):
        return NOTHING_SAID
    every = [terms or NOTHING_SAID for terms in said]
    timed = [terms for terms in every if terms.expires_after_seconds is not None]
    escalates = bool(timed) and all(terms.on_expiry == "escalate" for terms in timed)
    roles = tuple(role for role in REVIEW_ROLES if all(role in terms.roles for terms in every))
    return ApprovalTerms(
        expires_after_seconds=min((cast(int, each.expires_after_seconds) for each in timed), default=None),
        on_expiry="escalate" if escalates else "block",
        escalate_seconds=min(cast(int, each.escalate_seconds) for each in timed) if escalates else None,
        approvers=max((terms.approvers for terms in every), default=1),
        roles=roles or cast(tuple[ReviewRole, ...], ("admin",)),
        allow_self=bool(every) and all(terms.allow_self for terms in every),
    )
