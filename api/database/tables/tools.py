"""What agents say of the tools of their servers, and what an admin has admitted of it; see `models.py`."""

from __future__ import annotations

from peewee import CompositeKey, TextField

from api.database.table import Table


class ToolProposal(Table):
    """The tools of a server, as a key has told of them last: `tools` is JSON, `digest` that of it."""

    proposal_id = TextField(primary_key=True)
    organisation_id = TextField()
    key_id = TextField()
    server = TextField()
    tools = TextField()
    digest = TextField()
    status = TextField()
    created_at = TextField()
    updated_at = TextField()
    resolved_at = TextField(null=True)
    resolved_by = TextField(null=True)

    class Meta:
        table_name = "tool_proposals"
        indexes = ((("organisation_id", "key_id", "server"), True),)


class ToolDefinition(Table):
    """The definition of a tool that was admitted last, with what was shown of it then (JSON)."""

    organisation_id = TextField()
    server = TextField()
    tool_name = TextField()
    definition = TextField()
    shown = TextField()
    admitted_at = TextField()
    admitted_by = TextField()

    class Meta:
        table_name = "tool_definitions"
        primary_key = CompositeKey("organisation_id", "server", "tool_name")
