"""Every table, as peewee models: one table per kind of thing, `organisation_id` on each.

Times are ISO 8601 UTC text with microseconds and `Z`, so they sort as text and read the same on both
databases; only `rate_hits.at` and lease times are seconds since the epoch, because they are computed with.
JSON is stored as compact text. Rows never leave `api/store`.
"""

from __future__ import annotations

from collections.abc import Sequence

from peewee import (
    SQL,
    BigAutoField,
    BigIntegerField,
    BlobField,
    BooleanField,
    CompositeKey,
    Database,
    DoubleField,
    IntegerField,
    SqliteDatabase,
    TextField,
)

from api.database.lanes.tables import Id as Id
from api.database.lanes.tables import LaneRow as LaneRow
from api.database.table import Table
from api.database.tables import policies as policies
from api.database.tables.alerts import Agent as Agent
from api.database.tables.alerts import Alert as Alert
from api.database.tables.alerts import DetectorTally as DetectorTally
from api.database.tables.alerts import LogPosition as LogPosition
from api.database.tables.alerts import LogReader as LogReader
from api.database.tables.changes import HeldChange as HeldChange
from api.database.tables.deliveries import Delivery as Delivery
from api.database.tables.deliveries import NotificationSecret as NotificationSecret
from api.database.tables.deliveries import Webhook as Webhook
from api.database.tables.grants import Grant as Grant
from api.database.tables.grants import GrantUse as GrantUse
from api.database.tables.nodes import Node as Node
from api.database.tables.tools import ToolDefinition as ToolDefinition
from api.database.tables.tools import ToolProposal as ToolProposal

LANE_BITS = 44
"""Of a number of a run, an event or a call: those below say which one of its lane, those above which lane."""


def numbers_of(lane: int) -> int:
    """Where the numbers of a lane begin."""
    return lane << LANE_BITS


class Organisation(Table):
    organisation_id = TextField(primary_key=True)
    name = TextField()
    created_at = TextField()
    user_token = TextField(null=True)
    """How end-user tokens verify: JSON {algorithm, key, issuer?, audience?}, the key encrypted; null: none is
    accepted."""

    class Meta:
        table_name = "organisations"


class DataKey(Table):
    """The one key that secrets here are encrypted with, wrapped; see `secrets_at_rest.py`."""

    key_no = IntegerField(primary_key=True)
    wrapped = TextField()

    class Meta:
        table_name = "data_keys"


class User(Table):
    user_id = TextField(primary_key=True)
    organisation_id = TextField(index=True)
    email = TextField(unique=True)
    role = TextField()
    password_hash = TextField()
    enabled = BooleanField(default=True)
    tokens_valid_from = BigIntegerField(default=0)
    """The generation of tokens that are valid: it grows, and is compared with nothing but theirs."""
    """Tokens issued before this time (seconds) are refused; moved on by a password change or disabling."""
    created_at = TextField()

    class Meta:
        table_name = "users"


class ApiKey(Table):
    key_id = TextField(primary_key=True)
    organisation_id = TextField(index=True)
    name = TextField()
    digest = TextField(unique=True)
    prefix = TextField()
    agent_id = TextField(null=True)
    user_id = TextField(null=True)
    scopes = TextField(default="[]")
    created_at = TextField()
    created_by = TextField()
    revoked_at = TextField(null=True)
    expires_at = TextField(null=True)
    last_used_at = TextField(null=True)
    """To the minute; see `api/auth/key_use.py`."""

    class Meta:
        table_name = "api_keys"


class Counter(Table):
    """Numbers that caches compare with: `policies` (the revision), `keys`, `halts`, `grants`, `webhooks`,
    `users`."""

    name = TextField(primary_key=True)
    value = BigIntegerField(default=0)

    class Meta:
        table_name = "counters"


