"""What agents say of the tools of their servers, and what was admitted of it."""

from api.database.models import ToolDefinition, ToolProposal, make_tables


def up(migrator, db):  # type: ignore[no-untyped-def]
    make_tables(db, [ToolProposal, ToolDefinition])
