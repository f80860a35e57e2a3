"""The load gate of detectors: what their examples say must come about when it happens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Final

from engine.derived.tools import Tools
from engine.detectors.happening import Happening
from engine.detectors.watch import Watch
from engine.model import Detector, Json

BEGIN: Final = 1_000_000_020
"""Seconds since the epoch, at the beginning of a minute, and of no hour."""


def failures(
    detector: Detector, examples: Sequence[Mapping[str, Json]], tools: Tools
) -> Iterator[tuple[int, str]]:
    """Index and explanation of every example that does not hold."""
    detector = replace(detector, enabled=True)
    for index, example in enumerate(examples):
        numbers = count(1)
        watch = Watch(detector.organisation_id, [detector], tools, ids=lambda: f"alert {next(numbers)}")  # noqa: B023
        fired = watch.observe(list(happenings(detector, example["happens"])))
        raised = len({each.alert_id for each in fired})
        if raised != example["alerts"]:
            yield index, f"this must lead to {example['alerts']} alerts, but leads to {raised}"


def lacking(examples: Sequence[Mapping[str, Json]]) -> str | None:
    """What the examples of a detector leave open, if they leave something."""
    if not examples:
        return "there are no examples; say what must raise an alert and what must not"
    if all(example["alerts"] for example in examples):
        return "no example says what must raise no alert"
    if not any(example["alerts"] for example in examples):
        return "no example says what must raise an alert"
    return None


def happenings(detector: Detector, entries: Sequence[Mapping[str, Json]]) -> Iterator[Happening]:
    """The happenings that an example says."""
    at, number = BEGIN, 0
    for entry in entries:
        at += int(entry.get("after", 0))
        names = entry.get("toolName", "")
        for name in names if isinstance(names, list) else [names]:
            order = range(number, number + int(entry.get("times", 1)))
            number = order.stop
            yield Happening(
                on=entry.get("on", detector.on),
                minute=at // 60,
                order=order,
                agent_id=entry.get("agentId", "agent"),
                key_id=entry.get("apiKeyId", "key"),
                run_id=entry.get("runId", "run"),
                user_id=entry.get("userId", ""),
                tool_name=name,
                what=entry.get("what", ""),
            )
