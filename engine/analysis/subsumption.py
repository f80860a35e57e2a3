"""What is proven of a policy's conditions together: never met, partly needless, covered by another policy.

Decides how claims about single conditions (`implication`) add up under the three-valued rule of matching.
Proves only; whether calls bear it out is asked elsewhere. Knows nothing of actions, rate limits or files.

INVARIANT: what is claimed holds for every call; what holds need not be claimed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from engine.analysis.implication import OPEN, TRUE, Claim, Level, claims, every_text, excludes, implies
from engine.conditions.compiled import CompiledCondition
from engine.conditions.operands import show
from engine.derived.facts import Facts
from engine.fields.scalars import number_of, text_of
from engine.matching.matcher import CompiledPolicy
from engine.model import READING_HINTS, Json


def covers(stronger: CompiledPolicy, weaker: CompiledPolicy) -> bool:
    """Proven: whatever call `weaker` matches, `stronger` matches. Says nothing of actions or rate limits."""
    if stronger.actions_only and not weaker.actions_only:
        return False
    given: Level = TRUE if weaker.tolerant else OPEN
    wanted: Level = TRUE if stronger.tolerant else OPEN
    known = [claim for condition in weaker.conditions for claim in claims(condition)]
    return all(
        any(implies(mine, claim, given, wanted) for mine in known)
        for condition in stronger.conditions
        for claim in claims(condition)
    )


def redundant(rule: CompiledPolicy) -> list[tuple[int, int]]:
    """Pairs of conditions (by index): the first changes nothing, since the second implies it."""
    level: Level = TRUE if rule.tolerant else OPEN
    found: list[tuple[int, int]] = []
    gone: set[int] = set()
    parts = [claims(condition) for condition in rule.conditions]
    for index, mine in enumerate(parts):
        for other, theirs in enumerate(parts):
            if other == index or other in gone:
                continue
            if all(any(implies(each, claim, level, level) for each in theirs) for claim in mine):
                found.append((index, other))
                gone.add(index)
                break
    return found


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Conditions (by index) that never all hold, and why in words."""

    conditions: tuple[int, ...]
    why: str


def contradiction(rule: CompiledPolicy) -> Contradiction | None:
    """Proven: no call matches the rule. None when that is not proven."""
    level: Level = TRUE if rule.tolerant else OPEN
    parts = [(index, claim) for index, each in enumerate(rule.conditions) for claim in claims(each)]
    for index, claim in parts:
        if not claim.reads and not _keeps(claim, Facts({}), level):
            return Contradiction((index,), f"`{claim.text}` never holds")
    for place, (index, claim) in enumerate(parts):
        for other, theirs in parts[place + 1 :]:
            if excludes(claim, theirs, level):
                where = "" if index != other else " of the same expression"
                return Contradiction(
                    tuple(sorted({index, other})),
                    f"`{claim.text}` and `{theirs.text}`{where} exclude each other",
                )
    return _exhausted(rule, parts, level)


def _exhausted(
    rule: CompiledPolicy, parts: Sequence[tuple[int, Claim]], level: Level
) -> Contradiction | None:
    """Each value that one condition allows is refused by another."""
    for index, claim in parts:
        texts = every_text(claim.form) if claim.form is not None else None
        if texts is None:
            continue
        root = next(iter(claim.reads))
        others = [(at, each) for at, each in parts if each is not claim and each.reads == {root}]
        skipped = rule.actions_only and root == "actionHint"
        involved: set[int] = {index}
        for text in texts:
            if skipped and text.strip().lower() in READING_HINTS:
                continue
            facts = Facts({root: text})
            refusing = next((at for at, each in others if not _keeps(each, facts, level)), None)
            if refusing is None:
                break
            involved.add(refusing)
        else:
            if involved == {index} and skipped:
                return Contradiction((index,), f"`scope: action_only` skips every call with `{claim.text}`")
            shown = show(texts[0]) if len(texts) == 1 else "none of the values"
            verb = "does not satisfy" if len(texts) == 1 else f"of `{claim.text}` satisfies"
            rest = " and ".join(f"`{rule.conditions[at].text}`" for at in sorted(involved - {index}))
            return Contradiction(tuple(sorted(involved)), f"{shown} {verb} {rest or 'itself'}")
    return None


def _keeps(claim: Claim, facts: Facts, level: Level) -> bool:
    verdict = claim.evaluate(facts)
    return verdict is True or (level == OPEN and verdict is not False)


_WORDS: Final = {"null": None, "true": True, "false": False}


def needs_list(conditions: Sequence[CompiledCondition]) -> bool:
    """Proven: no single value that is not a list makes all of these (positive, on one path) TRUE."""
    for one in conditions:
        assert one.operator is not None and one.path is not None
        if one.operator.name not in ("equals", "in"):
            continue
        choices = one.condition.value if one.operator.name == "in" else [one.condition.value]
        if any(isinstance(choice, (list, dict)) for choice in choices):
            return False
        # A value that equals a choice is the choice, or its text or number under another spelling.
        spelled = [*choices, *map(text_of, choices), *(n for c in choices if (n := number_of(c)) is not None)]
        spelled += [same for each in spelled for same in _same_numbers(each)]
        spelled += [_WORDS[each] for each in spelled if isinstance(each, str) and each in _WORDS]
        if not any(all(each.evaluate(_alone(each, s)) is True for each in conditions) for s in spelled):
            return True
    numeric = [(each.operator.name, each.condition.value) for each in conditions if each.operator]
    low = [(value, not name.endswith("equal")) for name, value in numeric if name.startswith("greater")]
    high = [(value, not name.endswith("equal")) for name, value in numeric if name.startswith("less")]
    if low and high:
        (bottom, open_low), (top, open_high) = max(low), min(high, key=lambda each: (each[0], not each[1]))
        if bottom > top or (bottom == top and (open_low or open_high)):
            return True
    return False


def _same_numbers(value: Json) -> Iterable[int | float]:
    """Numbers that equal a number and are written differently."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return ()
    if value == 0:
        return (0, 0.0, -0.0)
    if isinstance(value, float):
        return (int(value),) if value.is_integer() else ()
    return (float(value),) if abs(value) < 1 << 1023 and float(value) == value else ()


def _alone(condition: CompiledCondition, value: Json) -> Facts:
    assert condition.path is not None
    document: Json = value
    for step in reversed((condition.path.root, *condition.path.segments)):
        document = {step: document}
    return Facts(document)


def known_paths(rule: CompiledPolicy) -> Iterable[tuple[int, CompiledCondition]]:
    """The conditions in the field form, with their indexes."""
    return ((at, each) for at, each in enumerate(rule.conditions) if each.path is not None)
