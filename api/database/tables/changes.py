"""Changes that wait for a second admin; see `models.py`."""

from __future__ import annotations

from peewee import TextField

from api.database.table import Table


class HeldChange(Table):
    """A request that somebody made and somebody else must agree to. `request` is sealed: it may hold a
    password. `shown` (JSON) is what it would change, `state` the digest of what it was made for."""

    change_id = TextField(primary_key=True)
    organisation_id = TextField()
    operation = TextField()
    """The method and the path of the route, such as `PATCH /v1/policies/:id`."""
    subject = TextField()
    status = TextField()
    request = TextField()
    shown = TextField()
    state = TextField()
    requested_at = TextField()
    requested_by = TextField()
    requested_by_id = TextField()
    expires_at = TextField()
    resolved_at = TextField(null=True)
    resolved_by = TextField(null=True)
    reason = TextField(null=True)
    problem = TextField(null=True)
    """Why it could not be applied."""

    class Meta:
        table_name = "held_changes"
        indexes = ((("organisation_id", "status", "requested_at"), False),)
