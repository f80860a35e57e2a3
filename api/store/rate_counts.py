"""Rate counts, read-only: how many calls count against a policy's limit now."""

from __future__ import annotations

from api.database.connection import Database
from engine.matching.rate_limit import bucket, window_start
from engine.matching.rate_limit import is_over as over_limit
from engine.model import Policy, ToolCall


def is_over(store: Database, policy: Policy, call: ToolCall, now: float) -> bool:
    """Whether this call would lie beyond the policy's limit now; counts nothing."""
    limit = policy.rate_limit
    assert limit is not None
    count = store.read_here(
        lambda: store.rows(
            "SELECT COUNT(*) FROM rate_hits WHERE bucket = ? AND at > ?",
            (bucket(policy, call), window_start(limit, now)),
        )
    )[0][0]
    return over_limit(limit, count)
