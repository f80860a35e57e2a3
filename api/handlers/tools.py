"""Tools: what the service knows of them by their names."""

from __future__ import annotations

from typing import Any

from api.caller import Caller
from api.context import Context
from api.http.exchange import Reply, Values
from api.http.route import VIEWER, Route
from engine.documents.tool_sets import tool_set_as_json
from engine.model import ToolSet
from engine.repository.archive import FileRecord
from engine.repository.snapshot import in_order


async def list_tools(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/tools: the tool sets that count in the organisation, the one that is asked first foremost."""
    snapshot = await context.newest()
    paths = in_order(snapshot.tool_sets, caller.organisation_id)
    return Reply([_shape(snapshot.tool_sets[path], snapshot.files[path]) for path in reversed(paths)])


def _shape(tool_set: ToolSet, file: FileRecord) -> dict[str, Any]:
    return tool_set_as_json(tool_set) | {
        "organisationId": tool_set.organisation_id,
        "file": file.path,
        "updatedAt": file.updated_at,
        "source": file.source,
    }


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
)
