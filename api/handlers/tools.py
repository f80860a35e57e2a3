"""Tools: what the service knows of them by their names. Files own the sets, as they own policies."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

from api.caller import Caller
from api.context import Context
from api.handlers.policies import if_match
from api.http.exchange import Reply, Values
from api.http.problems import not_found
from api.http.route import ADMIN, VIEWER, Route
from engine.documents.tool_sets import tool_set_as_json
from engine.documents.yaml import read
from engine.model import ToolSet
from engine.repository import definitions
from engine.repository.archive import DocumentVersion, FileRecord
from engine.repository.definitions import StoredTools
from engine.repository.snapshot import in_order

_ID = re.compile(r"[a-z0-9]([a-z0-9._-]{0,98}[a-z0-9])?")


async def list_tools(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/tools: the tool sets that count in the organisation, the one that is asked first foremost."""
    snapshot = await context.newest()
    paths = in_order(snapshot.tool_sets, caller.organisation_id)
    return Reply([_shape(snapshot.tool_sets[path], snapshot.files[path]) for path in reversed(paths)])


async def get_tools(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/tools/:id: a set of the organisation's own."""
    snapshot = await context.newest()
    return _reply(definitions.stored_tools(snapshot, *_own(caller, values)))


async def create_tools(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/tools."""
    members = {key: value for key, value in values.body.items() if key != "toolSetId"}
    stored = await context.write_policies(
        lambda policies: definitions.create_tools(
            policies, caller.organisation_id, values.body["toolSetId"], members, author=caller.actor
        )
    )
    return _reply(stored, 201)


async def put_tools(caller: Caller, values: Values, context: Context) -> Reply:
    """PUT /v1/tools/:id: replaces all that a set says."""
    members = {"description": None, "examples": None} | values.body
    return _reply(await _change(caller, values, context, members))


async def update_tools(caller: Caller, values: Values, context: Context) -> Reply:
    """PATCH /v1/tools/:id: only what is sent is changed; null removes an optional field."""
    return _reply(await _change(caller, values, context, values.body))


async def _change(
    caller: Caller, values: Values, context: Context, changes: Mapping[str, Any]
) -> StoredTools:
    return await context.write_policies(
        lambda policies: definitions.change_tools(
            policies, *_own(caller, values), changes, **_writer(caller, values)
        )
    )


async def delete_tools(caller: Caller, values: Values, context: Context) -> Reply:
    """DELETE /v1/tools/:id; its versions stay readable."""
    await context.write_policies(
        lambda policies: definitions.delete_tools(policies, *_own(caller, values), **_writer(caller, values))
    )
    return Reply(status=204)


async def list_tools_versions(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/tools/:id/versions: newest first, also of a set that is gone."""
    organisation_id, tool_set_id = _own(caller, values)
    repository = context.live.repository
    found = await asyncio.to_thread(
        definitions.versions_of, repository, "toolSet", organisation_id, tool_set_id
    )
    if not found:
        raise not_found("tool set", tool_set_id)
    return Reply([_version(each) for each in found])


def _own(caller: Caller, values: Values) -> tuple[str, str]:
    """Which set the path is about. What no set can be called is not looked for among files."""
    tool_set_id = values.path["id"]
    if not _ID.fullmatch(tool_set_id):
        raise not_found("tool set", tool_set_id)
    return caller.organisation_id, tool_set_id


def _writer(caller: Caller, values: Values) -> dict[str, Any]:
    return {"author": caller.actor, "if_match": if_match(values)}


def _reply(stored: StoredTools, status: int = 200) -> Reply:
    headers = {"ETag": f'"{stored.etag}"'}
    if status == 201:
        headers["Location"] = f"/v1/tools/{stored.tool_set.tool_set_id}"
    return Reply(_shape(stored.tool_set, stored.file), status, headers)


def shape_of(stored: StoredTools) -> dict[str, Any]:
    """A set as it is answered."""
    return _shape(stored.tool_set, stored.file)


def _shape(tool_set: ToolSet, file: FileRecord) -> dict[str, Any]:
    return tool_set_as_json(tool_set) | {
        "organisationId": tool_set.organisation_id,
        "file": file.path,
        "updatedAt": file.updated_at,
        "source": file.source,
    }


def _version(version: DocumentVersion) -> dict[str, Any]:
    return {
        "version": version.version,
        "policyRevision": version.revision,
        "state": read(version.content).root.value,
        "source": version.source,
        "createdAt": version.created_at,
        "createdBy": version.created_by,
        "digest": version.digest,
    }


_REFUSED = ("policy_file_invalid", "precondition_failed", "conflict")

ROUTES = (
    Route(
        "GET",
        "/v1/tools",
        VIEWER,
        list_tools,
        "What is declared of tools, by patterns of their names",
        "tools",
        reply="tool-set",
        reply_is_array=True,
        description="Of two equal patterns the one that stands earlier counts.",
    ),
    Route(
        "GET",
        "/v1/tools/:id",
        VIEWER,
        get_tools,
        "A tool set of the organisation's own",
        "tools",
        reply="tool-set",
        headers=("ETag",),
    ),
    Route(
        "POST",
        "/v1/tools",
        ADMIN,
        create_tools,
        "Declare tools in a new set",
        "tools",
        status=201,
        body="tool-set-create",
        reply="tool-set",
        errors=("policy_file_invalid", "conflict"),
        headers=("ETag", "Location"),
        description="In force when this is answered, in one revision with all policies that go by it; "
        "examples of policies must hold by it. What the default organisation declares counts for all.",
    ),
    Route(
        "PUT",
        "/v1/tools/:id",
        ADMIN,
        put_tools,
        "Replace a tool set",
        "tools",
        body="tool-set-put",
        reply="tool-set",
        errors=_REFUSED,
        headers=("ETag",),
        description="Replaces all that it says. `If-Match` is honoured.",
    ),
    Route(
        "PATCH",
        "/v1/tools/:id",
        ADMIN,
        update_tools,
        "Change a tool set",
        "tools",
        body="tool-set-update",
        reply="tool-set",
        errors=_REFUSED,
        headers=("ETag",),
        description="Only the fields sent are changed; null removes an optional one. `If-Match` is honoured.",
    ),
    Route(
        "DELETE",
        "/v1/tools/:id",
        ADMIN,
        delete_tools,
        "Delete a tool set",
        "tools",
        status=204,
        errors=("validation_failed", *_REFUSED),
        description="Its versions stay readable. Refused where examples of policies do not hold without it.",
    ),
    Route(
        "GET",
        "/v1/tools/:id/versions",
        VIEWER,
        list_tools_versions,
        "All versions of a tool set, newest first",
        "tools",
        reply="tool-set-version",
        reply_is_array=True,
    ),
)
