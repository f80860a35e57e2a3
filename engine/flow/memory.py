"""What a run has seen: by whom each value was named first, and what happened how many calls ago.

    task        the run's task, and what a person sent or approved
    trusted     an output that may be believed, by the declaration of its tool
    untrusted   any other output

Decides which values an output adds; `values` and `structure` say what its values are. A value counts by where
it was first seen, only a person's word outweighs that. Each source keeps so many values and so many single
words; what comes beyond is unseen, and `full` says so. Knows nothing of policies, or of how runs are kept.

INVARIANT: nothing here ever changes; a run that goes on has another memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final, NamedTuple

from engine.fields.computed import UNREADABLE
from engine.fields.json_text import Unread, opened
from engine.fields.words import words_of
from engine.flow.belief import TRUSTED, UNTRUSTED, Belief
from engine.flow.steps import NO_STEPS, Steps, begun_with
from engine.flow.structure import leaves, parts
from engine.flow.values import LONGEST, MOST_BYTES, beginning, is_whole, marked, size, whole, words
from engine.model import Json, ToolDeclaration

TASK: Final = "task"
UNSEEN: Final = "unseen"
WORST: Final = {TASK: 0, TRUSTED: 1, UNSEEN: 2, UNTRUSTED: 3}
"""What was read where anybody writes is worse than what nobody named."""

CLOCK: Final = "clock"
"""The kind of tools that keep nothing, so that what they were given is no news of theirs."""

MOST_VALUES: Final = 512
"""Of one source, and as many single words."""
MOST_OF_TASK: Final = 8_192
"""Of the task with its phrases."""

MOST_OF_INPUTS: Final = 16_384
"""Of an act; of one that names more, or in a longer text than is looked at, nothing is trusted that comes
back."""

_NAME: Final = re.compile(r"[\w.$-]{1,40}")
"""What members of an object are called, where nobody writes in their names."""

Declared = Callable[[str], ToolDeclaration]


class Addition(NamedTuple):
    """What one report adds: hashes by source, and those of its values that are single words."""

    task: tuple[int, ...] = ()
    trusted: tuple[int, ...] = ()
    untrusted: tuple[int, ...] = ()
    words: tuple[int, ...] = ()
    """Those among them that are single words only, which are counted for themselves."""
    full: bool = False
    """Values came beyond the bound."""


class SeenValues:
    """The values that a run has seen. `origins` names where each one of `seen` comes from, by its number;
    a number below zero is that of a trusted output. `words` are those that are single words only."""

    __slots__ = ("full", "origins", "seen", "task", "words")

    def __init__(
        self,
        task: frozenset[int] = frozenset(),
        seen: Mapping[int, int] | None = None,
        origins: tuple[str, ...] = (),
        words: frozenset[int] = frozenset(),
        full: bool = False,
    ) -> None:
        self.task, self.seen, self.origins, self.words = task, seen or {}, origins, words
        self.full = full

    def __len__(self) -> int:
        return len(self.task) + len(self.seen)

    def count(self, source: str, single: bool) -> int:
        """How many values of a source there are, or single words."""
        of_source = (each for each, number in self.seen.items() if (number < 0) is (source is TRUSTED))
        return sum((each in self.words) is single for each in of_source)

    def source(self, value: Json) -> str:
        """Where a value was seen first."""
        task, seen = self.task, self.seen
        source = UNSEEN
        for each in whole(value):
            if each in task:
                return TASK
            if each in seen and source is not UNTRUSTED:
                source = TRUSTED if seen[each] < 0 else UNTRUSTED
        return source

    def origin(self, value: Json) -> str | None:
        """The call in whose output a value was seen first."""
        for each in whole(value):
            if each in self.seen:
                return self.origins[abs(self.seen[each]) - 1]
        return None

    def with_task(self, text: str | None) -> SeenValues:
        """After a person has written so much. What is beyond the bound is not worked out."""
        found: Iterable[int] = (
            () if text is None else chain(whole(text), marked(text), words(text, phrases=True))
        )
        room, fresh = max(0, MOST_OF_TASK - len(self.task)), dict[int, None]()
        for each in found:
            fresh[each] = None
            if len(fresh) > room:
                break
        task = self.task.union(islice(fresh, room))
        return SeenValues(task, self.seen, self.origins, self.words, self.full or len(fresh) > room)

    def with_addition(self, addition: Addition, origin: str) -> SeenValues:
        """After a report, made by `outcome` or `approved` of the same values."""
        return self.with_additions([(addition, origin)])

    def with_additions(self, additions: Iterable[tuple[Addition, str]]) -> SeenValues:
        """After many, each with its origin, put together in one go: one after the other takes time in the
        square of their number."""
        seen, origins, full = dict(self.seen), list(self.origins), self.full
        task: list[int] = []
        words: list[int] = []
        for addition, origin in additions:
            origins.append(origin)
            number = len(origins)
            for each in addition.trusted:
                seen.setdefault(each, -number)
            for each in addition.untrusted:
                seen.setdefault(each, number)
            task += addition.task
            words += addition.words
            full = full or addition.full
        return SeenValues(self.task.union(task), seen, tuple(origins), self.words.union(words), full)

    def outcome(
        self, output: Json, tool: ToolDeclaration, payload: Json, *, believed: bool = True
    ) -> Addition:
        """What an output adds. `believed` False: nothing of it is trusted, as it is of no call that was
        allowed and not reported yet. The inputs of an act, or of a clock or calculator, are not trusted for
        coming back."""
        own: frozenset[int] = frozenset()
        if believed and (tool.effect != "read" or tool.kind == CLOCK):
            named = _named(payload)
            own, believed = named or own, named is not None
        gathered = _Gathered(self, own)
        found = parts(output)
        gathered.full = not found.is_whole
        belief, room = Belief(tool, found.is_text), 2 * LONGEST
        for keys, leaf in found.scalars:
            room -= max(len(leaf), len(beginning(leaf))) if isinstance(leaf, str) else 8
            if room < 0:
                gathered.full = True
                break
            source = TRUSTED if believed and belief.covers(keys, leaf) else UNTRUSTED
            only_ids = source is TRUSTED and tool.output != TRUSTED
            if gathered.takes(source, False):
                # An id names itself, and nothing within.
                gathered.add(source, chain(whole(leaf), () if only_ids else marked(leaf)), False)
            if not only_ids and gathered.takes(source, True):
                gathered.add(source, words(leaf), True)
        return gathered.addition()

    def said(self, text: str) -> Addition:
        """What a person names by writing so much."""
        task = self.with_task(text)
        return Addition(task=tuple(task.task - self.task), full=task.full and not self.full)

    def handed_on(self) -> Addition:
        """All of it, for a run that this one starts."""
        trusted = tuple(each for each, number in self.seen.items() if number < 0)
        untrusted = tuple(each for each, number in self.seen.items() if number > 0)
        return Addition(tuple(self.task), trusted, untrusted, tuple(self.words), self.full)

    def approved(self, payload: Json) -> Addition:
        """What a person names by approving a call: each of its values as a whole."""
        hashes, room = dict[int, None](), MOST_BYTES
        for leaf in _within(payload):
            if isinstance(leaf, str) and len(leaf) > LONGEST:
                continue  # which is no value
            room -= size(leaf)
            if room < 0 or len(hashes) > MOST_VALUES:
                break
            hashes.update(dict.fromkeys(whole(leaf)))
        full = room < 0 or len(hashes) > MOST_VALUES
        return Addition(task=tuple(hashes)[:MOST_VALUES], full=full)


def _within(payload: Json) -> Iterator[Json]:
    """The scalars of a payload, and of the JSON in its texts, as arguments of functions arrive."""
    for _, leaf in leaves(payload)[0]:
        yield leaf
        if isinstance(leaf, str) and (inside := opened(leaf)) is not None:
            yield from _within(inside)


class _Gathered:
    """The new hashes of one output."""

    def __init__(self, before: SeenValues, own: frozenset[int]) -> None:
        self._seen, self._own = before.seen, own
        self._counts = {
            (source, single): before.count(source, single)
            for source in (TRUSTED, UNTRUSTED)
            for single in (True, False)
        }
        self._new: dict[str, dict[int, None]] = {TRUSTED: {}, UNTRUSTED: {}}
        self._words: dict[int, None] = {}
        self.full = False

    def takes(self, source: str, single: bool) -> bool:
        """Whether more of these would change anything: not where there is no room, and that is said."""
        return not self.full or self._counts[source, single] < MOST_VALUES

    def add(self, source: str, hashes: Iterator[int], single: bool) -> None:
        key = source, single
        count = self._counts[key]
        trusted, untrusted = self._new[TRUSTED], self._new[UNTRUSTED]
        for each in hashes:
            if each in self._seen or each in trusted or each in untrusted:
                continue
            if source is TRUSTED and each in self._own:
                continue
            if count >= MOST_VALUES:
                self.full = True
                break
            self._new[source][each] = None
            if single:
                self._words[each] = None
            count += 1
        self._counts[key] = count

    def addition(self) -> Addition:
        new = self._new
        return Addition((), tuple(new[TRUSTED]), tuple(new[UNTRUSTED]), tuple(self._words), self.full)


def untrusted_texts(output: Json, tool: ToolDeclaration) -> Iterator[str]:
    """The texts of an output that may not be believed; of members also the names that are more than a name.
    What is not all of them ends with UNREADABLE."""
    if tool.output == TRUSTED and UNTRUSTED not in tool.output_fields.values():
        return
    found = parts(output)
    belief = Belief(tool, found.is_text)
    for keys, leaf in found.scalars:
        if isinstance(leaf, str) and not belief.covers(keys, leaf):
            yield leaf
    declared = set(map(words_of, tool.output_fields))
    for keys, name in found.names:
        is_prose = isinstance(name, str) and _NAME.fullmatch(name) is None and words_of(name) not in declared
        if is_prose and not belief.covers(keys, name):
            yield str(name)
    if not found.is_whole:
        yield UNREADABLE


def _named(payload: Json) -> frozenset[int] | None:
    """What a payload names, its keys and the JSON in its texts too; None: more than is looked at."""
    found: list[int] = []
    unread, room = Unread(), MOST_BYTES
    stack: list[Json] = [payload]
    while stack and len(found) < MOST_OF_INPUTS:
        value = stack.pop()
        if isinstance(value, dict):
            stack += (*value.keys(), *value.values())
        elif isinstance(value, list):
            stack += value
        elif value is not None:
            if isinstance(value, str):
                room -= size(value)
                if room < 0 or unread or not is_whole(value):
                    return None
                stack.append(opened(value, unread))
            hashes = chain(whole(value), marked(value), words(value))
            found += islice(hashes, MOST_OF_INPUTS - len(found))
    return frozenset(found) if len(found) < MOST_OF_INPUTS and not unread else None


NO_VALUES: Final = SeenValues()


class RunMemory:
    """What is known of a run before a call. `load` gives its values when they are first asked for; without
    it they are not at hand: `wanted` then says that they were asked for, and what was answered is void."""

    __slots__ = ("_load", "_values", "steps", "version", "wanted")

    def __init__(
        self,
        version: int = 0,
        steps: Steps = NO_STEPS,
        values: SeenValues | None = None,
        load: Callable[[], SeenValues] | None = None,
    ) -> None:
        self.version, self.steps = version, steps
        self._values, self._load = values, load
        self.wanted = False

    @property
    def values(self) -> SeenValues:
        if self._values is None:
            if self._load is None:
                self.wanted = True
                return NO_VALUES
            self._values = self._load()
        return self._values

    @property
    def loaded(self) -> SeenValues | None:
        return self._values


def memory_of(
    task: Json, before: Sequence[Mapping[str, Json]], declared: Declared, labels: Iterable[str] = ()
) -> RunMemory:
    """The memory of a run that people wrote down: its task, its labels, and steps as in the examples of
    policies. A label that no step gave was given at the run's beginning, as those that a run inherits."""
    values = NO_VALUES.with_task(task if isinstance(task, str) else None)
    given = {label for step in before for label in step.get("labels", ())}
    steps = begun_with(label for label in labels if label not in given)
    for step in before:
        if "said" in step:
            values = values.with_task(str(step["said"]))
            continue
        name, payload = str(step.get("toolName", "")), step.get("inputPayload", {})
        if step.get("approved"):
            values = values.with_addition(values.approved(payload), name)
        if "outputPayload" in step:
            believed = not step.get("blocked")
            addition = values.outcome(step["outputPayload"], declared(name), payload, believed=believed)
            values = values.with_addition(addition, name)
        keys = [f"policy:{each}" for each in step.get("policies", ())]
        keys += [f"label:{each}" for each in step.get("labels", ())]
        steps = steps.told(keys, "" if step.get("blocked") else name)
    return RunMemory(0, steps, values)
