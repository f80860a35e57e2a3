"""An immutable snapshot of all policies of one organisation: what matches a call, and under which digest.

A change makes a new snapshot that shares nearly everything with the old one; whoever holds the old one is
undisturbed. Knows nothing of files, revisions' meaning, or rate limits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import msgspec

from engine.errors import ConditionError, DocumentError, Problem
from engine.matcher import Matcher, Rule
from engine.model import Evaluation, Match, Policy, ToolCall

_MODULUS = 1 << 2048


def fingerprint(policy: Policy) -> int:
    """2048 bits that stand for a policy's whole content."""
    try:
        content = msgspec.json.encode(policy, order="deterministic")
    except (TypeError, ValueError, OverflowError, RecursionError):  # integers beyond 64 bits, lone surrogates
        content = json.dumps(asdict(policy), sort_keys=True, default=str).encode()
    return int.from_bytes(hashlib.shake_256(content).digest(256), "big")


def compile_rules(policies: Iterable[Policy]) -> list[Rule]:
    """Compile all; raises one DocumentError with every problem of every policy."""
    rules: list[Rule] = []
    problems: list[Problem] = []
    for policy in policies:
        try:
            rules.append(Rule.of(policy))
        except ConditionError as error:
            problems.append(Problem(f"policy `{policy.policy_id}`: {error.message}", "/matchConditions"))
    if problems:
        raise DocumentError(problems)
    return rules


class Ruleset:
    """Policies, compiled. Construct with `build`; never changes."""

    def __init__(self, policies: Mapping[str, Policy], total: int, matcher: Matcher, revision: int) -> None:
        self.policies = policies
        self.revision = revision
        self._total = total
        self._matcher = matcher

    @classmethod
    def build(cls, policies: Iterable[Policy], revision: int = 0) -> Ruleset:
        """Compile a whole set; raises DocumentError naming every policy that does not compile."""
        by_id = {policy.policy_id: policy for policy in policies}
        total = sum(fingerprint(policy) for policy in by_id.values()) % _MODULUS
        return cls(by_id, total, Matcher(compile_rules(by_id.values())), revision)

    @property
    def digest(self) -> str:
        """Equal for equal sets of policies, whatever the order they were loaded in."""
        return hashlib.sha256(self._total.to_bytes(256, "big")).hexdigest()

    def changed(self, changes: Mapping[str, Policy | None], revision: int) -> Ruleset:
        """The set after some policies were added, replaced, or (None) removed."""
        merged = {**self.policies, **changes}
        return Ruleset.build((policy for policy in merged.values() if policy is not None), revision)

    def evaluate(self, call: ToolCall) -> Evaluation:
        """Everything that matches the call, through the index."""
        return _evaluation(self._matcher.match(call))

    def scan(self, call: ToolCall) -> Evaluation:
        """What `evaluate` must answer, by the plain loop."""
        return _evaluation(self._matcher.scan(call))

    @property
    def needs_compaction(self) -> bool:
        """Enough changes have gathered that `compacted()` is worth its while."""
        return False

    def compacted(self) -> Ruleset:
        """The same set with everything in the big index; meant for a background thread."""
        return self

    def stats(self) -> dict[str, Any]:
        """Counts for `lint` and `/metrics`."""
        return {"policies": len(self.policies)}


def _evaluation(matches: list[Match]) -> Evaluation:
    matches.sort(key=lambda match: match.order)
    return Evaluation(
        tuple(match for match in matches if match.policy.mode == "enforce"),
        tuple(match for match in matches if match.policy.mode == "shadow"),
    )
