"""The detectors of one organisation at work: happenings in, alerts out.

Decides which happening counts for which detector, and when what was counted is worth an alert. What counts
further while an alert is open adds to it: one alert for one happening. It must not know where happenings come
from, nor where tallies are kept between two batches.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Final

import msgspec

from engine.canonical_json import canonical_json
from engine.conditions.compiled import compile_condition
from engine.derived.facts import Facts
from engine.derived.tools import NO_TOOLS, Tools
from engine.detectors.happening import MEMBERS, MOST_EVIDENCE, Happening
from engine.detectors.tally import REMEMBERED_MINUTES, Slots, Tally
from engine.model import Detector, ToolCall

MOST_REMEMBERED: Final = 10_000
"""Verdicts on calls that look alike to the conditions of one detector."""
MOST_TALLIES: Final = 50_000
MOST_VALUES: Final = 1_000_000
"""Distinct values in them; an agent chooses how many it has, and each takes some hundred bytes."""
MOST_OF_A_KEY: Final = 50
"""Subjects within a window, all with one API key, of which a detector tells singly. A key that is bound to no
agent may name any number of them, and what matters would stand among thousands of alerts."""
CALLS: Final = "calls"
"""Under which name the calls of a subject are counted, for `established`."""
MOST_CALLS: Final = 10_000
"""As many as `established` may ask for; more are not counted."""
NOBODY: Final = ""
"""The subject of what is remembered of a detector itself."""

TallyName = tuple[str, str]
"""Whose tally it is: the name of a counting and the id of a subject."""
Load = Callable[[Iterable[TallyName]], Mapping[TallyName, Tally]]


class Fired(msgspec.Struct):
    """An alert that is new, or goes on. `count` is what it counts, or how many more. `per` says what its
    subject is: of very many with one API key that key."""

    detector: Detector
    alert_id: str
    per: str
    subject: str
    is_new: bool
    count: int
    first_minute: int
    last_minute: int
    evidence: list[str]
    because: Happening
    """The happening that made it."""


class _Counting:
    """One detector, compiled."""

    def __init__(self, detector: Detector, organisation_id: str, tools: Tools) -> None:
        self.detector = detector
        self.name = name_of(detector)
        self.many = "" if detector.per in ("apiKeyId", "organisationId") else f"many:{self.name}"
        """Under which the subjects of each API key are counted that alerts were raised of; empty where a key
        has no more than one."""
        self.slots = Slots.of(detector)
        self._organisation_id = organisation_id
        self._per = MEMBERS.get(detector.per)
        self._distinct = detector.distinct and MEMBERS[detector.distinct]
        self._conditions = [compile_condition(each) for each in detector.conditions]
        roots = {root for each in self._conditions for root in each.roots}
        self._by_tool = roots <= {"toolName", "tool"}
        self._tools = tools
        self._known: dict[str | tuple[str, ...], bool] = {}
        self.reads = roots | {detector.per, detector.distinct or ""}

    def subject(self, happening: Happening) -> str:
        """Whose it is; empty: nobody's, or it does not count."""
        subject = self._organisation_id if self._per is None else str(getattr(happening, self._per))
        return subject if subject and self._concerns(happening) else ""

    def value(self, happening: Happening) -> str | None:
        """What is told apart; None: nothing is."""
        return None if self._distinct is None else str(getattr(happening, self._distinct))

    def _concerns(self, happening: Happening) -> bool:
        if self.detector.of and happening.what not in self.detector.of:
            return False
        if not self._conditions:
            return True
        h = happening
        key = h.tool_name if self._by_tool else (h.tool_name, h.agent_id, h.run_id, h.key_id, h.user_id)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            facts = Facts(_document(happening), self._tools)
            # What cannot be evaluated counts: rather an alert too many.
            known = all(each.evaluate(facts) is not False for each in self._conditions)
            self._known[key] = known
        return known


def _document(happening: Happening) -> Mapping[str, object]:
    call = ToolCall.of(
        toolName=happening.tool_name,
        agentId=happening.agent_id,
        runId=happening.run_id,
        key={"id": happening.key_id},
        user={"id": happening.user_id} if happening.user_id else None,
    )
    return call.document