class Run(Table):
    run_no = BigAutoField()
    organisation_id = TextField()
    run_id = TextField()
    agent_id = TextField()
    status = TextField()
    task = TextField(null=True)
    model = TextField(null=True)
    reason = TextField(null=True)
    agent_context = TextField(null=True)
    started_at = TextField()
    ended_at = TextField(null=True)
    key_id = TextField()
    parent_run_id = TextField(null=True)
    labels = TextField(default="[]")
    steps = TextField(null=True)
    """What happened how many calls ago, as far as policies ask for it (JSON, see `engine/flow/steps.py`)."""
    flow = BigIntegerField(default=0)
    """Grows with every change of labels, steps and values."""

    class Meta:
        table_name = "runs"
        indexes = ((("organisation_id", "run_id"), True),)


class RunValue(Table):
    """Hashes of the values that a run has seen, a row for each event that brought new ones; see
    `api/store/run_values.py`. `flow` is what the run's was then."""

    run_no = BigIntegerField()
    flow = BigIntegerField()
    call_no = BigIntegerField()
    """The call whose output it was; 0: another source."""
    task = BlobField()
    trusted = BlobField()
    untrusted = BlobField()
    words = BlobField()
    beyond = BigIntegerField()
    """1: values came beyond the bound."""

    class Meta:
        table_name = "run_values"
        primary_key = CompositeKey("run_no", "flow")


class Event(Table):
    event_no = BigAutoField()
    organisation_id = TextField()
    event_id = TextField()
    id_hash = BigIntegerField()
    """64 bits of sha256(organisation, event id): what the directory finds it by."""
    run_no = BigIntegerField()
    event_type = TextField()
    received_at = TextField()
    body = BlobField()
    """The request body, byte for byte; only a user token gives way to its sha256."""
    receipt = BlobField()
    """The answer as sent, so that a repeated event gets the same bytes. Empty where the event's call says all
    of it and never changes, since it was decided for good."""

    class Meta:
        table_name = "events"


class CallTable(Table):
    call_no = BigAutoField()
    """The number of its event; older ones were numbered by themselves."""
    organisation_id = TextField()
    run_no = BigIntegerField()
    tool_call_id = TextField()
    call_hash = BigIntegerField()
    """64 bits of sha256(tool call id): what the directory finds it by, among those of its run."""
    event_no = BigIntegerField()
    """The event that holds the payload."""
    tool_name = TextField()
    payload_digest = TextField()
    status = TextField()
    action = TextField()
    reason = TextField()
    matched = TextField()
    shadow = TextField()
    policy_revision = BigIntegerField()
    policy_digest = TextField()
    decided_at = TextField()
    audit_id = TextField()
    approval_id = TextField(null=True)
    blocked_reason = TextField(null=True)
    facts = TextField()
    """What the decision saw beside the payload: verified user, delegation, key, and that the run had facts
    (JSON); see `api/store/call_facts.py`."""
    flags = TextField(default="[]")
    completed_at = TextField(null=True)
    completion = TextField(null=True)
    output = TextField(null=True)

    class Meta:
        table_name = "tool_calls"


class Directory(Table):
    """Where an event or a call is, by its id; see `api/database/id_index.py`."""

    owner = BigIntegerField()
    """0 for events, the run's number for calls."""
    hash = BigIntegerField()
    no = BigIntegerField()

    class Meta:
        table_name = "directory"
        primary_key = CompositeKey("owner", "hash")


class Approval(Table):
    approval_id = TextField(primary_key=True)
    organisation_id = TextField()
    run_no = BigIntegerField()
    run_id = TextField()
    agent_id = TextField()
    call_no = BigIntegerField()
    tool_call_id = TextField()
    tool_name = TextField()
    policy_id = TextField()
    policy_name = TextField()
    status = TextField()
    reason = TextField()
    requested_at = TextField()
    expires_at = TextField(null=True)
    about = TextField(null=True)
    """What the call is about, as `derived.summary` says it; null for those of before."""
    asked_by = TextField(null=True)
    """The policies that ask for it (JSON), each with the version that did; null for those of before."""
    resolved_at = TextField(null=True)
    resolved_by = TextField(null=True)
    actor = TextField(null=True)
    decision_reason = TextField(null=True)
    seen_at = TextField(null=True)
    """When a reviewer first opened it, and who."""
    seen_by = TextField(null=True)
    key_id = TextField(null=True)
    """The API key of the call."""
    terms = TextField(null=True)
    """What its policies ask of it (JSON, see `api/store/review/terms.py`); null: nothing special."""
    given = TextField(null=True)
    """Who has approved so far where several must (JSON)."""
    escalated_at = TextField(null=True)
    payload_digest = TextField(null=True)
    """Of the tool and its payload; null for those of before whose call is gone."""

    class Meta:
        table_name = "approvals"
        indexes = ((("organisation_id", "status", "requested_at"), False),)


