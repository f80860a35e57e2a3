"""Policies: list, read, write, history. Every write goes through the repository, which owns the files."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from api.caller import Caller
from api.context import Context
from api.http import bodies
from api.http.exchange import Reply, Values, decode_cursor, page
from api.http.problems import ApiError, need, not_found, problem_json
from api.http.route import ADMIN, VIEWER, Query, Route, page_query
from api.policies.warnings import accept_replaced as accept
from api.policies.warnings import replaced
from engine.conditions.settings import missing, reads
from engine.documents.policy import body_problems, change_problems, policy_as_json
from engine.model import STRENGTH, OrganisationSettings, Policy
from engine.repository.archive import VersionRecord
from engine.repository.snapshot import Snapshot, Stored
from engine.worktree.paths import DEFAULT

_TAG = re.compile(r'(?:W/)?"([^",]+?)(?:-(?:br|deflate|gzip|zstd))?"')
"""As it was sent, or as proxies change the tag of what they compress on its way: they make it weak, or say
how. What it stands for is one version, whatever the bytes were."""
_DOCUMENT_ID = re.compile(r"[a-z0-9]([a-z0-9._-]{0,98}[a-z0-9])?")


def policy_json(stored: Stored, snapshot: Snapshot) -> dict[str, Any]:
    """The contract's shape of a policy in force, and the settings without which it is inactive."""
    shape = policy_as_json(stored.policy) | {
        "version": stored.file.version,
        "createdAt": stored.file.created_at,
        "updatedAt": stored.file.updated_at,
    }
    lacking = missing(reads(stored.policy), snapshot.settings_of(stored.policy.organisation_id))
    return shape | {"missingSettings": list(lacking)} if lacking else shape


def _reply(stored: Stored, snapshot: Snapshot, status: int = 200) -> Reply:
    headers = {"ETag": f'"{stored.etag}"'}
    if status == 201:
        headers["Location"] = f"/v1/policies/{stored.policy.policy_id}"
    return Reply(policy_json(stored, snapshot), status, headers)


def if_match(values: Values) -> str | None:
    """The entity tag that the caller wants to change; None: whatever is there."""
    sent = values.headers.get("if-match")
    if sent is None or sent.strip() == "*":
        return None
    tag = _TAG.fullmatch(sent.strip())
    if tag is None:
        raise ApiError(
            "precondition_failed", "`If-Match` must be the one `ETag` of the policy as you read it, or `*`"
        )
    return tag[1]


def own(caller: Caller, values: Values, what: str = "policy") -> tuple[str, str]:
    """Which document the path is about. What none can be called is not looked for among files."""
    document_id = values.path["id"]
    if not _DOCUMENT_ID.fullmatch(document_id):
        raise not_found(what, document_id)
    return caller.organisation_id, document_id


def writer(caller: Caller, values: Values) -> dict[str, Any]:
    """Who writes, and which state of the policy is meant."""
    return {"author": caller.actor, "if_match": if_match(values)}


