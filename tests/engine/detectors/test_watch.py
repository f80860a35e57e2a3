"""What detectors count: windows, distinct values, what is usual or first, and how long an alert goes on."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import count
from typing import Any

import pytest

from engine.detectors.happening import Happening
from engine.detectors.tally import Slots
from engine.detectors.watch import MOST_OF_A_KEY, Fired, Watch, name_of
from engine.model import Condition, Detector, Usual

START = 30_000_000


def detector(**members: Any) -> Detector:
    return Detector(
        **{
            "detector_id": "d",
            "name": "D",
            "on": "tool.called",
            "severity": "high",
            "window_seconds": 600,
            "threshold": 5,
            **members,
        }
    )


def watch(*detectors: Detector) -> Watch:
    numbers = count(1)
    return Watch("acme", detectors, ids=lambda: f"alert-{next(numbers)}")


_POSITIONS = count(1)


def called(minute: int = 0, times: int = 1, **members: Any) -> Happening:
    order = [next(_POSITIONS) for _ in range(times)]
    members = {"agent_id": "a", "tool_name": "t", **members}
    return Happening("tool.called", START + minute, order, "aud_{}".format, **members)


def told(fired: Iterable[Fired]) -> list[tuple[str, bool, int]]:
    return [(each.subject, each.is_new, each.count) for each in fired]


def test_a_threshold_is_reached_once_and_then_counts_up() -> None:
    watching = watch(detector())
    assert watching.observe([called(times=4)]) == []
    (first,) = watching.observe([called(1, 3)])
    assert told([first]) == [("a", True, 7)] and len(first.evidence) == 7
    (more,) = watching.observe([called(2, 2)])
    assert (more.alert_id, told([more])) == (first.alert_id, [("a", False, 2)])


def test_what_lies_behind_the_window_does_not_count() -> None:
    watching = watch(detector())
    assert watching.observe([called(0, 4), called(12, 4)]) == []
    assert told(watching.observe([called(20, 1)])) == [("a", True, 5)]


def test_an_alert_ends_one_window_after_the_last_of_it() -> None:
    watching = watch(detector())
    first, second = watching.observe([called(0, 5), called(40, 5)])
    assert first.is_new and second.is_new and first.alert_id != second.alert_id


def test_distinct_values_count_once() -> None:
    watching = watch(detector(distinct="toolName"))
    assert watching.observe([called(times=100, tool_name=f"t{number}") for number in range(4)]) == []
    fired = watching.observe([called(1, 100, tool_name="t0"), called(1, 100, tool_name="t4")])
    assert told(fired) == [("a", True, 5)]
    assert watching.observe([called(2, 50, tool_name="t4")]) == []
    assert told(watching.observe([called(3, tool_name="t5")])) == [("a", False, 1)]


def test_what_detectors_take_notice_of() -> None:
    assert watch().counts == frozenset()
    assert watch(detector(enabled=False)).counts == frozenset()
    assert watch(detector(), detector(detector_id="e", on="agent.new")).counts == {"tool.called", "agent.new"}
    established = detector(on="agent.changed", threshold=1, established=3)
    assert watch(established).counts == {"agent.changed", "tool.called"}  # the calls of whom it is about


def test_subjects_have_counts_of_their_own() -> None:
    watching = watch(detector(per="apiKeyId"), detector(detector_id="e", per="organisationId"))
    fired = watching.observe([called(times=3, key_id="k1"), called(times=3, key_id="k2")])
    assert told(fired) == [("acme", True, 6)]
    assert told(watching.observe([called(times=2, key_id="k2", agent_id="b")])) == [
        ("k2", True, 5),
        ("acme", False, 2),
    ]
    assert watching.observe([called(times=9, agent_id="b")])[0].subject == "acme", "it has no key"


def test_only_what_meets_the_conditions_counts() -> None:
    wanted = (Condition("toolName", "starts_with", "del"), Condition("agentId", "not_equals", "cleaner"))
    watching = watch(detector(conditions=wanted))
    assert watching.observe([called(times=9), called(times=9, tool_name="del", agent_id="cleaner")]) == []
    assert told(watching.observe([called(times=5, tool_name="del")])) == [("a", True, 5)]


def test_the_first_of_an_established_subject() -> None:
    wanted = (Condition("toolName", "equals", "write"),)
    first = detector(conditions=wanted, first=True, established=10, threshold=1)
    watching = watch(first)
    assert watching.observe([called(times=9), called(times=1, agent_id="b", tool_name="write")]) == []
    assert told(watching.observe([called(times=1), called(times=7, tool_name="write")])) == [("a", True, 1)]
    assert watching.observe([called(99, 5, tool_name="write"), called(99, 20, agent_id="b")]) == []
    assert watching.observe([called(200, 5, agent_id="b", tool_name="write")]) == [], "it was not its first"


def test_in_one_batch_it_matters_what_came_first() -> None:
    first = detector(
        conditions=(Condition("toolName", "equals", "write"),), first=True, established=10, threshold=1
    )
    reads = Happening("tool.called", START, range(1, 100), agent_id="a", tool_name="t")
    write = Happening("tool.called", START, [5], agent_id="a", tool_name="write")
    assert watch(first).observe([reads, write]) == []
    write = Happening("tool.called", START, [50], agent_id="a", tool_name="write")
    assert told(watch(first).observe([reads, write])) == [("a", True, 1)]


def test_more_than_usual() -> None:
    burst = detector(window_seconds=60, threshold=50, usual=Usual(10, 3))
    watching = watch(burst)
    assert watching.observe([called(minute, 6) for minute in range(3)]) == []
    assert watching.observe([called(3, 60)]) == [], "sixty is ten times six, and not more"
    assert told(watching.observe([called(3, 1)])) == [("a", True, 61)]


def test_what_is_beyond_the_usual_is_not_learnt_at_once() -> None:
    watching = watch(detector(window_seconds=60, threshold=50, usual=Usual(2, 3)))
    watching.observe([called(minute, 40) for minute in range(5)])
    assert told(watching.observe([called(5, 4_000)])) == [("a", True, 4_000)]
    assert told(watching.observe([called(60, 4_000)])) == [("a", True, 4_000)]


def test_what_was_before_there_were_detectors_is_counted_and_not_told() -> None:
    watching = watch(detector())
    assert watching.observe([called(times=9)], silent=True) == []
    assert told(watching.observe([called(1, 1)])) == [("a", True, 10)], "it goes on"


def test_one_that_is_switched_off_counts_nothing() -> None:
    watching = watch(detector(enabled=False))
    assert watching.observe([called(times=9)]) == [] and not watching.has_changed


@pytest.mark.parametrize("changes", [{}, {"distinct": "toolName"}, {"per": "organisationId"}])
def test_batches_make_no_difference(changes: dict[str, Any]) -> None:
    """However the same happenings are cut into batches, kept and read again, the same alerts come of them."""
    chance = random.Random(16)
    happened = sorted(
        (
            called(
                chance.randrange(120),
                agent_id=chance.choice("abc"),
                tool_name=chance.choice("stuvwxyz"),
            )
            for _ in range(300)
        ),
        key=lambda each: each.minute,
    )

    def alerts(sizes: Iterable[int]) -> dict[str, int]:
        kept: dict[Any, Any] = {}
        numbers, rest, found = count(1), list(happened), dict[str, int]()

        def load(names: Iterable[Any]) -> dict[Any, Any]:
            return {name: kept[name] for name in names if name in kept}

        for size in sizes:
            watching = Watch(
                "acme",
                [detector(threshold=4, **changes)],
                load=load,
                ids=lambda: f"alert-{next(numbers)}",
            )
            for each in watching.observe(rest[:size]):
                found[each.alert_id] = found.get(each.alert_id, 0) + each.count
            kept |= {name: tally for name, (tally, _) in watching.changed.items()}
            del rest[:size]
        return found

    whole = alerts([300])
    assert whole == alerts([1] * 300) == alerts([7] * 43) and sum(whole.values()) > 4


def test_values_that_are_kept_elsewhere_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent chooses how its tools are called, and a key how many agents there are."""
    monkeypatch.setattr("engine.detectors.watch.MOST_VALUES", 20)
    kept, asked = dict[Any, Any](), set[Any]()

    def load(names: Iterable[Any]) -> dict[Any, Any]:
        asked.update(names)
        return {name: kept[name] for name in names if name in kept}

    watching = Watch("acme", [detector(distinct="toolName", threshold=4)], load=load, ids=lambda: "alert")

    def call(agent: str, tool: int) -> bool:
        asked.clear()
        watching.observe([called(agent_id=agent, tool_name=str(tool))])
        kept.update({name: tally for name, (tally, _) in watching.changed.items()})
        watching.kept()
        return agent in {subject for _, subject in asked}

    assert [call("a", tool) for tool in range(15)] == [True] + [False] * 14
    for tool in range(10):
        call("b", tool)
    assert call("a", 15), "it was not in memory any more"
    assert {len(tally.values) for (_, agent), tally in kept.items() if agent == "a"} == {16}


