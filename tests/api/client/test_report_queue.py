"""What is sent next of the reports that wait, whichever runs they name."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest
from governance_client import report_queue
from governance_client.events import ClientEvent, event
from governance_client.report_queue import BatchResult, Flight, ReportQueue, Settled


def queue_of(*reports: tuple[str, tuple[str, ...]]) -> ReportQueue:
    queue = ReportQueue(lambda: None)
    for kind, line in reports:
        queue.add(event(kind, line, "payer", {}))
    return queue


def kinds(flight: object) -> list[str]:
    assert isinstance(flight, Flight), "there is nothing to send yet"
    return [report.event.event_type for report in flight.reports]


def take(flight: object, queue: ReportQueue) -> list[str]:
    """The service takes what was sent."""
    found = kinds(flight)
    assert isinstance(flight, Flight)
    queue.settle(flight, [BatchResult(200, {})] * len(found))
    return found


def test_a_start_that_waits_for_another_run_is_not_overtaken_by_its_own_run() -> None:
    """As from the journal, where the start alone says which run it goes on from."""
    queue = queue_of(("custom.before", ("before",)))
    going = queue.take(["before"], queue.newest)
    queue.add(event("run.started", ("before", "run"), "payer", {}))
    queue.add(event("tool.called", ("run",), "payer", {}))
    queue.add(event("custom.other", ("other",), "payer", {}))
    assert take(queue.take_any(), queue) == ["custom.other"]
    assert not isinstance(queue.take_any(), Flight)
    assert take(going, queue) == ["custom.before"]
    assert take(queue.take_any(), queue) == ["run.started", "tool.called"]
    assert queue.is_empty


def test_a_run_waits_for_one_before_it_that_waits_itself() -> None:
    queue = queue_of(("custom.first", ("first",)))
    going = queue.take(["first"], queue.newest)
    queue.add(event("custom.second", ("first", "second"), "payer", {}))
    queue.add(event("custom.third", ("second", "third"), "payer", {}))
    assert not isinstance(queue.take_any(), Flight)
    take(going, queue)
    assert [take(queue.take_any(), queue) for _ in range(2)] == [["custom.second"], ["custom.third"]]


def test_runs_that_name_each_other_are_sent_all_the_same() -> None:
    queue = queue_of(("run.started", ("b", "a")), ("run.started", ("a", "b")), ("custom.a", ("b", "a")))
    assert [take(queue.take(["a"], queue.newest), queue) for _ in range(3)] == [
        ["run.started"],
        ["run.started"],
        ["custom.a"],
    ]
    assert queue.is_empty


def test_a_long_conversation_keeps_no_other_run_waiting() -> None:
    """Each of its runs goes on from the one before, and all of them wait since the service was away."""
    turns = [("custom.turn", (f"turn-{number}", f"turn-{number + 1}")) for number in range(4_000)]
    queue = queue_of(*turns, ("custom.other", ("other",)))
    assert take(queue.take_any(), queue) == ["custom.turn", "custom.other"]


def test_a_run_that_reports_without_end_keeps_no_question_waiting() -> None:
    queue = queue_of(("custom.first", ("run",)), ("run.started", ("run", "part")))
    until = queue.newest
    for _ in range(2):
        flight = queue.take(["run", "part"], until)
        queue.add(event("custom.later", ("run",), "payer", {}))
        assert take(flight, queue) in (["custom.first"], ["run.started"])
        later = queue.take(["run"], queue.newest)
        assert kinds(later)[0] == "custom.later"
        queue.add(event("custom.later", ("run",), "payer", {}))
        assert kinds(queue.take(["run"], until)) == []
        queue.put_back(later)
    assert kinds(queue.take(["run", "part"], until)) == []


def test_a_refusal_that_cannot_be_kept_holds_up_no_other_run_and_is_sent_again() -> None:
    """The disk is full, and has room again a moment later."""
    room = iter([False, True])
    kept: list[int] = []

    def settled(status: int, why: str) -> None:
        if not next(room):
            raise OSError(errno.ENOSPC, "no room")
        kept.append(status)

    queue = queue_of()
    queue.add(event("tool.called", ("run",), "payer", {}), settled)
    queue.add(event("custom.other", ("other",), "payer", {}))
    flight = queue.take_any()
    assert isinstance(flight, Flight)
    assert not queue.settle(flight, [BatchResult(403, {}), BatchResult(200, {})])
    assert kinds(queue.take(["other"], queue.newest)) == []
    flight = queue.take_any()
    assert isinstance(flight, Flight) and kinds(flight) == ["tool.called"]
    assert queue.settle(flight, [BatchResult(403, {})]) and kept == [403] and queue.is_empty


def test_nothing_is_left_of_a_run_whose_only_output_was_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_queue, "MOST_KEPT", 0)
    queue = queue_of(("tool.completed", ("run",)), ("custom.other", ("other",)))
    assert take(queue.take_any(), queue) == ["custom.other"]
    assert queue.is_empty and not queue.wait(0)


def test_what_was_kept_comes_first_and_a_run_waits_with_those_behind_it() -> None:
    queue = queue_of(("run.started", ("above", "run")), ("run.started", ("run", "child")))
    queue.add(event("custom.other", ("other",), "payer", {}))
    queue.hold_back("run", "it waits")
    assert take(queue.take_any(), queue) == ["custom.other"]
    assert kinds(queue.take(["child"], queue.newest)) == []
    settled: list[int] = []
    kept = [event(name, ("above",), "payer", {}) for name in ("custom.1", "custom.2")]
    queue.add_first([(each, lambda status, why: settled.append(status)) for each in kept])
    queue.release("run")
    first = [take(queue.take(["child"], queue.newest), queue) for _ in range(3)]
    assert first == [["custom.1", "custom.2"], ["run.started"], ["run.started"]]
    assert settled == [200, 200] and queue.is_empty


def told_to(settled: list[str], kind: str, line: tuple[str, ...], at: str) -> tuple[ClientEvent, Settled]:
    made = replace(event(kind, line, "payer", {}), at=at)
    return made, lambda status, why: settled.append(kind)


def test_what_comes_back_stands_behind_what_was_kept_meanwhile() -> None:
    queue, settled = queue_of(("custom.own", ("run",))), list[str]()
    flight = queue.take_any()
    assert isinstance(flight, Flight)
    queue.add_first([told_to(settled, f"custom.{at}", ("run",), at) for at in "12"])
    queue.put_back(flight, smaller=True)
    assert [take(queue.take_any(), queue) for _ in range(2)] == [["custom.1"], ["custom.2", "custom.own"]]
    assert settled == ["custom.1", "custom.2"] and queue.is_empty


def test_what_was_kept_is_told_by_its_time_whenever_it_is_found() -> None:
    queue, settled = queue_of(), list[str]()
    queue.add_first([told_to(settled, "run.started", ("above", "run"), "2")])
    queue.add_first([told_to(settled, "custom.later", ("run",), "3")])
    queue.add_first([told_to(settled, "custom.above", ("above",), "1")])
    flight = queue.take_any()
    queue.add_first([told_to(settled, "run.started", ("above", "other"), "4")])
    assert not isinstance(queue.take(["other"], queue.newest), Flight), "what is being sent was before it"
    assert take(flight, queue) == ["custom.above"]
    assert take(queue.take_any(), queue) == ["run.started", "custom.later", "run.started"]


def test_what_is_kept_elsewhere_makes_no_output_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_queue, "MOST_KEPT", 2)
    queue, settled = queue_of(), list[str]()
    queue.add_first([told_to(settled, "tool.called", (f"run-{at}",), at) for at in "123"])
    for number in range(3):
        queue.add(event("tool.completed", (f"own-{number}",), "payer", {}))
    flight = queue.take_any()
    assert isinstance(flight, Flight)
    told = [report.event.run_id for report in flight.reports]
    assert told == ["run-1", "run-2", "run-3", "own-1", "own-2"]
