"""The smallest change of a call that turns one condition's verdict over, found by trying.

Changes are proposed from what the condition asks (see `goals`), smallest first; each is made, and the
condition evaluated on the changed document. The first that turns the verdict is the answer, so an answer with
changes is always true, and it is one that a caller could make. Where no concrete document was found the
answer only says what is needed.

Knows nothing of policies or of the index.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from json import dumps
from typing import Final

from engine.cel.term import Term
from engine.conditions.compiled import CompiledCondition
from engine.conditions.operands import show
from engine.derived.facts import Facts
from engine.derived.tools import NO_TOOLS, Tools
from engine.errors import ConditionError
from engine.fields.paths import MEMBERS, Path, canonical, parse, text_of
from engine.fields.pattern import compile_pattern
from engine.fields.samples import samples
from engine.fields.scalars import shorten
from engine.matching.goals import COMMAND, ITEM, Goal, Row, Slot, expression_goals, goals
from engine.model import ALWAYS_PRESENT, ROOTS, Fault, Json
from schemas.suggestion import closest

REMOVED: Final = object()
"""Stands for a value that is taken away."""

SOMETHING_ELSE: Final = "something else"
LONGEST_SHOWN: Final = 80
DEEPEST: Final = 64
MOST_CUTS: Final = 100
MOST_TRIED: Final = 64
"""Changed documents that are tried for one alternative."""


@dataclass(frozen=True, slots=True)
class FieldChange:
    """Set `field` to `value`, or (`removed`) take it away."""

    field: str
    value: Json = None
    removed: bool = False

    def __str__(self) -> str:
        if self.removed:
            return f"remove `{self.field}`"
        if isinstance(self.value, dict) and len(text := dumps(self.value)) <= LONGEST_SHOWN:
            return f"set `{self.field}` to {shorten(text)}"
        return f"set `{self.field}` to {show(self.value)}"

    def as_json(self) -> dict[str, Json]:
        return {"field": self.field} | ({"removed": True} if self.removed else {"value": self.value})


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """What would turn a condition over: in words, and as changes that were tried (none: words only)."""

    text: str
    changes: tuple[FieldChange, ...] = ()

    def as_json(self) -> dict[str, Json]:
        return {"text": self.text, "changes": [change.as_json() for change in self.changes]}


def counterfactual(
    condition: CompiledCondition, document: Mapping[str, Json], tools: Tools = NO_TOOLS
) -> Counterfactual:
    """What turns a condition that holds into one that does not, and anything else into one that holds."""
    wanted = condition.evaluate(Facts(document, tools)) is not True
    for edits, changed in _proposals(condition, document, wanted):
        if condition.evaluate(Facts(changed, tools)) is wanted:
            changes = tuple({path: _change(path, document, changed) for path, _ in edits}.values())
            return Counterfactual(" and ".join(map(str, changes)), changes)
    if not goals(condition, wanted) or _asks_the_impossible(condition):
        return Counterfactual("no call turns it over")
    if condition.path is not None:
        return Counterfactual(
            f"`{condition.path}` must {'be so' if wanted else 'not be so'} that `{condition.text}` holds"
        )
    return Counterfactual(f"make `{condition.text}` {'true' if wanted else 'false'}")


Edit = tuple[Path, Json]
"""A path and its new value, REMOVED, or a function of each old value."""

Proposal = tuple[list[Edit], Mapping[str, Json]]
"""Edits, and the document that they make."""


def _proposals(
    condition: CompiledCondition, document: Mapping[str, Json], wanted: bool
) -> Iterator[Proposal]:
    if condition.expression is None:
        yield from _edited(goals(condition, wanted, _command_slot(document)), document)
    elif condition.expression.computed:
        return  # nobody sends what is computed
    elif wanted:
        yield from _terms_met(condition.expression.terms, document)
    else:
        for term in condition.expression.terms:
            yield from _edited(expression_goals(term.text, False), document)


def _terms_met(terms: Sequence[Term], document: Mapping[str, Json]) -> Iterator[Proposal]:
    """Every term that does not hold made to hold, one after the other."""
    edits: list[Edit] = []
    for term in terms:
        if term.evaluate(document) is not True:
            proposals = _edited(expression_goals(term.text, True), document)
            met = next((each for each in proposals if term.evaluate(each[1]) is True), None)
            if met is None:
                return
            edits, document = edits + met[0], met[1]
    yield edits, document


def _edited(rows: Sequence[Row], document: Mapping[str, Json]) -> Iterator[Proposal]:
    """The document with the goals of a row put in force, in every way that comes to mind."""
    for row in rows:
        choices = [
            [(path, _fitting(path, value)) for value in _values(goal, path, document)]
            for goal, path in _needed(row, document)
        ]
        for edits in islice(product(*choices), MOST_TRIED):
            changed: Mapping[str, Json] | None = document
            for path, value in edits:
                changed = None if changed is None else _changed(changed, path, value)
            if edits and changed is not None and all(_possible(path, changed) for path, _ in edits):
                yield list(edits), changed


_TEXT_OPERATORS: Final = frozenset({"contains", "starts_with", "ends_with", "matches"})
_KINDS: Final[Mapping[str, type]] = {"text": str, "object": dict, "list": list}


def _kind(path: Path) -> str | None:
    """The kind of value that a call must have at the path; None for any."""
    if not path.segments:
        return ROOTS[path.root]
    return MEMBERS.get(path.root, {}).get(path.segments[0]) if len(path.segments) == 1 else None


def _fitting(path: Path, value: Json) -> Json:
    """A value as the path can have it: a text for a number, a list of one."""
    kind = _kind(path)
    if callable(value) and kind == "object":
        return lambda old: _each_text(old, value)
    if kind is None or value is REMOVED or callable(value) or isinstance(value, _KINDS[kind]):
        return value
    return text_of(value) if kind == "text" else [value] if kind == "list" else {"x": value}


def _each_text(value: Json, change: Callable[[Json], Json], levels: int = DEEPEST) -> Json:
    """An object with every text in it changed, so many levels deep."""
    if isinstance(value, dict) and levels:
        return {key: _each_text(each, change, levels - 1) for key, each in value.items()}
    if isinstance(value, list) and levels:
        return [_each_text(each, change, levels - 1) for each in value]
    return change(value) if isinstance(value, str) else value


def _asks_the_impossible(condition: CompiledCondition) -> bool:
    """Whether an object is compared with nothing but other values, which it never equals."""
    if condition.path is None or condition.operator is None or _kind(condition.path) != "object":
        return False
    name, value = condition.operator.name.removeprefix("not_"), condition.condition.value
    wanted = [value] if name == "equals" else value if name == "in" else [{}]
    return not any(isinstance(each, dict) for each in wanted)


def _possible(path: Path, document: Mapping[str, Json]) -> bool:
    """Whether a call may have what is there now."""
    kind = _kind(path)
    ends = Facts(document).at(path).ends
    return kind is None or all(isinstance(end, _KINDS[kind]) for end in ends)


def _needed(row: Row, document: Mapping[str, Json]) -> Iterator[tuple[Goal, Path]]:
    """The goals of a row with their paths; that something exists follows from most other goals about it."""
    others = {goal.slot for goal in row if goal.operator != "exists"}
    for goal in row:
        if goal.operator == "exists" and goal.slot in others:
            continue
        if goal.slot[-1] == ITEM and goal.operator == "equals":
            holder = _path(goal.slot[:-1])
            if holder is not None and [end for end in Facts(document).at(holder).ends if end] == []:
                yield Goal(goal.slot[:-1], "equals", [goal.value]), holder
                continue
        slot = goal.slot
        if slot == ("inputPayload",) and goal.operator in _TEXT_OPERATORS:
            slot = _command_slot(document)  # a payload is no text, but one of its members can be
        path = _path(slot)
        if path is not None:
            yield goal, path


def _path(slot: Slot) -> Path | None:
    try:
        return parse(canonical(slot[0], ["0" if step == ITEM else step for step in slot[1:]]))
    except ConditionError:
        return None  # a place that no path names, such as the whole of `user`


def _command_slot(document: Mapping[str, Json]) -> Slot:
    """The member of the payload that holds the command, as far as one can tell."""
    payload = document.get("inputPayload")
    if not isinstance(payload, dict):
        return COMMAND
    usual = [key for key in ("command", "cmd", "script", "code") if key in payload]
    texts = [key for key, value in payload.items() if isinstance(value, str)]
    return "inputPayload", [*usual, *texts, "command"][0]


def _values(goal: Goal, path: Path, document: Mapping[str, Json]) -> Iterator[Json]:
    """New values for the path that may reach the goal, the nearest to the old one first."""
    if goal.operator == "exists":
        yield "x"
    elif goal.operator == "size":
        fill = ["x"] * goal.value
        yield lambda old: [*old, *fill][: goal.value] if isinstance(old, list) else "".join(fill)
        yield fill
    elif goal.operator != "absent":
        name = goal.operator.removeprefix("not_")
        yield from _for_operator(name, goal.value, path, document, not goal.avoids)
    if goal.avoids and (path.segments or path.root not in ALWAYS_PRESENT):
        yield REMOVED


def _for_operator(
    name: str, value: Json, path: Path, document: Mapping[str, Json], positive: bool
) -> Iterator[Json]:
    """New values for the path that may make (`positive`) or unmake `path name value`."""
    seen = Facts(document).at(path).first()
    text = seen if isinstance(seen, str) else None
    if name == "equals":
        yield from [value] if positive else _others([value])
    elif name == "in":
        if positive:
            choices = {text_of(choice): choice for choice in value if not isinstance(choice, (list, dict))}
            close = closest(text or "", choices, cutoff=0.0)
            if close is not None:
                yield choices[close]
            yield from value[:1]
        else:
            yield from _others(value)
    elif name in _COMPARISONS:
        step, inclusive = _COMPARISONS[name]
        yield from _numbers(value, step if positive else -step, inclusive is positive)
    elif positive:
        wanted = next(samples(value), None) if name == "matches" else value
        if wanted is not None:
            if text is not None:
                yield wanted + text if name == "starts_with" else text + wanted
                if name == "matches":
                    yield wanted + text
            yield wanted
    else:
        yield _cut(name, value)
        yield SOMETHING_ELSE


_COMPARISONS: Final[Mapping[str, tuple[int, bool]]] = {
    "greater_than": (1, False),
    "greater_than_or_equal": (1, True),
    "less_than": (-1, False),
    "less_than_or_equal": (-1, True),
}
"""Operator -> direction in which it holds, whether the bound itself does."""


def _numbers(bound: float, step: int, inclusive: bool) -> Iterator[float]:
    if inclusive:
        yield bound
    yield bound + step
    yield math.nextafter(float(bound), step * math.inf)


def _others(values: list[Json]) -> Iterator[Json]:
    """Values of the same kind as the first that are none of them."""
    texts = {text_of(value) for value in values if not isinstance(value, (list, dict))}
    first = values[0] if values else ""
    if isinstance(first, bool):
        yield not first
    if isinstance(first, (int, float)):
        yield next(number for number in range(len(texts) + 1) if str(number) not in texts)
    word = SOMETHING_ELSE
    while word in texts:
        word += "!"
    yield word


def _cut(name: str, value: Json) -> Callable[[Json], Json]:
    """A function that takes out of a text what the operator looks for."""

    def cut(old: Json) -> Json:
        if not isinstance(old, str):
            return SOMETHING_ELSE
        for _ in range(MOST_CUTS):
            if name == "matches":
                span = compile_pattern(value).find(old)
            elif name == "starts_with":
                span = (0, len(value)) if old.startswith(value) else None
            elif name == "ends_with":
                span = (len(old) - len(value), len(old)) if old.endswith(value) else None
            else:
                at = old.find(value)
                span = (at, at + len(value)) if at >= 0 else None
            if span is None or span[0] == span[1]:
                break
            old = old[: span[0]] + old[span[1] :]
        return old

    return cut


# ---- changed documents ---------------------------------------------------------------------------------


def _changed(document: Mapping[str, Json], path: Path, value: Json) -> Mapping[str, Json] | None:
    """The document with the path set to the value (made, if it is missing), or changed by it."""
    steps = (path.root, *path.segments)
    if value is REMOVED and len(steps) == 1:
        return {key: kept for key, kept in document.items() if key != path.root}
    if callable(value) and not Facts(document).at(path).ends:
        return None
    changed = _within(dict(document), steps, value)
    return changed if isinstance(changed, dict) else None


def _within(old: Json, steps: tuple[str, ...], value: Json) -> Json:
    """`old` (copied as far as needed) with what `steps` lead to changed; objects are made where missing."""
    if not steps:
        if not callable(value):
            return value
        return [value(item) for item in old] if isinstance(old, list) else value(old)
    key, rest = steps[0], steps[1:]
    if isinstance(old, list):
        here = [
            _within(item, steps, value) if isinstance(item, dict) and key in item else item for item in old
        ]
        if key.isdecimal() and key.isascii() and int(key) < len(here):
            if value is REMOVED and not rest:
                del here[int(key)]
            else:
                here[int(key)] = _within(here[int(key)], rest, value)
        return here
    if not isinstance(old, dict):
        old = {}
    if value is REMOVED and (key not in old or not rest):
        return {name: kept for name, kept in old.items() if name != key}
    return {**old, key: _within(old.get(key), rest, value)}


def _change(path: Path, before: Mapping[str, Json], after: Mapping[str, Json]) -> FieldChange:
    ends = Facts(after).at(path).ends
    if not ends:
        return FieldChange(path.text, removed=True)
    old = Facts(before).at(path).ends
    return FieldChange(
        path.text, next((new for new, was in zip(ends, old, strict=False) if new != was), ends[0])
    )


def failed(condition: CompiledCondition, facts: Facts) -> tuple[str, ...]:
    """The `&&` terms of an expression that do not hold."""
    if condition.expression is None:
        return ()
    terms = []
    computed = condition.expression.computed
    document = facts.scope(computed) if computed else facts.document
    for term in condition.expression.terms:
        verdict = term.evaluate(document)
        if verdict is not True:
            why = f" ({verdict.message})" if isinstance(verdict, Fault) else ""
            terms.append(f"`{term.text}`{why}")
    return tuple(terms)