async def list_policies(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/policies: by name, then id."""
    snapshot = await context.newest()
    # Thousands of policies are sorted and written out on a thread, so that no event waits for a list.
    return await context.reads.read(caller, _page, snapshot, caller.organisation_id, values)


def _page(snapshot: Snapshot, organisation_id: str, values: Values) -> Reply:
    query = values.query
    settings = snapshot.settings_of(organisation_id)
    found = (each for each in snapshot.of(organisation_id).values() if _asked_for(each, query, settings))
    ordered = sorted(found, key=lambda stored: (stored.policy.name, stored.policy.policy_id))
    after = decode_cursor(values, tuple[str, str])
    rest = [s for s in ordered if after is None or (s.policy.name, s.policy.policy_id) > after]
    shown = rest[: query["limit"]]
    more = len(rest) > len(shown)
    last = shown[-1].policy if more else None
    position = (last.name, last.policy_id) if last else None
    reply = page([policy_json(stored, snapshot) for stored in shown], len(ordered), position, values)
    return replace(reply, body=msgspec.json.encode(reply.body))


def _asked_for(stored: Stored, query: Mapping[str, Any], settings: OrganisationSettings) -> bool:
    """Whether a policy is one of those that the query is about."""
    policy = stored.policy
    sought = query.get("search", "").casefold()
    texts = (policy.name, policy.policy_id, policy.description or "")
    return (
        query.get("action", policy.action) == policy.action
        and query.get("presetId", policy.preset_id) == policy.preset_id
        and any(sought in text.casefold() for text in texts)
        and ("status" not in query or query["status"] == _status(policy, settings))
    )


def _status(policy: Policy, settings: OrganisationSettings) -> str:
    if not policy.enabled:
        return "disabled"
    if missing(reads(policy), settings):
        return "waiting"
    return "shadow" if policy.mode == "shadow" else "enforced"


async def get_policy(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/policies/:id."""
    snapshot = await context.newest()
    return _reply(_stored(caller, values, snapshot), snapshot)


def _stored(caller: Caller, values: Values, snapshot: Snapshot) -> Stored:
    organisation_id, policy_id = own(caller, values)
    return need(snapshot.of(organisation_id).get(policy_id), "policy", policy_id)


async def list_policy_versions(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/policies/:id/versions: newest first; stays readable after deletion."""
    organisation_id, policy_id = own(caller, values)

    def written() -> bytes:
        versions = context.live.repository.versions(organisation_id, policy_id)
        entries = [_version(each) for each in versions if each.archived_at is not None]
        newest = versions[0]
        return msgspec.json.encode(
            {
                "policyId": policy_id,
                "currentVersion": newest.version,
                "currentCreatedBy": newest.created_by,
                "versions": entries,
            }
        )

    return Reply(await context.reads.read(caller, written))


def _version(version: VersionRecord) -> dict[str, Any]:
    return {
        **{name: value for name, value in version.state.items() if name in _VERSION_FIELDS},
        "version": version.version,
        "archivedAt": version.archived_at,
        "archivedBy": version.archived_by,
        "source": version.source,
        "createdAt": version.created_at,
        "createdBy": version.created_by,
        "digest": version.digest,
        "state": version.state,
    }


_VERSION_FIELDS = frozenset({"name", "description", "action", "matchConditions", "enabled"})


async def create_policy(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/policies."""
    body = await _sent(values, context, "policy-create", body_problems)
    author, organisation_id = caller.actor, caller.organisation_id
    stored = await context.write_policies(
        lambda policies: policies.create(body, author=author, organisation_id=organisation_id)
    )
    return _reply(stored, context.live.snapshot, 201)


async def _sent(values: Values, context: Context, schema: str, also: bodies.Also) -> Any:
    """The body, read beside the event loop; one that an earlier version kept for a change is read already."""
    if not isinstance(values.body, bytes):
        return values.body
    async with context.writes.place(context.caller.holder):
        return await asyncio.to_thread(bodies.read, schema, values.body, also)


async def update_policy(caller: Caller, values: Values, context: Context) -> Reply:
    """PATCH /v1/policies/:id: only what is sent is changed; null removes an optional field."""
    body = await _sent(values, context, "policy-update", change_problems)
    stored = await context.write_policies(
        lambda policies: policies.update(*own(caller, values), body, **writer(caller, values))
    )
    return _reply(stored, context.live.snapshot)


async def delete_policy(caller: Caller, values: Values, context: Context) -> Reply:
    """DELETE /v1/policies/:id; its versions stay readable."""
    await context.write_policies(
        lambda policies: policies.delete(*own(caller, values), **writer(caller, values))
    )
    return Reply(status=204)


async def rollback_policy(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/policies/:id/rollback: an old state becomes the newest version."""
    stored = await context.write_policies(
        lambda policies: policies.rollback(
            *own(caller, values), values.body["version"], **writer(caller, values)
        )
    )
    return _reply(stored, context.live.snapshot)


async def get_preset_upgrade(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/policies/:id/preset-upgrade: what the policy's preset has that the policy has not."""
    offer = await context.reads.read(caller, context.live.repository.preset_upgrade, *own(caller, values))
    upgrade = offer.upgrade
    shape = {
        "available": upgrade.available,
        "presetId": upgrade.preset_id,
        "changes": [
            {"member": each.member, "from": each.before, "to": each.after} for each in upgrade.changes
        ],
        "kept": [
            {"member": each.member, "yours": each.yours, "preset": each.preset} for each in upgrade.kept
        ],
        "errors": [problem_json(problem) for problem in upgrade.problems],
    }
    return Reply(shape, headers={"ETag": f'"{offer.etag}"'})


async def upgrade_policy(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/policies/:id/preset-upgrade: exactly what the GET shows, as a new version."""
    stored = await context.write_policies(
        lambda policies: policies.upgrade(*own(caller, values), **writer(caller, values))
    )
    return _reply(stored, context.live.snapshot)


async def accept_replaced(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/policies/accept-replaced: what `/health` tells of files that gave way is told no longer."""
    if caller.organisation_id != DEFAULT:
        raise ApiError("conflict", f"the files are the installation's; ask an admin of `{DEFAULT}`")
    files = await context.store.read(replaced, context.live)
    if files:
        await context.write(lambda transaction: accept(transaction, caller, files))
    return Reply({"accepted": files})


ROUTES = (
    Route(
        "GET",
        "/v1/policies",
        VIEWER,
        list_policies,
        "The policies, by name",
        "policies",
        reply="policy",
        reply_is_array=True,
        query=(
            Query(
                "search",
                {"type": "string", "minLength": 1, "maxLength": 200},
                "Only those that have the text in `name`, `policyId` or `description`, in either case.",
            ),
            Query("presetId", {"type": "string", "minLength": 1, "maxLength": 100}, "Those made from it."),
            Query("action", {"type": "string", "enum": list(STRENGTH)}, "Only those that do this."),
            Query(
                "status",
                {"type": "string", "enum": ["enforced", "shadow", "disabled", "waiting"]},
                "Only those; `waiting` are those with `missingSettings`.",
            ),
            *page_query(1000, 10000),
        ),
    ),
    Route(
        "POST",
        "/v1/policies",
        ADMIN,
        create_policy,
        "Create a policy",
        "policies",
        status=201,
        body="policy-create",
        body_as_sent=True,
        reply="policy",
        errors=("policy_exists", "policy_file_invalid", "conflict"),
        headers=("ETag", "Location"),
        description="In force when this is answered. `examples` that do not hold are refused.",
        second_admin=True,
    ),
    Route(
        "POST",
        "/v1/policies/accept-replaced",
        ADMIN,
        accept_replaced,
        "Accept that files gave way to what is in force",
        "policies",
        reply="replaced-accepted",
        errors=("conflict",),
        description="Where a policies folder was put back from another time, files that are older than what "
        "is in force give way to it; `/health` names them under `policies.warnings` until an admin of the "
        "organisation `default` accepts that, or they are changed. Answers which they were.",
    ),
    Route(
        "GET",
        "/v1/policies/:id",
        VIEWER,
        get_policy,
        "A policy",
        "policies",
        reply="policy",
        headers=("ETag",),
    ),
    Route(
        "PATCH",
        "/v1/policies/:id",
        ADMIN,
        update_policy,
        "Change a policy",
        "policies",
        body="policy-update",
        body_as_sent=True,
        reply="policy",
        errors=("policy_file_invalid", "precondition_failed", "conflict"),
        headers=("ETag",),
        description="Only the fields sent are changed; null removes an optional one. `If-Match` is honoured.",
        second_admin=True,
    ),
    Route(
        "DELETE",
        "/v1/policies/:id",
        ADMIN,
        delete_policy,
        "Delete a policy",
        "policies",
        status=204,
        errors=("policy_file_invalid", "precondition_failed", "conflict"),
        description="Its versions stay readable.",
        second_admin=True,
    ),
    Route(
        "GET",
        "/v1/policies/:id/versions",
        VIEWER,
        list_policy_versions,
        "Earlier versions of a policy, newest first",
        "policies",
        reply="policy-versions",
    ),
    Route(
        "POST",
        "/v1/policies/:id/rollback",
        ADMIN,
        rollback_policy,
        "Make an old version the newest",
        "policies",
        body="policy-rollback",
        reply="policy",
        errors=("policy_file_invalid", "precondition_failed", "conflict"),
        headers=("ETag",),
        second_admin=True,
    ),
    Route(
        "GET",
        "/v1/policies/:id/preset-upgrade",
        VIEWER,
        get_preset_upgrade,
        "What a policy's preset has that the policy has not",
        "policies",
        reply="preset-upgrade",
        headers=("ETag",),
        description="Three-way between the preset as it was, the preset as it is and the policy: members "
        "that nobody edited follow the preset (`changes`), edited ones stay (`kept`).",
    ),
    Route(
        "POST",
        "/v1/policies/:id/preset-upgrade",
        ADMIN,
        upgrade_policy,
        "Take over what a policy's preset has",
        "policies",
        reply="policy",
        errors=("validation_failed", "policy_file_invalid", "precondition_failed", "conflict"),
        headers=("ETag",),
        description="Makes exactly the `changes` that GET shows, as a new version; answers the policy as it "
        "is when there are none. `If-Match` takes the `ETag` of the policy, or that of GET.",
        second_admin=True,
    ),
)
