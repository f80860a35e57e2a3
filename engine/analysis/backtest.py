"""What would have happened: recorded calls decided again under an old and a new set of policies.

Both sets see the same calls in the same order, each with rate counts of its own, so that a difference comes
from the policies alone. Knows nothing of where calls are recorded.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from engine.matching.decision import decide
from engine.matching.rate_limit import bucket, is_over, window_start
from engine.matching.ruleset import Ruleset
from engine.model import Decision, Json, Policy, ToolCall

MOST_SHOWN = 100
MOST_BYTES = 2**23
"""Of the recorded calls that are shown, unless the first of them has more."""

Timestamp = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A call as it was recorded: `key` names it for people, `at` is in seconds, `size` are its bytes."""

    key: str
    at: float
    call: ToolCall
    size: int = 0


@dataclass(frozen=True, slots=True)
class ChangedDecision:
    """A call that the two sets decide differently."""

    recorded: Recorded
    old: Decision
    new: Decision

    def as_json(self, timestamp: Timestamp) -> dict[str, Json]:
        document = self.recorded.call.document
        return {
            **{
                name: document[name]
                for name in ("runId", "toolCallId", "toolName", "agentId", "inputPayload")
            },
            "at": timestamp(self.recorded.at),
            "oldAction": self.old.action,
            "newAction": self.new.action,
            "oldReason": self.old.reason,
            "newReason": self.new.reason,
        }


@dataclass(frozen=True, slots=True)
class BacktestReport:
    """`counts` maps (old action, new action) to how many calls; `changes` holds the first of them."""

    calls: int
    counts: dict[tuple[str, str], int]
    changes: tuple[ChangedDecision, ...]
    changed: int

    def as_json(self, timestamp: Timestamp) -> dict[str, Json]:
        """The shape of the contract; `timestamp` writes seconds as people read them."""
        return {
            "calls": self.calls,
            "changed": self.changed,
            "counts": [
                {"old": was, "new": now, "count": count} for (was, now), count in sorted(self.counts.items())
            ],
            "changes": [change.as_json(timestamp) for change in self.changes],
        }


@dataclass(slots=True)
class _Replay:
    """One set of policies with its own sliding windows."""

    ruleset: Ruleset
    _windows: dict[str, deque[float]] = field(default_factory=dict)

    def decide(self, recorded: Recorded) -> Decision:
        call, at = recorded.call, recorded.at

        def over_limit(policy: Policy) -> bool:
            limit = policy.rate_limit
            assert limit is not None
            times = self._windows.setdefault(bucket(policy, call), deque())
            start = window_start(limit, at)
            while times and times[0] <= start:
                times.popleft()
            return is_over(limit, len(times))

        decision = decide(self.ruleset.evaluate(call), over_limit)
        for policy in decision.counted:
            self._windows.setdefault(bucket(policy, call), deque()).append(at)
        return decision


def compare(
    old: Ruleset, new: Ruleset, calls: Iterable[Recorded], most_shown: int = MOST_SHOWN
) -> BacktestReport:
    """Decide every call under both sets. `calls` are in the order of their times."""
    before, after = _Replay(old), _Replay(new)
    counts: Counter[tuple[str, str]] = Counter()
    changes: list[ChangedDecision] = []
    changed = size = 0
    for recorded in calls:
        was, now = before.decide(recorded), after.decide(recorded)
        counts[(was.action, now.action)] += 1
        if was.action != now.action:
            changed += 1
            size += recorded.size
            if not changes or (len(changes) < most_shown and size <= MOST_BYTES):
                changes.append(ChangedDecision(recorded, was, now))
    return BacktestReport(sum(counts.values()), dict(counts), tuple(changes), changed)
