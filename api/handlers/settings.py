"""Settings of an organisation: what policies and presets need to know of it. Files own them, as they own
policies; a write goes through the repository."""

from __future__ import annotations

from typing import Any

import msgspec

from api.caller import Caller
from api.context import Context
from api.handlers.definitions import kept, version_as_json
from api.handlers.policies import if_match
from api.http.exchange import Reply, Values
from api.http.problems import invalid
from api.http.route import ADMIN, Route
from api.store import accounts
from engine.conditions.settings import SETTINGS, SHIPPED, reads, value_of
from engine.documents.yaml import read
from engine.repository import definitions
from engine.repository.definitions import StoredSettings
from engine.repository.snapshot import Snapshot


async def get_settings(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/organisation/settings: what is set, and all that could be."""
    snapshot = await context.newest()
    return _reply(definitions.stored_settings(snapshot, caller.organisation_id), caller, snapshot)


async def put_settings(caller: Caller, values: Values, context: Context) -> Reply:
    """PUT /v1/organisation/settings: replaces all; what reads them is compiled anew before the answer."""
    if values.body["settings"].get("changes", {}).get("approvers") == 2:
        admins = await context.store.read(accounts.count_admins, caller.organisation_id)
        if admins < 2:
            detail = "there is only one admin who can log in, so nobody could agree; create another one first"
            raise invalid("/settings/changes/approvers", detail)
    stored = await context.write_policies(
        lambda policies: definitions.put_settings(
            policies,
            caller.organisation_id,
            values.body["settings"],
            author=caller.actor,
            if_match=if_match(values),
        )
    )
    return _reply(stored, caller, context.live.snapshot)


async def list_versions(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/organisation/settings/versions: newest first."""
    mine = caller.organisation_id

    def written() -> bytes:
        found = definitions.versions_of(context.live.repository, "settings", mine, mine)
        return msgspec.json.encode(
            [version_as_json(each, settings=read(each.content).root.value["settings"]) for each in found]
        )

    return Reply(await context.reads.read(caller, written))


def _reply(stored: StoredSettings, caller: Caller, snapshot: Snapshot) -> Reply:
    readers: dict[str, list[str]] = {}
    for policy_id, policy in sorted(snapshot.of(caller.organisation_id).items()):
        for name in reads(policy.policy):
            readers.setdefault(name, []).append(policy_id)
    shape: dict[str, Any] = {
        "organisationId": caller.organisation_id,
        "settings": dict(stored.settings.values),
        "known": [
            {
                "name": name,
                "type": setting.type,
                "description": setting.description,
                "sample": setting.default,
                "missing": value_of(stored.settings, name) is None,
                "readBy": readers.get(name, []),
            }
            | ({"default": SHIPPED[name]} if name in SHIPPED else {})
            for name, setting in SETTINGS.items()
        ],
    }
    if stored.file is not None:
        shape |= {"version": stored.file.version} | kept(caller.organisation_id, stored.file)
    return Reply(shape, headers={"ETag": f'"{stored.etag}"'})


ROUTES = (
    Route(
        "GET",
        "/v1/organisation/settings",
        ADMIN,
        get_settings,
        "What policies know of the organisation",
        "policies",
        reply="organisation-settings",
        headers=("ETag",),
        description="`known` lists every setting, its value while nobody has set it, and who reads it.",
    ),
    Route(
        "PUT",
        "/v1/organisation/settings",
        ADMIN,
        put_settings,
        "Set what policies know of the organisation",
        "policies",
        body="organisation-settings-update",
        reply="organisation-settings",
        errors=("policy_file_invalid", "precondition_failed", "conflict"),
        headers=("ETag",),
        description="Replaces all settings, in one revision with every policy that reads one. A "
        "setting that policies in force read cannot be taken away. `If-Match` is honoured.",
        second_admin=True,
    ),
    Route(
        "GET",
        "/v1/organisation/settings/versions",
        ADMIN,
        list_versions,
        "All versions of the settings, newest first",
        "policies",
        reply="organisation-settings-version",
        reply_is_array=True,
    ),
)
