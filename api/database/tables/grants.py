"""What a person has granted beyond one approval, and which calls went ahead by it; see `models.py`."""

from __future__ import annotations

from peewee import BigIntegerField, CompositeKey, IntegerField, TextField

from api.database.table import Table


class Grant(Table):
    """`kind` is `calls` (the same call again, at most `calls` times) or `labels` (labels of a run that do not
    count). `policies` and `labels` are JSON."""

    grant_id = TextField(primary_key=True)
    organisation_id = TextField()
    kind = TextField()
    scope = TextField()
    """`run` or `agent`."""
    run_no = BigIntegerField()
    run_id = TextField()
    agent_id = TextField()
    key_id = TextField()
    """The API key of the run: nobody else's calls are covered."""
    tool_name = TextField(null=True)
    payload_digest = TextField(null=True)
    """As in the call's row: the tool, its exact payload, and on whose behalf."""
    policies = TextField(default="[]")
    labels = TextField(default="[]")
    calls = IntegerField(null=True)
    reason = TextField(null=True)
    approval_id = TextField(null=True)
    tool_call_id = TextField(null=True)
    created_at = TextField()
    created_by = TextField()
    creator_id = TextField()
    """The id of the user, as API keys may name them."""
    expires_at = TextField()
    revoked_at = TextField(null=True)
    revoked_by = TextField(null=True)

    class Meta:
        table_name = "grants"
        indexes = ((("organisation_id", "created_at"), False), (("organisation_id", "expires_at"), False))


class GrantUse(Table):
    """A call that was decided by a grant, written with the decision."""

    grant_id = TextField()
    call_no = BigIntegerField(index=True)

    class Meta:
        table_name = "grant_uses"
        primary_key = CompositeKey("grant_id", "call_no")