def test_a_detector_that_counts_otherwise_begins_anew() -> None:
    one = detector()
    assert name_of(one) == name_of(detector(severity="low", threshold=9, name="N"))
    others = [detector(window_seconds=60), detector(per="runId"), detector(distinct="toolName")]
    assert len({name_of(each) for each in (one, *others)}) == 4


@pytest.mark.parametrize(
    ("seconds", "slots"), [(60, (1, 2)), (600, (1, 11)), (3_600, (1, 61)), (86_400, (24, 61))]
)
def test_long_windows_have_longer_slots(seconds: int, slots: tuple[int, int]) -> None:
    found = Slots.of(detector(window_seconds=seconds))
    assert (found.minutes, found.counted) == slots
    assert found.minutes * (found.counted - 1) * 60 >= seconds


@pytest.mark.parametrize("members", [{}, {"distinct": "toolName"}])
def test_what_was_counted_while_the_clock_was_ahead_counts_as_of_now(members: dict[str, Any]) -> None:
    watching = watch(detector(**members))
    day = 24 * 60
    assert watching.observe([called(tool_name="1")], now=START) == []
    ahead = [called(day, tool_name="2"), called(day, tool_name="3")]
    assert watching.observe(ahead, now=START + day) == []
    later = [called(1, tool_name=name) for name in "456"]
    (fired,) = watching.observe(later, now=START + 1)
    assert fired.count == 5
    (more,) = watching.observe([called(9, tool_name="7")], now=START + 9)
    assert not more.is_new
    assert watching.observe([called(30, tool_name="8")], now=START + 30) == []


