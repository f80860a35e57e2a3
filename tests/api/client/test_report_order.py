"""Random stories of reports that wait, held against a plain list of them in the order of their happening."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from governance_client import report_queue
from governance_client.events import ClientEvent, event
from governance_client.report_queue import RETRIED, BatchResult, Flight, ReportQueue, Settled

RUNS = [f"run-{number}" for number in range(5)]


class Story:
    """INVARIANT: each report is told once, behind all that happened before in its run and in those that it
    names, and nothing of a run that is held back or that comes behind one."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.queue = ReportQueue(lambda: None)
        self.kept: list[ClientEvent] = []
        self.own: list[ClientEvent] = []
        self.files: list[list[ClientEvent]] = [[], [], []]
        self.flights: list[Flight] = []
        self.held: set[str] = set()
        self.settled: Counter[str] = Counter()
        self.time = 0

    def made(self) -> ClientEvent:
        self.time += 1
        number = self.random.randrange(len(RUNS))
        before = [each for each in RUNS[:number] if self.random.random() < 0.3]
        kind = self.random.choice(["tool.completed", "run.started", "custom.other"])
        return replace(event(kind, (*before, RUNS[number]), "payer", {}), at=f"{self.time:06}")

    def whom(self, events: Sequence[ClientEvent]) -> list[Settled]:
        return [lambda status, why, name=each.event_id: self.settled.update([name]) for each in events]

    def step(self) -> None:
        kind = self.random.choice(["own", "own", "keep", "file", "file", "find", "hold", *["send"] * 4])
        if kind == "own":
            self.own.append(self.made())
            self.queue.add(self.own[-1])
        elif kind == "keep":
            self.own.append(self.made())
            self.queue.keep(self.own[-1], self.whom)
        elif kind == "file":
            self.random.choice(self.files).append(self.made())
        elif kind == "find":
            found = [self.files.pop() for _ in range(self.random.randrange(3))]
            self.files += [[] for _ in found]
            self.queue.add_first(*(list(zip(each, self.whom(each), strict=True)) for each in found))
            self.kept = sorted([*self.kept, *(each for file in found for each in file)], key=lambda e: e.at)
        elif kind == "hold":
            run_id = self.random.choice(RUNS)
            if run_id in self.held:
                self.queue.release(run_id)
            else:
                self.queue.hold_back(run_id, "it waits")
            self.held ^= {run_id}
        elif len(self.flights) > self.random.randrange(4):
            self.answer(self.flights.pop(self.random.randrange(len(self.flights))))
        else:
            line, newest = self.random.sample(RUNS, 2), self.queue.newest
            self.send(self.queue.take_any() if self.random.random() < 0.5 else self.queue.take(line, newest))

    def send(self, taken: object) -> None:
        if not isinstance(taken, Flight) or not taken.reports:
            return
        waiting = [*self.kept, *self.own]
        for number, report in enumerate(taken.reports):
            line = report.event.line
            assert self.held.isdisjoint(line)
            together = {each.event.event_id for each in taken.reports[:number]}
            place = [each.event_id for each in waiting].index(report.event.event_id)
            for each in waiting[:place]:
                assert each.run_id not in line[:-1], "nothing of the runs before is on its way"
                assert each.run_id != line[-1] or each.event_id in together, "nor before it in its own run"
        self.flights.append(taken)

    def answer(self, flight: Flight) -> None:
        if self.random.random() < 0.4:
            self.queue.put_back(flight, smaller=self.random.random() < 0.5)
            return
        answers = [BatchResult(self.random.choice([200, 200, 409, 503]), {}) for _ in flight.reports]
        self.queue.settle(flight, answers)
        pairs = zip(flight.reports, answers, strict=True)
        told = {report.event.event_id for report, answer in pairs if answer.status not in RETRIED}
        self.kept, self.own = ([e for e in each if e.event_id not in told] for each in (self.kept, self.own))

    def end(self) -> None:
        """All of it is told in the end."""
        for run_id in self.held:
            self.queue.release(run_id)
        self.held = set()
        while self.flights or not self.queue.is_empty:
            while self.flights:
                self.answer(self.flights.pop())
            self.send(self.queue.take_any())
        assert self.kept == self.own == []
        assert set(self.settled.values()) <= {1}


@pytest.mark.parametrize("seed", range(60))
def test_reports_are_told_in_the_order_of_their_happening(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_queue, "MOST_EVENTS", 1 + seed % 4)
    story = Story(seed)
    for _ in range(150):
        story.step()
    story.end()