def name_of(detector: Detector) -> str:
    """Under which its tallies are kept: another one as soon as it counts otherwise."""
    counted = [
        *(detector.on, detector.per, detector.distinct, detector.window_seconds, detector.of),
        *(detector.first, detector.unseen_seconds, detector.usual is not None),
        [each.as_json() for each in detector.conditions],
    ]
    return f"{detector.detector_id}:{sha256(canonical_json(counted)).hexdigest()[:8]}"


class Watch:
    """See the module. `load` gives the tallies that are kept elsewhere."""

    def __init__(
        self,
        organisation_id: str,
        detectors: Iterable[Detector],
        tools: Tools = NO_TOOLS,
        *,
        load: Load = lambda names: {},
        ids: Callable[[], str],
    ) -> None:
        self.organisation_id = organisation_id
        self.detectors = tuple(detectors)
        active = [each for each in self.detectors if each.enabled]
        self._countings: defaultdict[str, list[_Counting]] = defaultdict(list)
        for each in active:
            self._countings[each.on].append(_Counting(each, organisation_id, tools))
        self._established = {each.per: MEMBERS.get(each.per) for each in active if each.established}
        self.counts = frozenset(self._countings) | ({"tool.called"} if self._established else frozenset())
        """What has to happen that any of them takes notice; of all else it need not be told."""
        self._load, self._ids = load, ids
        self._tallies: dict[TallyName, Tally] = {}
        self._changed: dict[TallyName, tuple[_Counting | None, int]] = {}
        """Those to be kept, with the slot that they were last changed in."""

    def reads(self, *members: str) -> bool:
        """Whether a detector looks at one of these, such as `runId`."""
        countings = (each for several in self._countings.values() for each in several)
        return any(not each.reads.isdisjoint(members) for each in countings)

    def observe(
        self,
        happenings: Sequence[Happening],
        *,
        silent: bool = False,
        only: str | None = None,
        now: int | None = None,
    ) -> list[Fired]:
        """Count what happened, oldest first; `silent`: so long ago that nobody is to be told. It is for all
        detectors, or `only` for the one with this id. What was counted in minutes after `now`, while a clock
        was ahead, counts as of now."""
        calls = self._calls(happenings)
        counted = [
            (counting, subject, happening)
            for happening in happenings
            for counting in self._countings.get(happening.on, ())
            if only is None or counting.detector.detector_id == only
            if (subject := counting.subject(happening))
        ]
        wanted = {(counting.name, subject) for counting, subject, _ in counted} | calls.keys()
        wanted |= {
            (counting.many, happening.key_id)
            for counting, _, happening in counted
            if counting.many and happening.key_id
        }
        wanted |= {
            (f"{CALLS}:{counting.detector.per}", subject)
            for counting, subject, _ in counted
            if counting.detector.established
        }
        self._read(wanted)
        if now is not None:
            for counting, subject in {(counting, subject) for counting, subject, _ in counted}:
                self._tallies[counting.name, subject].put_back(now // counting.slots.minutes)
        found = (self._count(*each, calls, silent) for each in counted)
        fired = [each for each in found if each is not None]
        self._add_calls(calls, happenings[-1].minute if happenings else 0)
        return fired

    @property
    def changed(self) -> dict[TallyName, tuple[Tally, int]]:
        """The tallies to be kept, each with the minute after which it is not needed any more."""
        found = {}
        for name, (counting, slot) in self._changed.items():
            tally = self._tallies[name]
            if counting is None:
                found[name] = tally, slot + REMEMBERED_MINUTES
            else:
                found[name] = tally, tally.expires(counting.detector, counting.slots, slot)
        return found

    @property
    def has_changed(self) -> bool:
        return bool(self._changed)

    def kept(self) -> None:
        """What has changed is kept elsewhere now."""
        self._changed = {}
        values = sum(len(each.values) for each in self._tallies.values())
        if len(self._tallies) > MOST_TALLIES or values > MOST_VALUES:
            self._tallies = {}

    def marked(self, detector: Detector) -> int:
        """The minute up to which something was looked at for a detector; 0: never."""
        name = (name_of(detector), NOBODY)
        self._read({name})
        return self._tallies[name].newest

    def mark(self, detector: Detector, minute: int) -> None:
        name = (name_of(detector), NOBODY)
        self._tallies[name] = Tally(newest=minute)
        self._changed[name] = None, minute

    def _calls(self, happenings: Sequence[Happening]) -> dict[TallyName, list[Sequence[int]]]:
        """Where in these happenings the calls of each subject are that detectors want to have established."""
        found: defaultdict[TallyName, list[Sequence[int]]] = defaultdict(list)
        for per, member in self._established.items():
            name = f"{CALLS}:{per}"
            for each in happenings:
                if each.on == "tool.called":
                    subject = self.organisation_id if member is None else getattr(each, member)
                    known = self._tallies.get((name, subject))
                    if subject and (known is None or known.calls < MOST_CALLS):
                        found[name, subject].append(each.order)
        return found

    def _read(self, wanted: set[TallyName]) -> None:
        """Have these tallies in memory, by one look."""
        if missing := wanted - self._tallies.keys():
            found = self._load(missing)
            for name in missing:
                self._tallies[name] = found.get(name) or Tally()

    def _count(
        self,
        counting: _Counting,
        subject: str,
        happening: Happening,
        calls: Mapping[TallyName, list[Sequence[int]]],
        silent: bool,
    ) -> Fired | None:
        detector, name = counting.detector, (counting.name, subject)
        tally, times = self._tallies[name], happening.times
        if detector.first:
            if tally.had_first:
                return None
            tally.had_first, times = True, 1
        slot = happening.minute // counting.slots.minutes
        self._changed[name] = counting, slot
        if detector.established and not self._is_established(detector, subject, happening, calls):
            return None
        value = counting.value(happening)
        new = 0 if value == "" else tally.add(detector, counting.slots, slot, value, times)
        total = tally.total()
        if new and total > detector.threshold - MOST_EVIDENCE:  # it tells of the newest records alone
            tally.keep(happening.evidence(new))
        if total < detector.threshold and tally.alert is None:
            return None
        reached = tally.reaches(detector)
        if not reached and tally.alert is None:
            return None
        return self._fire(counting, subject, happening, slot, new, reached, silent)

    def _fire(
        self,
        counting: _Counting,
        subject: str,
        happening: Happening,
        slot: int,
        new: int,
        reached: bool,
        silent: bool,
    ) -> Fired | None:
        """What is told of a subject that has reached the threshold, or did so a while ago."""
        detector, tally = counting.detector, self._tallies[counting.name, subject]
        is_new = tally.alert is None or slot > tally.until
        if is_new and not (reached and new):
            tally.alert = None
            return None
        if reached:
            tally.until = max(tally.until, slot + counting.slots.counted)
        if silent or not new:
            return None
        per, told_of, is_raised = detector.per, subject, is_new
        if is_new and (many := self._many(counting, subject, happening.key_id, slot)) is not None:
            per, told_of, is_raised = "apiKeyId", happening.key_id, many.alert is None
            tally.alert = many.alert = many.alert or self._ids()
        elif is_new:
            tally.alert = self._ids()
        assert tally.alert is not None
        first = min((*tally.slots, *tally.values.values()), default=slot) * counting.slots.minutes
        return Fired(
            detector,
            tally.alert,
            per,
            told_of,
            is_raised,
            tally.total() if is_new else new,
            max(first, happening.minute - detector.window_seconds // 60) if is_new else happening.minute,
            happening.minute,
            list(tally.evidence) if is_new else happening.evidence(new),
            happening,
        )

    def _many(self, counting: _Counting, subject: str, key_id: str, slot: int) -> Tally | None:
        """What is remembered of an API key, with which there are too many subjects to tell of each."""
        if not (counting.many and key_id):
            return None
        many = self._tallies[counting.many, key_id]
        many.add(counting.detector, counting.slots, slot, subject, 1)
        self._changed[counting.many, key_id] = counting, slot
        if len(many.values) > MOST_OF_A_KEY:
            return many
        many.alert = None
        return None

    def _is_established(
        self,
        detector: Detector,
        subject: str,
        happening: Happening,
        calls: Mapping[TallyName, list[Sequence[int]]],
    ) -> bool:
        """Whether the subject had made enough calls before this."""
        name = (f"{CALLS}:{detector.per}", subject)
        before = self._tallies[name].calls
        if before < detector.established:
            before += sum(bisect_left(order, happening.order[0]) for order in calls.get(name, ()))
        return before >= detector.established

    def _add_calls(self, calls: Mapping[TallyName, list[Sequence[int]]], minute: int) -> None:
        for name, orders in calls.items():
            tally = self._tallies[name]
            tally.calls = min(MOST_CALLS, tally.calls + sum(map(len, orders)))
            self._changed[name] = None, minute
