"""The bytes of a policy's file: of a new policy, and of one whose members are changed.

Only the spans of changed members are replaced, so that comments and order stay. It must not know where files
lie, nor versions beyond the number that it is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engine.documents.document import API_VERSION
from engine.documents.edit import dump, edit, same
from engine.documents.policy import policy_as_json, policy_from_json
from engine.errors import DocumentError, Problem
from engine.model import Json, Policy

REMOVABLE: Final = frozenset(
    {"description", "message", "presetId", "presetParameters", "scope", "mode", "rateLimit", "approval"}
    | {"failurePolicy", "on", "labels", "after", "examples"}
)
"""Members that an API change removes by sending null."""


def created(policy_id: str, version: int, body: Mapping[str, Json]) -> bytes:
    """The file of a new policy, from the shape of the API."""
    document = {"apiVersion": API_VERSION, "kind": "Policy", "policyId": policy_id, "version": version}
    members = {key: value for key, value in body.items() if key != "policyId" and value is not None}
    return dump(document | {"enabled": True} | members).encode()


def changed(source: bytes, policy: Policy, version: int, changes: Mapping[str, Json]) -> bytes | None:
    """The file with the sent members set, null removing, as that version; None where nothing changes.

    Raises DocumentError.
    """
    if changes.get("policyId", policy.policy_id) != policy.policy_id:
        message = "`policyId` cannot be changed; create a new policy and delete this one"
        raise DocumentError([Problem(message, "/policyId", "read_only")])
    old = policy_as_json(policy)
    old.pop("version", None)
    removed = [key for key, value in changes.items() if value is None and key in REMOVABLE]
    merged = {key: value for key, value in (old | dict(changes)).items() if key not in removed}
    new = policy_as_json(
        policy_from_json(merged, policy_id=policy.policy_id, organisation_id=policy.organisation_id)
    )
    sent = {
        key: value
        for key, value in changes.items()
        if key not in removed and key != "policyId" and not same(old.get(key), new.get(key))
    }
    removed = [key for key in removed if not same(old.get(key), new.get(key))]
    return edit(source, sent | {"version": version}, removed) if sent or removed else None
