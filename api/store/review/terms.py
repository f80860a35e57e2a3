"""Who may approve a held call, and how many must: the terms that its policies set, held against who asks.

INVARIANT: whoever asked for a call - the user whom its API key is bound to, or anybody whom its token named,
be it as who acts for another - does not approve it unless every policy that holds it says so. Anybody who
reviews may reject: that only makes stricter.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import msgspec

from api.caller import Caller
from api.database.models import ApiKey, Approval, CallTable, Event, User
from api.store.call_facts import DIGEST, acting
from api.store.emails import same_email, same_names
from engine.canonical_json import canonical_json
from engine.documents.approval_terms import NOTHING_SAID, terms_as_json, terms_from_json
from engine.model import ApprovalTerms

_decode = msgspec.json.decode
_ESCALATED = ("admin",)


@dataclass(frozen=True, slots=True)
class HeldCall:
    """What of a call counts when its approval is resolved. `asked_by` holds every name by which the service
    knows who asked for it: the user whom its API key is bound to, and everybody whom its token named."""

    digest: str
    asked_by: frozenset[str]
    is_kept: bool
    """Its payload can still be seen."""


def digest_of_shown(policy_id: str, policy_name: str, about: str | None, asked_by: str | None) -> str:
    """Of what an approval's row tells reviewers beside the call, so that nobody can exchange it."""
    return sha256(canonical_json([policy_id, policy_name, about, asked_by])).hexdigest()


def kept_terms(terms: ApprovalTerms) -> str | None:
    """How an approval's row keeps what its policies ask; None: nothing out of the ordinary. When it expires
    has a column of its own."""
    if terms == NOTHING_SAID:
        return None
    shape = {name: value for name, value in terms_as_json(terms).items() if name != "expiresAfterSeconds"}
    return msgspec.json.encode(shape).decode() if terms_from_json(shape) not in (None, NOTHING_SAID) else None


def terms_of(row: Approval) -> ApprovalTerms:
    return NOTHING_SAID if row.terms is None else terms_from_json(_decode(row.terms)) or NOTHING_SAID


def roles_of(row: Approval) -> tuple[str, ...]:
    """The roles whose approval counts now."""
    return terms_of(row).roles if row.escalated_at is None else _ESCALATED


def steps_of(row: Approval) -> list[dict[str, Any]]:
    """Who has approved so far, oldest first, where more than one must: `{userId, actor, resolvedBy,
    approvedAt, reason}`."""
    return [] if row.given is None else list(_decode(row.given))


def steps_that_count(row: Approval) -> list[dict[str, Any]]:
    """Those of people who may still log in, in a role whose approval counts: whose rights were taken
    meanwhile has approved nothing. Of one that is no longer pending, all."""
    steps = steps_of(row)
    if not steps or row.status != "pending":
        return steps
    roles = {*terms_of(row).roles, *roles_of(row)}
    able = User.select(User.user_id).where(
        User.user_id.in_([step["userId"] for step in steps]) & User.enabled & User.role.in_(sorted(roles))
    )
    known = {user.user_id for user in able}
    return [step for step in steps if step["userId"] in known]


def terms_shape(row: Approval) -> dict[str, Any]:
    """The same as people read it."""
    shown = ("actor", "resolvedBy", "approvedAt", "reason")
    return {
        "payloadDigest": row.payload_digest,
        "approvers": terms_of(row).approvers,
        "roles": list(roles_of(row)),
        "approvedBy": [{name: step[name] for name in shown} for step in steps_that_count(row)],
        "onExpiry": "block" if row.escalated_at else terms_of(row).on_expiry,
        "escalatedAt": row.escalated_at,
    }


def held_call(row: Approval) -> HeldCall | None:
    """The call that an approval is about; None: somebody has deleted it."""
    call = CallTable.get_or_none(CallTable.call_no == row.call_no)
    if call is None:
        return None
    facts = _decode(call.facts)
    key = ApiKey.get_or_none(ApiKey.key_id == facts["key"]["id"]) if "key" in facts else None
    names = (None if key is None else key.user_id, *acting(facts))
    known = frozenset(same_email(name) for name in names if isinstance(name, str))
    event = (Event.event_no == call.event_no) & (Event.received_at == call.decided_at)
    return HeldCall(call.payload_digest[:DIGEST], known, Event.select().where(event).exists())


def why_not(
    caller: Caller, row: Approval, call: HeldCall | None, resolved_by: str | None = None
) -> str | None:
    """Why this person may not approve, or not for whom they say that they do, or None."""
    roles = roles_of(row)
    if caller.role not in roles:
        since = "" if row.escalated_at is None else " since it has escalated"
        return f"the approval of this call needs the role {' or '.join(roles)}{since}; you are {caller.role}"
    if call is None:
        return "the held call is not in the database any more"
    if not call.is_kept:
        return (
            "the payload of this call is not kept any more (GOVERNANCE_EVENT_DAYS), so nobody can see what"
            " they would approve; reject it, and have the agent ask anew"
        )
    # A key names its user as the organisation likes: by their id here, or by their e-mail.
    if terms_of(row).allow_self:
        return None
    if same_names(caller.user_id, caller.email) & call.asked_by:
        return "you asked for this call, by your API key or your token; somebody else must approve it"
    if resolved_by and _names_of(row.organisation_id, resolved_by) & call.asked_by:
        return "`resolvedBy` names who asked for this call; somebody else must approve it"
    return None


def _names_of(organisation_id: str, name: str) -> frozenset[str]:
    """A name, and by which others the user has it: the id, or the e-mail."""
    found = (User.user_id == name) | (User.email == same_email(name))
    user = User.get_or_none(found & (User.organisation_id == organisation_id))
    return same_names(name) if user is None else same_names(name, user.user_id, user.email)