Approval.add_index(
    Approval.index(
        Approval.expires_at,
        name="approvals_expiring",
        # A literal, not a parameter: an index is only used where the query's condition says the same.
        where=SQL('"status" = \'pending\' AND "expires_at" IS NOT NULL'),
    )
)
"""The pending approvals that may expire: what the sweeper looks at; small however long the history."""
Approval.add_index(
    Approval.index(Approval.key_id, name="approvals_pending_of_key", where=SQL("\"status\" = 'pending'"))
)
"""How many approvals of a key are pending."""


class Halt(Table):
    halt_id = TextField(primary_key=True)
    organisation_id = TextField(index=True)
    kind = TextField()
    """`all`, `agent` or `run`."""
    target = TextField()
    """The agent or run id; empty for `all`."""
    reason = TextField()
    created_at = TextField()
    created_by = TextField()
    ended_at = TextField(null=True)
    ended_by = TextField(null=True)

    class Meta:
        table_name = "halts"


class RateHit(Table):
    hit_no = BigAutoField()
    bucket = TextField()
    at = DoubleField()
    expires_at = DoubleField()

    class Meta:
        table_name = "rate_hits"
        indexes = ((("bucket", "at"), False), (("expires_at",), False))


class Audit(Table):
    """Hash chains, see `audit_chain.py`. `record` is the canonical JSON that `hash` covers."""

    organisation_id = TextField()
    chain = BigIntegerField(default=0)
    sequence = BigIntegerField()
    audit_id = TextField()
    at = TextField()
    type = TextField()
    agent_id = TextField(null=True)
    run_id = TextField(null=True)
    user_id = TextField(null=True)
    decision = TextField(null=True)
    record = TextField()
    hash = TextField()

    class Meta:
        table_name = "audit"
        primary_key = CompositeKey("organisation_id", "chain", "sequence")


class ChainTip(Table):
    """Where the chains end (PostgreSQL; the one of SQLite ends where its index does)."""

    organisation_id = TextField()
    chain = BigIntegerField()
    sequence = BigIntegerField()
    hash = TextField()

    class Meta:
        table_name = "chains"
        primary_key = CompositeKey("organisation_id", "chain")


class AuditCheckpoint(Table):
    """What was signed of the audit log, see `api/audit/checkpoints.py`. `body` is the canonical JSON that
    `signature` covers."""

    number = BigIntegerField(primary_key=True)
    body = TextField()
    signature = TextField()

    class Meta:
        table_name = "checkpoints"


class AuditCarried(Table):
    """What records said that are gone, as of one certificate; see `api/audit/retention/carried.py`. `number`
    is that of the checkpoint."""

    organisation_id = TextField()
    number = BigIntegerField()
    body = TextField()

    class Meta:
        table_name = "audit_carried"
        primary_key = CompositeKey("organisation_id", "number")


def make_tables(db: Database, tables: Sequence[type[Table]] | None = None) -> None:
    """Those that are not there yet. SQLite keeps `directory` in the order of its key."""
    is_sqlite = isinstance(db, SqliteDatabase)
    Directory._meta.without_rowid = is_sqlite
    others = OF_LANES if is_sqlite else OF_SQLITE
    db.create_tables(tables or [each for each in TABLES if each not in others])


TABLES: tuple[type[Table], ...] = tuple(Table.__subclasses__())
"""In the order of their definition, those of `tables/` first."""

OF_LANES: tuple[type[Table], ...] = (ChainTip, Id, LaneRow)
"""Those that only PostgreSQL needs."""
OF_SQLITE: tuple[type[Table], ...] = (Directory,)
