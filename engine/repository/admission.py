"""Declaring the tools of a server that an admin admits: one edit of the set that is theirs, as by the API.

It must not know SQL or HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.derived.tools import Tools
from engine.documents.document import API_VERSION
from engine.documents.edit import dump, edit
from engine.documents.tool_proposals import ServerTool, declarations, merged, tool_set_id_of
from engine.documents.tool_sets import tool_as_json
from engine.model import Json, ToolSet
from engine.repository.definitions import TOOLS, Defined
from engine.repository.plan import Plan
from engine.repository.repository import Repository
from engine.repository.sync import WriteResult


def admit_tools(
    repository: Repository,
    organisation_id: str,
    server: str,
    proposed: Sequence[ServerTool],
    chosen: Mapping[str, Mapping[str, Json]],
    *,
    author: str,
) -> WriteResult[Defined[ToolSet] | None]:
    """Declare what is not declared yet, and what the admin has chosen, in one revision; the set, or None
    where there is nothing to declare. Raises DocumentError, and what every write does."""
    tool_set_id = tool_set_id_of(server)

    def operation(plan: Plan) -> Defined[ToolSet] | None:
        path, file = TOOLS.file(repository, plan, organisation_id, tool_set_id)
        added = declarations(Tools(plan.head.tools_of(organisation_id)), proposed, chosen)
        if not added:
            return None
        version = plan.records.last_version_of("toolSet", organisation_id, tool_set_id) + 1
        if file is None:
            head = {
                "apiVersion": API_VERSION,
                "kind": "ToolSet",
                "toolSetId": tool_set_id,
                "version": version,
            }
            content = dump(head | {"name": f"Tools of {server}", "tools": added}).encode()
        else:
            current = TOOLS.stored(plan.head, organisation_id, tool_set_id).document
            tools = merged([tool_as_json(each) for each in current.tools], added)
            content = edit(plan.records.blob(file.digest), {"tools": tools, "version": version})
        repository.sync.put(plan, {path: content})
        return TOOLS.stored(plan.head, organisation_id, tool_set_id)

    return repository.write(author, operation)
