"""What is counted together comes out as if each had been counted alone."""

from __future__ import annotations

import random
from itertools import pairwise
from operator import sub

from prometheus_client import CollectorRegistry, Histogram

from api import metrics
from api.metrics import EVENTS_PATH, LATENCY_BOUNDS, Totals

COUNT = 1_000


def test_quick_answers_are_counted_each_and_told_at_once() -> None:
    draw = random.Random(3)
    answers = [draw.choice((*LATENCY_BOUNDS, 20 * draw.random() ** 6)) for _ in range(COUNT)]
    alone = Histogram("alone", "One by one.", buckets=LATENCY_BOUNDS, registry=CollectorRegistry())
    before, requests, seconds = metrics.totals(), _requests(), _seconds()
    told: list[Totals] = []
    for number, answer in enumerate(answers):
        alone.observe(answer)
        metrics.answered_quickly(answer)
        if number % 300 == 7:
            told.append(metrics.totals())
            assert sum(map(sub, told[-1].latency, before.latency)) == number + 1
    assert len(told) == 4
    after = metrics.totals()
    within = [each.value for each in next(iter(alone.collect())).samples if each.name == "alone_bucket"]
    expected = [after - before for before, after in pairwise([0.0, *within])]
    assert list(map(sub, after.latency, before.latency)) == expected
    assert _requests() == requests + COUNT
    assert abs(_seconds() - seconds - sum(answers)) < 1e-6


def test_batches_are_counted_each_and_told_at_once() -> None:
    draw = random.Random(4)
    types, statuses = ("tool.called", "run.started", "custom.x"), ("allowed", "blocked", "awaiting_approval")
    before, named = metrics.totals(), _decided()
    events, decisions, policies = 0, dict.fromkeys(statuses, 0), 0
    for number in range(COUNT):
        kinds = draw.choices(types, k=draw.randrange(4))
        found = draw.choices(statuses, k=draw.randrange(4))
        metrics.recorded(kinds, found, [("acme", "counted-together", "blocked")] * (number % 3))
        events, policies = events + len(kinds), policies + number % 3
        for status in found:
            decisions[status] += 1
        if number % 300 == 7 or number == COUNT - 1:
            now = metrics.totals()
            assert now.events - before.events == events
            assert {each: now.decisions[each] - before.decisions[each] for each in statuses} == decisions
            assert _decided() - named == policies


def _decided() -> float:
    labels = {"organisation": "acme", "policy": "counted-together", "status": "blocked"}
    return metrics.REGISTRY.get_sample_value("governance_policy_decisions_total", labels) or 0.0


def _requests() -> float:
    labels = {"method": "POST", "route": EVENTS_PATH, "status": "200"}
    return metrics.REGISTRY.get_sample_value("governance_requests_total", labels) or 0.0


def _seconds() -> float:
    return metrics.REGISTRY.get_sample_value("governance_event_seconds_sum") or 0.0
