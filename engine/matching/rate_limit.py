"""Rate limits as arithmetic: which calls are counted together, and when a call lies beyond the limit.

Pure: it keeps no counts and reads no clock. Times are seconds; whoever stores them may use any epoch.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Sequence

from engine.canonical_json import canonical_json
from engine.model import Json, Policy, RateLimit, ToolCall


def bucket(policy: Policy, call: ToolCall) -> str:
    """The name of the count that this call goes on: 64 hexadecimal digits.

    One count per organisation, policy and tuple of what `rateLimit.per` names; a part that the call lacks
    counts as empty. The names in `per` are part of it, in any order.
    """
    per = sorted(set(policy.rate_limit.per)) if policy.rate_limit else []
    parts = [policy.organisation_id, policy.policy_id]
    for name in per:
        parts += (name, _part(name, call))
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def window_start(limit: RateLimit, now: float) -> float:
    """Counted calls strictly later than this are within the window that ends at `now`."""
    return now - limit.window_seconds


def is_over(limit: RateLimit, counted: int) -> bool:
    """Whether a call takes effect when `counted` earlier ones lie within the window: from call
    `limit` + 1 on. INVARIANT: exactly `limit` calls pass in any window."""
    return counted >= limit.limit


def within(limit: RateLimit, times: Sequence[float], now: float) -> int:
    """How many of `times` (ascending) lie within the window that ends at `now`."""
    return len(times) - bisect_right(times, window_start(limit, now))


def _part(name: str, call: ToolCall) -> str:
    document = call.document
    if name == "payload":
        return _digest(document.get("inputPayload"))
    if name == "userId":
        # What an agent asserts never goes on the count of the user whom the service verified.
        if user := _member(document.get("user"), "id"):
            return f"verified {user}"
        asserted = _member(document.get("agentContext"), "userId")
        return f"asserted {asserted}" if asserted else ""
    if name == "apiKeyId":
        return _member(document.get("key"), "id")
    return _text(document.get(name))


def _member(holder: Json, name: str) -> str:
    return _text(holder.get(name)) if isinstance(holder, dict) else ""


def _text(value: Json) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return _canonical(value).decode()


def _digest(value: Json) -> str:
    return hashlib.sha256(_canonical(value)).hexdigest()


def _canonical(value: Json) -> bytes:
    try:
        return canonical_json(value)
    except (ValueError, RecursionError):
        # Beyond what the API accepts. All such values share one count, so none dodges its limit.
        return b"unreadable"
