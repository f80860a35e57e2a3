"""An immutable snapshot of all policies of one organisation: what matches a call, and under which digest.

A change makes a new snapshot that shares nearly everything with the old one; whoever holds the old one is
undisturbed. Changes gather in an overlay; when `needs_compaction`, whoever owns the current snapshot builds
`compacted()` aside and swaps in `compacted.following(current)`, which brings the changes made meanwhile.

Knows nothing of files, of what a revision means, of precedence or of rate limits.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from engine.canonical_json import canonical_json
from engine.conditions.settings import NO_SETTINGS
from engine.derived.tools import ANNOTATIONS, Tools
from engine.errors import ConditionError, DocumentError, Problem
from engine.gc_pause import gc_paused
from engine.matching.explain import Explanation, explain
from engine.matching.matcher import CompiledPolicy, Matcher
from engine.matching.sequence import needs_of
from engine.model import Evaluation, Match, OrganisationSettings, Policy, ToolCall, ToolSet

COMPACT_FROM: Final = 256
"""So many changes make every evaluation dearer by some 10 µs, which is worth a rebuild."""

OFTEN: Final = 0.0002
"""Seconds after which a rebuild in the background hands the interpreter to whoever waits for it."""

_USUAL: Final = sys.getswitchinterval()
_BITS: Final = 2048
_MODULUS: Final = 1 << _BITS


class Ruleset:
    """Policies, compiled and indexed. Make one with `build`; it never changes.

    `digest` stands for the whole set: equal sets have equal digests, whatever order they were loaded in.
    It is the SHA-256 of the sum, modulo 2^2048, of a 2048-bit hash of each policy; a sum, so that a change
    costs two hashes, and so wide, because sums of short hashes can be forged.
    """

    __slots__ = (
        *("_made_of", "_matcher", "_roots", "_total"),
        *("digest", "needs", "policies", "revision", "settings"),
    )

    def __init__(
        self, matcher: Matcher, total: int, revision: int, settings: OrganisationSettings = NO_SETTINGS
    ) -> None:
        self._matcher = matcher
        self.settings = settings
        self._total = total
        self._made_of: Mapping[str, CompiledPolicy] | None = None
        self._roots: frozenset[str] | None = None
        self.revision = revision
        self.policies: Mapping[str, Policy] = _Policies(matcher.rules)
        self.needs = needs_of((rule.policy, rule.after, rule.values) for rule in matcher.flows.values())
        """What the policies want to know of runs."""
        self.digest = hashlib.sha256(total.to_bytes(_BITS // 8, "big")).hexdigest()

    @classmethod
    def build(
        cls,
        policies: Iterable[Policy],
        revision: int = 0,
        tools: Iterable[ToolSet] = (),
        settings: OrganisationSettings = NO_SETTINGS,
    ) -> Ruleset:
        """Compile and index a whole set, with the declarations of tools that it reads `tool.*` and
        `derived.*` by, and the settings of the organisation. Of two policies with one id the later counts;
        see `derived.tools` for two declarations.

        Raises DocumentError with a problem for every policy that does not compile.
        """
        by_id = {policy.policy_id: policy for policy in policies}
        with gc_paused(len(by_id)):
            declared = Tools(tools)
            rules = _compiled(by_id, declared, settings)
            total = sum(fingerprint(rule.policy) for rule in rules.values())
            total += sum(map(fingerprint, declared.sets))
            return cls(Matcher(rules, declared), total % _MODULUS, revision, settings)

    # ---- evaluation ------------------------------------------------------------------------------------

    def evaluate(self, call: ToolCall) -> Evaluation:
        """Everything that matches the call. Never raises, whatever JSON the call holds."""
        return _evaluation(self._matcher.match(call))

    def scan(self, call: ToolCall) -> Evaluation:
        """What `evaluate` must answer, by the plain loop over all policies."""
        return _evaluation(self._matcher.scan(call))

    @property
    def tools(self) -> Tools:
        """The declarations of tools; another set of them needs another `build`."""
        return self._matcher.tools

    @property
    def rules(self) -> Mapping[str, CompiledPolicy]:
        """The compiled policies by id, disabled ones included."""
        return self._matcher.rules

    @property
    def roots(self) -> frozenset[str]:
        """The roots of a call that enabled policies look at, also those that no condition names: `actionHint`
        by a scope, `toolAnnotations` by `tool.effect`."""
        if self._roots is None:
            enabled = [rule for rule in self._matcher.rules.values() if rule.policy.enabled]
            found = {root for rule in enabled for condition in rule.conditions for root in condition.roots}
            found |= {"actionHint"} if any(rule.policy.scope == "action_only" for rule in enabled) else set()
            self._roots = frozenset(found | ({ANNOTATIONS} if "tool" in found else set()))
        return self._roots

    def rules_that_ask(self) -> list[CompiledPolicy]:
        """Those that ask where values were first seen."""
        return [rule for rule in self._matcher.flows.values() if rule.values]

    def matching(self, call: ToolCall) -> list[CompiledPolicy]:
        """The rules of every policy that `evaluate` speaks of, in no particular order, without the words."""
        return self._matcher.matching(call) or []

    def matching_few(self, call: ToolCall, most: int) -> list[CompiledPolicy] | None:
        """The same; None where more than `most` policies would have to be asked."""
        return self._matcher.matching(call, most)

    def explain(self, call: ToolCall, policy_id: str | None = None) -> list[Explanation]:
        """Why each policy (or one) matches the call or does not; strongest first, then by name."""
        rules = self._matcher.rules
        chosen = rules.values() if policy_id is None else [rules[policy_id]] if policy_id in rules else []
        return sorted((explain(rule, call) for rule in chosen), key=lambda each: each.policy.order)

    # ---- changes ---------------------------------------------------------------------------------------

    def changed(
        self,
        changes: Mapping[str, Policy | None],
        revision: int,
        settings: OrganisationSettings | None = None,
    ) -> Ruleset:
        """The set after policies were added or replaced, or (None) removed. With other `settings` the changes
        must hold every policy that reads one that differs.

        Raises DocumentError; this snapshot stays as it was in any case.
        """
        rules: dict[str, CompiledPolicy | None] = dict.fromkeys(changes)
        came = {key: policy for key, policy in changes.items() if policy is not None}
        settings = self.settings if settings is None else settings
        rules.update(_compiled(came, self.tools, settings))
        total = self._total
        for policy_id, rule in rules.items():
            old = self._matcher.rules.get(policy_id)
            total += (fingerprint(rule.policy) if rule else 0) - (fingerprint(old.policy) if old else 0)
        return Ruleset(self._matcher.changed(rules), total % _MODULUS, revision, settings)

    @property
    def needs_compaction(self) -> bool:
        """So much has changed since the big index was built that `compacted()` is worth its while."""
        return self._matcher.overlay >= COMPACT_FROM

    def compacted(self) -> Ruleset:
        """The same set, all of it in the big index. Takes seconds at 100,000 policies: call it in a thread,
        then swap in what `following` makes of it."""
        rules = self._matcher.rules
        sys.setswitchinterval(OFTEN)  # other threads need not wait their usual 5 ms for every turn
        try:
            with gc_paused(len(rules)):
                made = Ruleset(Matcher(rules.flat(), self.tools), self._total, self.revision, self.settings)
        finally:
            sys.setswitchinterval(_USUAL)
        made._made_of = rules.base
        return made

    def following(self, current: Ruleset) -> Ruleset:
        """This set brought up to `current`: what differs goes into the overlay."""
        mine, theirs = self._matcher.rules, current._matcher.rules
        # When nothing else was compacted meanwhile, only what lies on top over there can differ.
        keys = theirs.top.keys() if theirs.base is self._made_of else mine.keys() | theirs.keys()
        rules = {key: theirs.get(key) for key in keys if mine.get(key) is not theirs.get(key)}
        return Ruleset(self._matcher.changed(rules), current._total, current.revision, current.settings)

    # ---- statistics ------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Counts for `lint` and `/metrics`: `policies`, `enabled`, `unindexed` (ids of policies that every
        call, or every call with some path, has to be tested against) and
        `overlay` (changes that the big index does not have yet)."""
        rules = self._matcher.rules
        unindexed: set[str] = set()
        for index in self._matcher.indexes():
            unindexed.update(
                rule.policy.policy_id for rule in index.unindexed if rules.get(rule.policy.policy_id) is rule
            )
        return {
            "policies": len(rules),
            "enabled": sum(rule.policy.enabled for rule in rules.values()),
            "unindexed": sorted(unindexed),
            "overlay": self._matcher.overlay,
        }