def test_of_very_many_with_one_key_is_told_together() -> None:
    """A key that is bound to no agent may name any number of them."""
    watching = watch(detector(threshold=1))
    fired = watching.observe([called(agent_id=f"a{number}", key_id="k") for number in range(300)])
    assert [each.subject for each in fired[:MOST_OF_A_KEY]] == [
        f"a{number}" for number in range(MOST_OF_A_KEY)
    ]
    together = fired[MOST_OF_A_KEY:]
    assert {(each.alert_id, each.per, each.subject) for each in together} == {
        (together[0].alert_id, "apiKeyId", "k")
    }
    assert [each.is_new for each in together] == [True] + [False] * 249
    (more,) = watching.observe([called(1, 3, agent_id="a299", key_id="k")])
    assert (more.alert_id, told([more])) == (together[0].alert_id, [("a299", False, 3)])
    (other,) = watching.observe([called(1, agent_id="b", key_id="other")])
    assert told([other]) == [("b", True, 1)]
    (later,) = watching.observe([called(60, agent_id="c", key_id="k")])
    assert (told([later]), later.per) == ([("c", True, 1)], "agentId")


def test_a_detector_that_counts_by_key_or_organisation_tells_as_ever() -> None:
    watching = watch(
        detector(threshold=1, per="runId"), detector(detector_id="e", threshold=1, per="apiKeyId")
    )
    fired = watching.observe([called(run_id=f"r{number}", key_id=f"k{number}") for number in range(100)])
    assert all(each.is_new for each in fired) and len(fired) == 200
