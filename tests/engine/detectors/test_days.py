"""Detectors over weeks, against a plain reading of what they promise that keeps all that ever happened.

What is kept of a subject is dropped as soon as it says that it is not needed any more, and kept and read
again between any two happenings, as a service does that is started anew each time.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from itertools import count
from typing import Any

import pytest

from engine.detectors.happening import Happening
from engine.detectors.tally import REMEMBERED_MINUTES, Tally
from engine.detectors.watch import TallyName, Watch
from engine.model import Detector, Usual

START = 30_000_000
DAY = 24 * 60

Told = list[tuple[int, str, bool, int]]
"""Minute, subject, whether the alert is new, and the count."""


def _detector(chance: random.Random) -> Detector:
    usual = Usual(times=chance.choice((1.5, 3.0)), windows=chance.choice((2, 4)))
    kind: dict[str, Any] = chance.choice(({}, {"distinct": "toolName"}, {"usual": usual}))
    return Detector(
        detector_id="d",
        name="D",
        on="tool.called",
        severity="high",
        window_seconds=chance.choice((60, 600, 3_600, 86_400, 3 * 86_400)),
        threshold=chance.choice((1, 4, 12)),
        per=chance.choice(("agentId", "organisationId")),
        **kind,
    )


def _happened(chance: random.Random) -> list[Happening]:
    """Busy hours and quiet weeks."""
    minute, found = START + chance.randrange(DAY), []
    for position in range(400):
        soon = chance.choice((0, 0, 0, 1, 1, 5, 30))
        minute += soon if chance.random() < 0.97 else chance.randrange(7 * DAY)
        found.append(
            Happening(
                "tool.called",
                minute,
                [position * 10 + each for each in range(chance.randint(1, 4))],
                agent_id=chance.choice("ab"),
                tool_name=chance.choice("stuvwxyz"),
            )
        )
    return found


def _watched(detector: Detector, happened: Iterable[Happening]) -> tuple[Told, int]:
    kept: dict[TallyName, tuple[Tally, int]] = {}
    numbers, told, dropped = count(1), Told(), 0

    def load(names: Iterable[TallyName]) -> dict[TallyName, Tally]:
        return {name: kept[name][0] for name in names if name in kept}

    for each in happened:
        past = [name for name, (_, until) in kept.items() if until < each.minute]
        dropped += len(past)
        for name in past:
            del kept[name]
        watch = Watch("acme", [detector], load=load, ids=lambda: f"alert-{next(numbers)}")
        told += [(each.minute, fired.subject, fired.is_new, fired.count) for fired in watch.observe([each])]
        kept |= watch.changed
    return told, dropped


def _plain(detector: Detector, happened: Iterable[Happening]) -> Told:
    window = detector.window_seconds // 60
    minutes = window if detector.usual else max(1, window // 60)
    counted = 1 if detector.usual else -(-window // minutes) + 1
    before: defaultdict[str, list[tuple[int, Happening]]] = defaultdict(list)
    until: dict[str, int] = {}
    told = Told()
    for each in happened:
        subject = "acme" if detector.per == "organisationId" else each.agent_id
        slot = each.minute // minutes
        recent = [(at, one) for at, one in before[subject] if at > slot - counted]
        if detector.distinct:
            names = {one.tool_name for _, one in recent}
            new, total = int(each.tool_name not in names), len(names | {each.tool_name})
        else:
            new = each.times
            total = new + sum(one.times for _, one in recent)
        before[subject].append((slot, each))
        reached = total >= detector.threshold and _is_unusual(detector.usual, before[subject], slot, total)
        is_open = slot <= until.get(subject, -1)
        if new and (reached or is_open):
            told.append((each.minute, subject, not is_open, new if is_open else total))
        if reached and (new or is_open):
            until[subject] = slot + counted
    return told


def _is_unusual(usual: Usual | None, before: Iterable[tuple[int, Happening]], slot: int, total: int) -> bool:
    if usual is None:
        return True
    windows: defaultdict[int, int] = defaultdict(int)
    for at, each in before:
        windows[at] += each.times
    mean, known = 0.0, 0
    for at, found in sorted(windows.items()):
        if at == slot:
            break
        learnt = min(found, usual.times * mean) if known >= usual.windows else found
        known += 1
        mean += (learnt - mean) / min(known, 20)
    return known >= usual.windows and total > usual.times * mean


@pytest.mark.parametrize("seed", range(120))
def test_over_weeks_they_tell_what_a_plain_reading_tells(seed: int) -> None:
    chance = random.Random(seed)
    detector, happened = _detector(chance), _happened(chance)
    told, dropped = _watched(detector, happened)
    assert told == _plain(detector, happened)
    assert detector.usual or detector.window_seconds > DAY * 60 or dropped


def test_what_is_usual_is_known_for_ninety_days() -> None:
    detector = Detector(
        detector_id="d",
        name="D",
        on="tool.called",
        severity="high",
        window_seconds=3_600,
        threshold=5,
        usual=Usual(times=3.0, windows=2),
    )

    def calls(minute: int, times: int) -> Happening:
        return Happening("tool.called", minute, range(times), agent_id="a", tool_name="t")

    before = [calls(START, 4), calls(START + 60, 4)]
    known, _ = _watched(detector, [*before, calls(START + REMEMBERED_MINUTES, 40)])
    forgotten, _ = _watched(detector, [*before, calls(START + REMEMBERED_MINUTES + DAY, 40)])
    assert [each[3] for each in known] == [40] and forgotten == []
