"""Tools: what the service knows of them by their names. Files own the sets, as they own policies."""

from __future__ import annotations

from typing import Any, Final

from api.caller import Caller
from api.context import Context
from api.handlers import definitions
from api.handlers.policies import own
from api.http.exchange import Reply, Values
from api.http.route import ADMIN, VIEWER, Route
from engine.documents.tool_sets import tool_set_as_json
from engine.model import ToolSet
from engine.repository.definitions import TOOLS, Defined
from engine.repository.snapshot import in_order

WHAT: Final = "tool set"


async def list_tools(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/tools: the tool sets that count in the organisation, the one that is asked first foremost."""
    snapshot = await context.newest()
    paths = in_order(snapshot.tool_sets, caller.organisation_id)
    sets = (Defined(snapshot.tool_sets[path], snapshot.files[path]) for path in reversed(paths))
    return Reply(list(map(shape_of, sets)))


async def get_tools(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/tools/:id: a set of the organisation's own."""
    snapshot = await context.newest()
    return _reply(TOOLS.stored(snapshot, *own(caller, values, WHAT)))


async def create_tools(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/tools."""
    members = {key: value for key, value in values.body.items() if key != "toolSetId"}
    stored = await context.write_policies(
        lambda policies: TOOLS.create(
            policies, caller.organisation_id, values.body["toolSetId"], members, author=caller.actor
        )
    )
    return _reply(stored, 201)


async def put_tools(caller: Caller, values: Values, context: Context) -> Reply:
    """PUT /v1/tools/:id: replaces all that a set says."""
    members = {"description": None, "examples": None} | values.body
    return _reply(await definitions.change(caller, values, context, TOOLS, WHAT, members))


async def update_tools(caller: Caller, values: Values, context: Context) -> Reply:
    """PATCH /v1/tools/:id: only what is sent is changed; null removes an optional field."""
    return _reply(await definitions.change(caller, values, context, TOOLS, WHAT, values.body))


async def delete_tools(caller: Caller, values: Values, context: Context) -> Reply:
    """DELETE /v1/tools/:id; its versions stay readable."""
    return await definitions.delete(caller, values, context, TOOLS, WHAT)


async def list_tools_versions(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/tools/:id/versions: newest first, also of a set that is gone."""
    return await definitions.versions(caller, values, context, "toolSet", WHAT)


def _reply(stored: Defined[ToolSet], status: int = 200) -> Reply:
    headers = {"ETag": f'"{stored.file.etag}"'}
    if status == 201:
        headers["Location"] = f"/v1/tools/{stored.document.tool_set_id}"
    return Reply(shape_of(stored), status, headers)


def shape_of(stored: Defined[ToolSet]) -> dict[str, Any]:
    """A set as it is answered."""
    document = stored.document
    return tool_set_as_json(document) | definitions.kept(document.organisation_id, stored.file)


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
        second_admin=True,
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
        second_admin=True,
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
        second_admin=True,
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
        second_admin=True,
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
