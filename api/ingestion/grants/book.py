"""The grants that may cover a call, in memory; read again whenever the `grants` counter has moved.

A grant is made and revoked by a transaction that moves the counter, so the book is what the database says;
how often a grant was used, and what time it is, the transaction that decides knows.
"""

from __future__ import annotations

from collections import defaultdict
from hashlib import sha256

import msgspec

from api.clock import APART_SECONDS, iso, seconds
from api.database.models import Grant
from api.store.call_facts import parts_of_granted
from api.store.emails import same_names

_decode = msgspec.json.decode


class ActiveGrant(msgspec.Struct, frozen=True):
    """What deciding needs of a grant. `policies` are those that it covers: id and version."""

    grant_id: str
    scope: str
    run_id: str
    agent_id: str
    key_id: str
    policies: frozenset[tuple[str, int]]
    labels: frozenset[str]
    said: str
    """What a call says beside its digest, see `said_of_evaluation`."""
    calls: int
    created_by: str
    made_by: frozenset[str]
    """Every name by which the service knows who made it."""
    begins_at: str
    """When it was made, less by how much the clocks of nodes may be apart. Before that it was made while a
    clock was ahead, and would last longer than whoever made it meant."""
    expires_at: str

    def lasts(self, at: str) -> bool:
        return self.begins_at <= at < self.expires_at

    @property
    def bucket(self) -> str:
        """What its uses are counted under, like rate limits (see `lanes/guards.py`)."""
        return sha256(self.grant_id.encode()).hexdigest()


class _Known(msgspec.Struct, frozen=True):
    """What the database said when the counter was at `version`."""

    version: int = -1
    calls: dict[tuple[str, str], list[ActiveGrant]] = {}
    """By organisation and digest of the call."""
    labels: dict[tuple[str, str], list[ActiveGrant]] = {}
    """By organisation and run."""


class GrantBook:
    """See the module. INVARIANT: a grant is of use to the API key of its run alone."""

    def __init__(self) -> None:
        self._known = _Known()

    @property
    def version(self) -> int:
        return self._known.version

    def refresh(self, version: int, at: str) -> None:
        if version == self._known.version:
            return
        calls: defaultdict[tuple[str, str], list[ActiveGrant]] = defaultdict(list)
        labels: defaultdict[tuple[str, str], list[ActiveGrant]] = defaultdict(list)
        rows = Grant.select().where(Grant.revoked_at.is_null() & (Grant.expires_at > at))
        for row in rows.order_by(Grant.expires_at, Grant.grant_id):
            if row.payload_digest is not None:
                digest, said = parts_of_granted(row.payload_digest)
                calls[(row.organisation_id, digest)].append(_active(row, said))
            else:
                labels[(row.organisation_id, row.run_id)].append(_active(row, ""))
        self._known = _Known(version, dict(calls), dict(labels))

    def __bool__(self) -> bool:
        return bool(self._known.calls or self._known.labels)

    def of_call(
        self, organisation_id: str, digest: str, run_id: str, agent_id: str, key_id: str
    ) -> list[ActiveGrant]:
        """Those for such a call in this run, whatever `said`; the one that ends first before the others."""
        return [
            grant
            for grant in self._known.calls.get((organisation_id, digest), ())
            if (grant.agent_id, grant.key_id) == (agent_id, key_id)
            and (grant.scope == "agent" or grant.run_id == run_id)
        ]

    def of_run(self, organisation_id: str, run_id: str, key_id: str, at: str) -> list[ActiveGrant]:
        """Those that exempt this run from labels."""
        found = self._known.labels.get((organisation_id, run_id), ())
        return [grant for grant in found if grant.key_id == key_id and grant.lasts(at)]

    def forget(self, organisation_id: str, digest: str, gone: ActiveGrant) -> None:
        """It is used up or expired, which no grant comes back from."""
        # Of one reading: another thread may read anew meanwhile.
        calls = self._known.calls
        if left := [grant for grant in calls.get((organisation_id, digest), ()) if grant is not gone]:
            calls[(organisation_id, digest)] = left
        else:
            calls.pop((organisation_id, digest), None)


def _active(row: Grant, said: str) -> ActiveGrant:
    return ActiveGrant(
        row.grant_id,
        row.scope,
        row.run_id,
        row.agent_id,
        row.key_id,
        frozenset((policy["policyId"], policy["version"]) for policy in _decode(row.policies)),
        frozenset(_decode(row.labels)),
        said,
        row.calls or 0,
        row.created_by,
        same_names(row.created_by, row.creator_id),
        iso(seconds(row.created_at) - APART_SECONDS),
        row.expires_at,
    )