class _Policies(Mapping[str, Policy]):
    """Policies by id, seen through their rules."""

    __slots__ = ("_rules",)

    def __init__(self, rules: Mapping[str, CompiledPolicy]) -> None:
        self._rules = rules

    def __getitem__(self, key: str) -> Policy:
        return self._rules[key].policy

    def __contains__(self, key: object) -> bool:
        return key in self._rules

    def __iter__(self) -> Iterator[str]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)


def fingerprint(policy: Policy | ToolSet) -> int:
    """2048 bits that stand for the whole content of a policy or of a set of tools."""
    return int.from_bytes(hashlib.shake_256(canonical_json(policy)).digest(_BITS // 8), "big")


def _compiled(
    policies: Mapping[str, Policy], tools: Tools, settings: OrganisationSettings
) -> dict[str, CompiledPolicy]:
    rules: dict[str, CompiledPolicy] = {}
    problems: list[Problem] = []
    for policy_id, policy in policies.items():
        try:
            rules[policy_id] = CompiledPolicy.of(policy, tools, settings)
        except ConditionError as error:
            problems.append(Problem(f"policy `{policy_id}`: {error.message}", "/matchConditions"))
    if problems:
        raise DocumentError(problems)
    return rules


_NOTHING: Final = Evaluation()


def _evaluation(matches: list[Match]) -> Evaluation:
    if not matches:
        return _NOTHING
    if len(matches) > 1:
        matches.sort(key=lambda match: match.policy.order)
    shadow = tuple([match for match in matches if match.policy.mode == "shadow"])
    if shadow:
        matches = [match for match in matches if match.policy.mode == "enforce"]
    return Evaluation(tuple(matches), shadow)
