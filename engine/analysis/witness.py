"""Concrete tool calls that fulfil conditions, so that what is said of policies can be shown and repeated.

From what each condition asks of its place in a call, values are proposed that fulfil all that is asked of
that place, a call is made of them, and the engine itself is asked whether the conditions hold. Only then the
call is handed out: a witness is always true, but not every satisfiable set of conditions gets one.

Knows nothing of precedence or of files.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from engine.conditions.compiled import CompiledCondition
from engine.conditions.operators import OPERATORS
from engine.derived.facts import Facts, View
from engine.derived.tools import NO_TOOLS, Tools
from engine.fields.computed import DERIVED
from engine.fields.paths import MEMBERS, parse
from engine.fields.paths import Path as Path
from engine.fields.samples import samples
from engine.matching.goals import ITEM, Goal, Row, Slot, goals
from engine.matching.matcher import CompiledPolicy
from engine.model import ALWAYS_PRESENT, READING_HINTS, ROOTS, Json, ToolCall

ATTEMPTS: Final = 16
MOST_CANDIDATES: Final = 40

ODD: Final[tuple[Json, ...]] = ("odd", {"odd": True}, 7, True, [[]])
"""Of each kind, as conditions on another kind are not made for."""

ABSENT: Final = object()
"""Proposed instead of a value: leave the place out."""

_PROBE: Final = parse("inputPayload.v")
_NAMES: Final = ("some_tool", "Bash", "read_file", "x", "send_email", "7")
_WORDS: Final = ("something else", "x", "a@b.example", 0, 7, True, "ok then")

Accepts = Callable[[ToolCall], bool]


def matching(rule: CompiledPolicy, attempts: int = ATTEMPTS) -> ToolCall | None:
    """A call that the rule matches, with every condition TRUE if such a one is found; enabled or not."""
    seen: list[ToolCall] = []

    def accepts(call: ToolCall) -> bool:
        if rule.actions_only and call.just_reads:
            return False
        verdict = rule.verdict(rule.facts(call))
        if verdict is True:
            return True
        if verdict is not False and not rule.tolerant:
            seen.append(call)
        return False

    found = next(satisfying(rule.conditions, accepts=accepts, attempts=attempts), None)
    return found or (seen[0] if seen else None)


def satisfying(
    conditions: Sequence[CompiledCondition],
    unmet: Sequence[CompiledCondition] = (),
    *,
    accepts: Accepts | None = None,
    attempts: int = ATTEMPTS,
    tools: Tools = NO_TOOLS,
) -> Iterator[ToolCall]:
    """Different calls on which `conditions` are TRUE and `unmet` FALSE, or which `accepts` takes instead."""
    alternatives = _alternatives(conditions, unmet)
    if not alternatives:
        return
    draw = random.Random(0)
    seen: set[str] = set()
    for attempt in range(max(attempts, min(len(alternatives), 2 * attempts))):
        wanted = alternatives[attempt % len(alternatives)]
        document = _document(wanted, draw if attempt >= len(alternatives) else None, attempt)
        if document is None:
            continue
        call = ToolCall.of(**document)
        name = repr(document)
        if name in seen:
            continue
        seen.add(name)
        if accepts(call) if accepts is not None else _holds(Facts(call.document, tools), conditions, unmet):
            yield call


def _holds(facts: Facts, conditions: Sequence[CompiledCondition], unmet: Sequence[CompiledCondition]) -> bool:
    return all(each.evaluate(facts) is True for each in conditions) and all(
        each.evaluate(facts) is False for each in unmet
    )


# ---- what is asked of which place ----------------------------------------------------------------------


def _alternatives(conditions: Sequence[CompiledCondition], unmet: Sequence[CompiledCondition]) -> list[Row]:
    found: list[Row] = [()]
    for condition, truth in [*((each, True) for each in conditions), *((each, False) for each in unmet)]:
        rows = _asked(condition, truth)
        found = [(*before, *row) for before in found for row in rows][: 2 * ATTEMPTS]
    return found


def _asked(condition: CompiledCondition, truth: bool) -> list[Row]:
    rows = goals(condition, truth)
    if condition.path is not None and condition.path.root == DERIVED:
        # A call without a command avoids it; of what exists nothing more is known.
        rows = [tuple(goal for goal in row if not goal.avoids and goal.operator != "exists") for row in rows]
    return rows


# ---- a call from goals ----------------------------------------------------------------------------------


def _document(row: Row, draw: random.Random | None, attempt: int) -> dict[str, Json] | None:
    places: dict[Slot, list[Goal]] = {}
    for goal in row:
        places.setdefault(goal.slot, []).append(goal)
    made: dict[str, Json] = {}
    # The deeper first: where a place has others below it, what it asks for goes into one more child.
    for slot in sorted(places, key=lambda slot: (-len(slot), slot)):
        asked = places[slot]
        holder = ROOTS.get(slot[-1]) == "object" if len(slot) == 1 else any(_below(slot, o) for o in places)
        if holder:
            asked = [w for w in asked if not w.operator.startswith("not_") and w.operator != "exists"]
            if any(w.operator == "absent" for w in asked):
                return None
            whole = [w for w in asked if w.operator in ("equals", "in", "size")]
            if not asked:
                if not _put(made, slot, {}, missing_only=True):
                    return None
                continue
            if not whole:
                slot = (*slot, "text")
        values = _values(slot, asked, draw)
        if values is None:
            return None
        if not values:
            continue
        value = draw.choice(values) if draw else values[0]
        if value is not ABSENT and not _put(made, slot, value):
            return None
    if "toolName" not in made:
        made["toolName"] = _NAMES[attempt % len(_NAMES)] if draw else _NAMES[0]
    return made


def _below(slot: Slot, other: Slot) -> bool:
    return len(other) > len(slot) and other[: len(slot)] == slot


def _put(document: dict[str, Json], slot: Slot, value: Json, missing_only: bool = False) -> bool:
    """Set a place; False when something of another kind stands in the way."""
    if len(slot) == 2 and MEMBERS.get(slot[0], {}).get(slot[1]) == "list" and not isinstance(value, list):
        value = [value]
    here: Any = document
    for step, following in zip(slot, [*slot[1:], None], strict=True):
        if step == ITEM:
            if not isinstance(here, list):
                return False
            key: Any = 0
            if not here:
                here.append(None)
            old = here[0]
        else:
            if not isinstance(here, dict):
                return False
            key, old = step, here.get(step)
        if following is None:
            if old is not None and (missing_only or isinstance(old, (dict, list))):
                return missing_only or old == value
            here[key] = value
            return True
        if old is None:
            old = here[key] = [] if following == ITEM else {}
        here = old
    return False


# ---- values for one place ----------------------------------------------------------------------------------


def _values(slot: Slot, asked: list[Goal], draw: random.Random | None) -> list[Any] | None:
    """Values that fulfil all that is asked of one place; empty: leave it; None: there is none."""
    if any(goal.operator == "absent" for goal in asked):
        return (
            None if any(not w.operator.startswith("not_") and w.operator != "absent" for w in asked) else []
        )
    sizes = {goal.value for goal in asked if goal.operator == "size"}
    if sizes:
        size = max(sizes)
        return [["x"] * size, "x" * size, {f"k{n}": n for n in range(size)}]
    text_only = len(slot) == 1 and ROOTS.get(slot[0]) == "text"
    wanted = [w for w in asked if not w.operator.startswith("not_") and w.operator != "exists"]
    refused = [w for w in asked if w.operator.startswith("not_")]
    tests = [_test(goal.operator, _frozen(goal.value)) for goal in (*wanted, *refused)]
    found: list[Any] = []
    single = [*_candidates(slot, wanted, draw)]
    for value in single:
        if text_only:
            value = value if isinstance(value, str) else str(value)
            if slot[0] == "actionHint" and not wanted and value.strip().lower() in READING_HINTS:
                continue
        if all(test(value) for test in tests) and value not in found:
            found.append(value)
    if not found and len(wanted) > 1 and not text_only:
        # No one value: a list with one for each, which is what conditions on lists mean.
        each = [_values(slot, [goal], draw) or [] for goal in wanted]
        if all(each):
            together = [values[0] for values in each]
            if all(test(together) for test in tests):
                found.append(together)
    optional = slot[0] not in ALWAYS_PRESENT if text_only else all(w.operator != "exists" for w in asked)
    if not wanted and optional:
        found.append(ABSENT)
    return found or None


def _candidates(slot: Slot, wanted: list[Goal], draw: random.Random | None) -> Iterator[Any]:
    if not wanted:
        yield from _NAMES if slot == ("toolName",) else _WORDS
        return
    texts: dict[str, list[str]] = {"starts_with": [], "contains": [], "ends_with": []}
    for goal in wanted:
        if goal.operator == "equals":
            yield goal.value
        elif goal.operator == "in":
            yield from (
                goal.value[:MOST_CANDIDATES]
                if draw is None
                else draw.sample(goal.value, min(len(goal.value), MOST_CANDIDATES))
            )
        elif goal.operator in texts:
            texts[goal.operator].append(goal.value)
        elif goal.operator != "matches":
            step = 1 if goal.operator.startswith("greater") else -1
            yield goal.value + step
            yield goal.value
            yield goal.value + step * 0.5
    patterns = [goal.value for goal in wanted if goal.operator == "matches"]
    seed = draw.randrange(1 << 30) if draw else 0
    if not patterns and not any(texts.values()):
        return
    start = max(texts["starts_with"], key=len, default="")
    end = max(texts["ends_with"], key=len, default="")
    for picks in _together([samples(pattern, seed) for pattern in patterns]):
        middle = [*texts["contains"], *picks]
        for between in ("", " ") if len(middle) + bool(start) + bool(end) > 1 else ("",):
            yield start + between.join(middle) + end
            if start or end:
                yield start + between + between.join(middle) + between + end
        yield from picks
        if not start and not end:
            whole = " ".join(middle)
            yield from (f"x {whole}", f"{whole} x", f"x {whole} x")
    if start and end:
        yield from (start, end, f"{end} {start}")
    elif start or end:
        yield start or end
        yield f"{start} x" if start else f"x {end}"


def _together(rows: list[Iterator[str]]) -> Iterator[tuple[str, ...]]:
    """The first of each, the second of each, ...; a row that ends repeats its last."""
    if not rows:
        yield ()
        return
    last: list[str | None] = [None] * len(rows)
    for _ in range(MOST_CANDIDATES):
        moved = False
        for at, row in enumerate(rows):
            text = next(row, None)
            if text is not None:
                last[at], moved = text, True
        if not moved or any(text is None for text in last):
            return
        yield tuple(text for text in last if text is not None)


def _frozen(value: Json) -> Any:
    """As something that can be a key of a cache; lists become tuples."""
    if isinstance(value, list):
        return ("list", tuple(map(_frozen, value)))
    if isinstance(value, dict):
        return ("dict", tuple((key, _frozen(each)) for key, each in value.items()))
    return (type(value).__name__, value)


def _thawed(frozen: Any) -> Json:
    kind, value = frozen
    if kind == "list":
        return list(map(_thawed, value))
    if kind == "dict":
        return {key: _thawed(each) for key, each in value}
    return value


@lru_cache(maxsize=8192)
def _test(operator: str, frozen: Any) -> Callable[[Any], bool]:
    """Whether a value by itself satisfies an operator of the table, or its negation by `not_`."""
    negated = operator.startswith("not_") and operator not in OPERATORS
    value = _thawed(frozen)
    known = OPERATORS[operator.removeprefix("not_") if negated else operator]
    if negated and not known.takes_value:
        value = None
    wanted = known.prepare(value)

    def holds(candidate: Any) -> bool:
        return known.test(View(_PROBE, (candidate,)), wanted) is (not negated)

    return holds


# ---- calls nearby ------------------------------------------------------------------------------------------


def without(call: ToolCall, path: Path) -> ToolCall:
    """The call with what the path leads to left out."""
    return ToolCall(_without(call.document, (path.root, *path.segments)))


def _without(value: Json, steps: tuple[str, ...]) -> Json:
    key, rest = steps[0], steps[1:]
    if isinstance(value, list):
        return [_without(item, steps) for item in value]
    if not isinstance(value, dict) or key not in value:
        return value
    if not rest:
        return {name: each for name, each in value.items() if name != key}
    return {**value, key: _without(value[key], rest)}


def faulty(call: ToolCall, path: Path) -> Iterator[ToolCall]:
    """The call with values at the path that conditions cannot be evaluated on, and without one."""
    bare = without(call, path)
    yield bare
    for odd in ODD:
        document: dict[str, Json] = copy.deepcopy(dict(bare.document))
        if _put(document, (path.root, *path.segments), odd):
            yield ToolCall(document)


def shown(call: ToolCall) -> dict[str, Json]:
    """The roots of a call that say something; what `ToolCall.of` fills in by itself is left out."""
    return {
        root: value
        for root, value in call.document.items()
        if root in ("toolName", "inputPayload")
        or (root in ROOTS and (value != "" or root not in ALWAYS_PRESENT))
    }


def paths_of(conditions: Iterable[CompiledCondition]) -> Mapping[str, Path]:
    """The paths that conditions in the field form name, by their text."""
    return {each.path.text: each.path for each in conditions if each.path is not None}
