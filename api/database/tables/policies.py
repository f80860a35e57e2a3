"""The tables of policies: exact bytes, versions, the files in force, and what changed at which revision.

See `models.py` for what holds of all tables.
"""

from __future__ import annotations

from peewee import BigIntegerField, BlobField, BooleanField, CompositeKey, IntegerField, TextField

from api.database.table import Table


class Blob(Table):
    """Exact bytes by sha256 (hex)."""

    digest = TextField(primary_key=True)
    content = BlobField()

    class Meta:
        table_name = "blobs"


class PolicyVersion(Table):
    """Every state a policy ever had. `state` is the parsed policy (JSON). The current one has no
    `archived_at`; `deleted` says that a version ended by deletion, not by a newer version."""

    organisation_id = TextField()
    policy_id = TextField()
    version = IntegerField()
    revision = BigIntegerField()
    path = TextField()
    digest = TextField()
    state = TextField()
    source = TextField()
    created_at = TextField()
    created_by = TextField()
    archived_at = TextField(null=True)
    archived_by = TextField(null=True)
    deleted = BooleanField(default=False)

    class Meta:
        table_name = "policy_versions"
        primary_key = CompositeKey("organisation_id", "policy_id", "version")
        indexes = ((("revision",), False),)


class PolicyFile(Table):
    """The last good set: every file that is in force, by its path under the policies folder."""

    path = TextField(primary_key=True)
    kind = TextField()
    organisation_id = TextField()
    document_id = TextField()
    digest = TextField()
    version = IntegerField()
    revision = BigIntegerField()
    created_at = TextField()
    updated_at = TextField()
    source = TextField()

    class Meta:
        table_name = "policy_files"


class PolicyChange(Table):
    """Which path changed at which revision, and to what; no `digest`: it went away."""

    revision = BigIntegerField()
    path = TextField()
    at = TextField()
    kind = TextField()
    organisation_id = TextField()
    document_id = TextField()
    digest = TextField(null=True)
    version = IntegerField()
    created_at = TextField()
    updated_at = TextField()
    source = TextField()
    author = TextField()

    class Meta:
        table_name = "policy_changes"
        primary_key = CompositeKey("revision", "path")
        indexes = ((("path", "revision"), False),)
