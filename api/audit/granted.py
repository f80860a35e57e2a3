"""What the log and the tables say of grants, in one shape for both, so that they can be compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from api.database.connection import Database
from api.database.models import Grant
from api.store.grants.granting import terms_of
from engine.canonical_json import canonical_json

GRANT: Final = "grant"
USES: Final = "number of calls of grant"

_USES: Final = (
    "SELECT u.grant_id, COUNT(*) FROM grant_uses u JOIN grants g ON g.grant_id = u.grant_id"
    " WHERE g.organisation_id = ? GROUP BY u.grant_id"
)
_OF_THE_RECORD: Final = ("runId", "agentId", "toolName")


def of_tables(store: Database, organisation_id: str) -> dict[tuple[str, str], tuple[Any, ...]]:
    """Of each grant its terms and whether it was revoked, and how many calls were decided by it."""
    found: dict[tuple[str, str], tuple[Any, ...]] = {}
    for row in Grant.select().where(Grant.organisation_id == organisation_id):
        place = {"runId": row.run_id, "agentId": row.agent_id, "toolName": row.tool_name}
        try:
            terms = terms_of(row)
        except msgspec.DecodeError:  # somebody has written it by hand
            terms = {"policies": row.policies, "labels": row.labels, "expiresAt": row.expires_at}
        found[(GRANT, row.grant_id)] = _said(terms, place, row.revoked_at is not None)
    for grant_id, count in store.rows(_USES, (organisation_id,)):
        found[(USES, grant_id)] = (int(count),)
    return found


def of_record(record: Mapping[str, Any]) -> tuple[Any, ...]:
    """The same of the record of a grant that was made or revoked."""
    place = {name: record.get(name) for name in _OF_THE_RECORD}
    return _said(record["details"], place, record["type"] == "grant.revoked")


def _said(terms: Mapping[str, Any], place: Mapping[str, Any], revoked: bool) -> tuple[Any, ...]:
    whole = canonical_json([terms, {name: place[name] for name in _OF_THE_RECORD}]).decode()
    return (terms.get("calls"), terms["expiresAt"], "revoked" if revoked else "not revoked", whole)
