"""What is remembered of one subject for one detector: counts of the last while, and the alert that is open.

Time is counted in slots of whole minutes, so a tally stays small however much happens, and a window reaches
back to the beginning of the slot in which it began. Knows nothing of conditions.

INVARIANT: the same happenings, in whatever batches, lead to the same counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

import msgspec

from engine.detectors.happening import MOST_EVIDENCE
from engine.model import Detector

MOST_VALUES: Final = 1_000
LONGEST_VALUE: Final = 15
"""Characters of a distinct value; a longer one is told apart by its digest, which is longer than that. So a
tally stays small, whatever agents call their tools."""
REMEMBERED_MINUTES: Final = 90 * 24 * 60
"""How long what a subject usually does is known after the last of it."""
MOST_SLOTS: Final = 60
_LONGEST_MEAN: Final = 20
"""Windows that the usual count is a mean of; those of before fade."""


@dataclass(frozen=True, slots=True)
class Slots:
    """How a detector's window is divided: slots of so many `minutes`, of which so many are counted."""

    minutes: int
    counted: int

    @classmethod
    def of(cls, detector: Detector) -> Slots:
        window = -(-detector.window_seconds // 60)
        if detector.usual is not None:
            return cls(window, 1)
        minutes = max(1, window // MOST_SLOTS)
        return cls(minutes, -(-window // minutes) + 1)


class Tally(msgspec.Struct, omit_defaults=True):
    """See the module. Numbers of slots are since the epoch."""

    newest: int = 0
    """The last slot in which anything was counted."""
    slots: dict[int, int] = {}
    """What was counted in each."""
    values: dict[str, int] = {}
    """Distinct values, or their digests, and the slot in which each was seen last."""
    evidence: list[str] = []
    mean: float = 0.0
    windows: int = 0
    """Those that the mean is of."""
    had_first: bool = False
    calls: int = 0
    alert: str | None = None
    until: int = 0
    """The last slot that may still add to the alert."""

    def add(self, detector: Detector, slots: Slots, slot: int, value: str | None, times: int) -> int:
        """Count; returns how many of these are new: 0 for a distinct value that is known."""
        if slot > self.newest:
            self._advance(detector, slots, slot)
        elif slot <= self.newest - slots.counted:
            return 0
        if value is None:
            self.slots[slot] = self.slots.get(slot, 0) + times
            return times
        if len(value) > LONGEST_VALUE:
            value = sha256(value.encode(errors="surrogatepass")).hexdigest()[:16]
        known = value in self.values
        if known or len(self.values) < MOST_VALUES:
            self.values[value] = max(slot, self.values.get(value, 0))
        return 0 if known else 1

    def put_back(self, slot: int) -> None:
        """Have what was counted after this slot count in it: else nothing would count until then."""
        if self.newest <= slot:
            return
        later = sum(count for each, count in self.slots.items() if each >= slot)
        self.slots = {each: count for each, count in self.slots.items() if each < slot}
        if later:
            self.slots[slot] = later
        self.values = {each: min(last, slot) for each, last in self.values.items()}
        self.newest, self.until = slot, min(self.until, slot)

    def keep(self, evidence: Sequence[str]) -> None:
        """The newest pieces of evidence stay."""
        self.evidence = [*self.evidence, *evidence][-MOST_EVIDENCE:]

    def total(self) -> int:
        return len(self.values) + sum(self.slots.values())

    def reaches(self, detector: Detector) -> bool:
        """Whether that is unusual."""
        total, usual = self.total(), detector.usual
        if total < detector.threshold:
            return False
        return usual is None or (self.windows >= usual.windows and total > usual.times * self.mean)

    def expires(self, detector: Detector, slots: Slots, slot: int) -> int:
        """The minute after which nothing of it is needed any more, if nothing follows this slot."""
        last = max(self.newest, self.until, slot) + 1
        if detector.usual is not None or detector.first:
            return last * slots.minutes + REMEMBERED_MINUTES
        return (last + slots.counted) * slots.minutes

    def _advance(self, detector: Detector, slots: Slots, slot: int) -> None:
        if detector.usual is not None and self.newest in self.slots:
            self._learn(detector.usual.times, detector.usual.windows, self.slots[self.newest])
        oldest = slot - slots.counted
        self.slots = {each: count for each, count in self.slots.items() if each > oldest}
        self.values = {each: last for each, last in self.values.items() if last > oldest}
        if not self.slots and not self.values and slot > self.until:
            self.evidence = []
        self.newest = slot

    def _learn(self, times: float, windows: int, count: int) -> None:
        """A window is over: what the subject usually does. What was beyond it is not learnt at once."""
        usual = min(count, times * self.mean) if self.windows >= windows else count
        self.windows += 1
        self.mean += (usual - self.mean) / min(self.windows, _LONGEST_MEAN)
