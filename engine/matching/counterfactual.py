"""The smallest change of a call that turns one condition's verdict over, found by trying.

`flip` proposes changes from what the condition says, smallest first, makes the changed document and
evaluates the condition on it; the first that turns the verdict is the answer, so an answer with changes is
always true. Where no concrete document was found the answer only says what is needed.

Knows nothing of policies or of the index.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from engine.conditions.compiled import CompiledCondition
from engine.conditions.operands import show
from engine.errors import ConditionError
from engine.fields.facts import Facts
from engine.fields.paths import DERIVED, Path, canonical, parse, text_of
from engine.fields.pattern import compile_pattern
from engine.fields.samples import samples
from engine.model import ALWAYS_PRESENT, Fault, Json

REMOVED: Final = object()
"""Stands for a value that is taken away."""

SOMETHING_ELSE: Final = "something else"
MOST_CUTS: Final = 100
LONGEST_CHANGED: Final = 10_000


@dataclass(frozen=True, slots=True)
class FieldChange:
    """Set `field` to `value`, or (`removed`) take it away."""

    field: str
    value: Json = None
    removed: bool = False

    def __str__(self) -> str:
        return f"remove `{self.field}`" if self.removed else f"set `{self.field}` to {show(self.value)}"

    def as_json(self) -> dict[str, Json]:
        return {"field": self.field} | ({"removed": True} if self.removed else {"value": self.value})


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """What would turn a condition over: in words, and as changes that were tried (none: words only)."""

    text: str
    changes: tuple[FieldChange, ...] = ()

    def as_json(self) -> dict[str, Json]:
        return {"text": self.text, "changes": [change.as_json() for change in self.changes]}


def flip(condition: CompiledCondition, document: Mapping[str, Json]) -> Counterfactual:
    """What turns a condition that holds into one that does not, and anything else into one that holds."""
    wanted = condition.evaluate(Facts(document)) is not True
    for edits in _proposals(condition, document, wanted):
        changed: Mapping[str, Json] | None = document
        for path, value in edits:
            changed = _changed(changed, path, value) if changed is not None else None
        if changed is not None and condition.evaluate(Facts(changed)) is wanted:
            changes = tuple(_change(path, document, changed) for path, _ in edits)
            return Counterfactual(" and ".join(map(str, changes)), changes)
    if condition.path is not None:
        return Counterfactual(
            f"`{condition.path}` must {'be so' if wanted else 'not be so'} that `{condition.text}` holds"
        )
    return Counterfactual(f"make `{condition.text}` {'true' if wanted else 'false'}")


Edit = tuple[Path, Json]
"""A path and its new value, REMOVED, or a function of each old value."""


def _proposals(
    condition: CompiledCondition, document: Mapping[str, Json], wanted: bool
) -> Iterator[list[Edit]]:
    if condition.path is not None and condition.operator is not None:
        name = condition.operator.name.removeprefix("not_")
        positive = wanted is not condition.operator.negated
        if condition.path.root == DERIVED:
            # Nobody can set what is worked out; the member of the payload that it comes from can be.
            source = _source(document)
            for value in _for_operator(name, condition.condition.value, source, document, positive):
                yield [(source, value)]
            yield [(source, REMOVED)]
            return
        for value in _for_operator(name, condition.condition.value, condition.path, document, positive):
            yield [(condition.path, value)]
        if not positive and not (condition.path.root in ALWAYS_PRESENT and not condition.path.segments):
            yield [(condition.path, REMOVED)]
        return
    if condition.expression is None:
        return
    edits: list[Edit] = []
    for term in condition.expression.terms:
        simple = _simple(term.text)
        holds = term.evaluate(document) is True
        if simple is None or holds is wanted:
            continue
        path, name, value = simple
        positive = wanted is not name.startswith("not_")
        values = list(_for_operator(name.removeprefix("not_"), value, path, document, positive))
        if wanted:
            edits += [(path, new) for new in values[:1]]
            yield edits.copy()
        else:
            yield from ([(path, new)] for new in values)
            if path.segments:
                yield [(path, REMOVED)]


def _source(document: Mapping[str, Json]) -> Path:
    """The member of the payload that holds the command, as far as one can tell."""
    payload = document.get("inputPayload")
    keys = (
        [key for key, value in payload.items() if isinstance(value, str)] if isinstance(payload, dict) else []
    )
    usual = [
        key for key in ("command", "cmd", "script", "code") if isinstance(payload, dict) and key in payload
    ]
    return parse(canonical("inputPayload", [[*usual, *keys, "command"][0]]))


_PATH: Final = r"(?P<path>[A-Za-z]\w*(?:\.\w+)*)"
_TERMS: Final = (
    re.compile(rf"{_PATH}\s*(?P<name>==|!=|<=|>=|<|>|in)\s*(?P<value>.+)", re.DOTALL),
    re.compile(rf"{_PATH}\.(?P<name>contains|startsWith|endsWith|matches)\((?P<value>.+)\)", re.DOTALL),
    re.compile(rf"(?P<name>has)\({_PATH}\)(?P<value>)"),
)
_NAMES: Final[Mapping[str, str]] = {
    "==": "equals",
    "!=": "not_equals",
    "<": "less_than",
    "<=": "less_than_or_equal",
    ">": "greater_than",
    ">=": "greater_than_or_equal",
    "in": "in",
    "has": "exists",
    "contains": "contains",
    "startsWith": "starts_with",
    "endsWith": "ends_with",
    "matches": "matches",
}


def _simple(term: str) -> tuple[Path, str, Json] | None:
    """A term that says the same as a field condition: its path, operator and value."""
    for shape in _TERMS:
        found = shape.fullmatch(term.strip())
        if found is not None:
            try:
                value = json.loads(found["value"]) if found["value"] else None
                return parse(found["path"]), _NAMES[found["name"]], value
            except (ValueError, ConditionError):
                return None
    return None


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
            close = get_close_matches(text or "", choices, n=1, cutoff=0.0)
            yield from (choices[choice] for choice in close)
            yield from value[:1]
        else:
            yield from _others(value)
    elif name == "exists":
        if positive:
            yield "x"
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


def failed(condition: CompiledCondition, document: Mapping[str, Json]) -> tuple[str, ...]:
    """The `&&` terms of an expression that do not hold."""
    if condition.expression is None:
        return ()
    terms = []
    for term in condition.expression.terms:
        verdict = term.evaluate(document)
        if verdict is not True:
            why = f" ({verdict.message})" if isinstance(verdict, Fault) else ""
            terms.append(f"`{term.text}`{why}")
    return tuple(terms)
