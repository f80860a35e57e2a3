"""A policy made from a preset, when the preset changes: what to take over, and what stays as people made it.

Three-way, member by member: the base is what the member was when it last came from the preset, `theirs` is
the preset as it is now, with the parameters the policy was made with, `ours` is the policy. A member that
nobody touched follows the preset; one that was edited here stays, and is told of. Conditions are woven entry
by entry where the two sets of edits do not meet; examples are a set. `enabled` belongs to the policy alone.

Nothing is stored about bases. They are read from history: a version that makes a member what the preset said
at that time took it over, whoever wrote it.

INVARIANT: what people have edited is never replaced; where it is unclear whether they have, it stays.
It knows no archive (`lineage` asks it) and writes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import Final

from engine.canonical_json import canonical_json
from engine.conditions.placeholders import names_in
from engine.derived.tools import Tools
from engine.documents.edit import same
from engine.documents.policy import check_body, policy_as_json, policy_from_json
from engine.documents.presets import POLICY_KEYS, Preset, instantiate
from engine.errors import DocumentError, Problem
from engine.model import Json, Policy

MEMBERS: Final = POLICY_KEYS
Members = Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Step:
    """A version of a policy (the contract's shape), and the preset as it was at that time."""

    state: Members
    preset: Preset | None


@dataclass(frozen=True, slots=True)
class Base:
    """What a member was when it last came from the preset; `uses` are the chosen parameters in it."""

    value: Json
    uses: frozenset[str]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a policy's members come from; `chosen` are its parameters that are not the preset's defaults."""

    chosen: Members
    bases: Mapping[str, Base]


@dataclass(frozen=True, slots=True)
class Changed:
    """A member that follows the preset; None: absent."""

    member: str
    before: Json
    after: Json


@dataclass(frozen=True, slots=True)
class Kept:
    """A member that stays as it is here although the preset has another one."""

    member: str
    yours: Json
    preset: Json


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What an upgrade does. With `problems` it cannot be made: the outcome would be no good policy."""

    preset_id: str
    changes: tuple[Changed, ...] = ()
    kept: tuple[Kept, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def available(self) -> bool:
        return bool(self.changes) and not self.problems

    @property
    def sent(self) -> dict[str, Json]:
        """The changes as an update of the policy: None removes."""
        return {each.member: each.after for each in self.changes}


@dataclass(frozen=True, slots=True)
class _Theirs:
    """A preset filled in with a policy's parameters; `lost` are chosen ones that it takes no more."""

    members: Members
    uses: Mapping[str, frozenset[str]]
    lost: frozenset[str]


def origin_of(steps: Iterable[Step], parameters: Members, tools: Tools | None = None) -> Origin | None:
    """The bases of a policy's members, from its versions, oldest first; None: nothing is known.
    `parameters` are those the policy says it was made with."""
    origin: Origin | None = None
    before: Members = {}
    known: dict[str, _Theirs | None] = {}
    for step in steps:
        if step.preset is not None:
            if origin is None:
                origin = _begun(step.preset, parameters, tools)
            elif any(not same(step.state.get(name), before.get(name)) for name in MEMBERS):
                if step.preset.digest not in known:
                    known[step.preset.digest] = _filled(step.preset, origin.chosen, tools)
                theirs = known[step.preset.digest]
                origin = _followed(origin, theirs, before, step.state, tools) if theirs else origin
        before = step.state
    return origin


def plan(origin: Origin | None, preset: Preset, policy: Policy, tools: Tools | None = None) -> Upgrade:
    """What the preset as it is now would change in a policy, where these tools are declared."""
    try:
        theirs = _theirs(preset, origin.chosen if origin else {}, tools)
    except DocumentError as error:
        return Upgrade(preset.preset_id, problems=error.problems)
    ours = policy_as_json(policy)
    ours.pop("version", None)
    return replace(_merged(origin, theirs, ours, tools), preset_id=preset.preset_id)


def _begun(preset: Preset, parameters: Members, tools: Tools | None) -> Origin | None:
    """The origin of a policy's first version: all members come from the preset; those that do not say what
    it says count as edited."""
    theirs = _filled(preset, parameters, tools)
    if theirs is None:
        return None
    return Origin(parameters, {name: Base(theirs.members.get(name), theirs.uses[name]) for name in MEMBERS})


def _followed(origin: Origin, theirs: _Theirs, before: Members, now: Members, tools: Tools | None) -> Origin:
    """The origin after a version: members that became what the preset said have a new base."""
    offered = _merged(origin, theirs, before, tools).sent
    bases = dict(origin.bases)
    for name in MEMBERS:
        value = now.get(name)
        if same(value, before.get(name)):
            continue
        if same(value, theirs.members.get(name)) or (name in offered and same(value, offered[name])):
            bases[name] = Base(theirs.members.get(name), theirs.uses[name])
    return replace(origin, bases=bases)


def _filled(preset: Preset, parameters: Members, tools: Tools | None) -> _Theirs | None:
    try:
        return _theirs(preset, parameters, tools)
    except DocumentError:
        return None


def _theirs(preset: Preset, parameters: Members, tools: Tools | None) -> _Theirs:
    """Raises DocumentError when the preset makes no good policy with these parameters."""
    fitting = {
        name: value
        for name, value in parameters.items()
        if name in preset.parameters and preset.parameters[name].refuse(value) is None
    }
    body = instantiate(preset, fitting, "preset", tools)
    uses = {name: frozenset(names_in(preset.template.get(name))) & parameters.keys() for name in MEMBERS}
    return _Theirs(
        policy_as_json(policy_from_json(body)), uses, frozenset(parameters.keys() - fitting.keys())
    )


@dataclass(slots=True)
class _Outcome:
    values: dict[str, Json] = field(default_factory=dict)
    kept: list[Kept] = field(default_factory=list)


def _merged(origin: Origin | None, theirs: _Theirs, ours: Members, tools: Tools | None) -> Upgrade:
    """The three-way merge of all members, gated as every policy is."""
    outcome = _Outcome()
    for name in MEMBERS:
        mine, wanted = ours.get(name), theirs.members.get(name)
        base = origin.bases[name] if origin else None
        if same(mine, wanted) or (base is not None and same(wanted, base.value)):
            continue
        value = None if base is None else _member(name, base, theirs, mine, wanted)
        if value is None:
            outcome.kept.append(Kept(name, mine, wanted))
        elif not same(value[0], mine):
            outcome.values[name] = value[0]
    problems = _gate(ours, outcome, tools)
    changes = tuple(
        Changed(name, ours.get(name), outcome.values[name]) for name in MEMBERS if name in outcome.values
    )
    return Upgrade("", changes, tuple(outcome.kept), problems)


def _member(name: str, base: Base, theirs: _Theirs, mine: Json, wanted: Json) -> tuple[Json] | None:
    """What a member that the preset changed becomes, in a tuple; None: it stays as it is here."""
    if (base.uses | theirs.uses[name]) & theirs.lost:
        # Somebody chose a value that the preset has no place for any more: its default would undo the choice.
        return None
    if same(mine, base.value):
        return (wanted,)
    if name == "examples":
        return (_united(base.value or [], mine or [], wanted or []) or None,)
    if name == "matchConditions":
        woven = _woven(base.value, mine, wanted)
        return None if woven is None else (woven,)
    return None


def _united(base: list[Json], mine: list[Json], wanted: list[Json]) -> list[Json]:
    """Examples: ours, without those that the preset dropped, and those that are new in it."""
    kept = [each for each in mine if not _has(base, each) or _has(wanted, each)]
    return kept + [each for each in wanted if not _has(base, each) and not _has(mine, each)]


def _has(entries: Sequence[Json], entry: Json) -> bool:
    return any(same(each, entry) for each in entries)


def _woven(base: list[Json], mine: list[Json], wanted: list[Json]) -> list[Json] | None:
    """Both sets of edits of a list; None where they meet."""
    ours, theirs = _edits(base, mine), _edits(base, wanted)
    theirs = [each for each in theirs if each not in ours]
    if any(_meet(one, other) for one in ours for other in theirs):
        return None
    result: list[Json] = []
    position = 0
    for start, end, entries in sorted(ours + theirs, key=lambda each: each[:2]):
        result += [*base[position:start], *map(json.loads, entries)]
        position = end
    return result + base[position:]


_Edit = tuple[int, int, tuple[str, ...]]


def _edits(before: list[Json], after: list[Json]) -> list[_Edit]:
    """How one list becomes the other: (start, end, entries instead, as JSON)."""
    old, new = ([canonical_json(each) for each in entries] for entries in (before, after))
    codes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [
        (i, j, tuple(json.dumps(each) for each in after[m:n])) for tag, i, j, m, n in codes if tag != "equal"
    ]


def _meet(one: _Edit, other: _Edit) -> bool:
    """True when two edits touch the same entries, or put entries at the same place."""
    start, end = max(one[0], other[0]), min(one[1], other[1])
    if start < end or (one[:2] == other[:2] and one[0] == one[1]):
        return True
    return any(a[0] == a[1] and b[0] < a[0] < b[1] for a, b in ((one, other), (other, one)))


def _gate(ours: Members, outcome: _Outcome, tools: Tools | None) -> tuple[Problem, ...]:
    """Why the outcome is no good policy. Examples that the preset would add were written for a policy that
    nobody has edited: those that do not hold are left out. Every other example must go on to hold."""
    if not outcome.values:
        return ()
    body = {key: value for key, value in (dict(ours) | outcome.values).items() if value is not None}
    _, findings = check_body(body, tools=tools)
    if "examples" in outcome.values:
        entries: list[Json] = body.get("examples", [])
        failing = {int(each.pointer.split("/")[2]) for each in findings if each.code == "example_fails"}
        mine = ours.get("examples", [])
        left_out = {index for index in failing if not _has(mine, entries[index])}
        if left_out:
            entries = [each for index, each in enumerate(entries) if index not in left_out]
            if same(entries, mine):
                del outcome.values["examples"]
            else:
                outcome.values["examples"] = entries or None
            return _gate(ours, outcome, tools)
    return tuple(Problem(each.message, each.pointer, each.code) for each in findings)
