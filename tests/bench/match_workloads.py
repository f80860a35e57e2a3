"""The same engine on two workloads, the plain loop beside it, and how long each takes to load.

`Company` is kind to an index, `NearMisses` is not. Part of `python -m tests.bench.match`; by itself
`python -m tests.bench.match_workloads [sizes]`. Timed as `match.py` explains: each call in several passes by
the wall clock, of which the best counts; the loop once, by CPU time. Loading is CPU time from the JSON of the
policies to the index, the garbage collector held off as the service holds it off.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from dataclasses import dataclass

from engine.documents.policy import policy_as_json, policy_from_json
from engine.gc_pause import gc_paused
from engine.matching.ruleset import Ruleset
from tests.bench.near_misses import NearMisses
from tests.bench.workload import Company

SIZES = (1_000, 10_000, 100_000)
PASSES = 5
LOOP_BUDGET = 4e6
"""Microseconds for the plain loop."""


@dataclass
class Line:
    """One workload at one size; times in microseconds, loading in seconds."""

    size: int
    workload: str
    times: list[float]
    loop: list[float]
    candidates: list[int]
    patterns: int
    validate: float
    index: float

    def __str__(self) -> str:
        ours, loop = statistics.median(self.times), statistics.median(self.loop)
        p99 = sorted(self.times)[int(len(self.times) * 0.99)]
        return (
            f"| {self.size:,} | {self.workload} | {self.patterns:,} | {ours:.1f} µs | {p99:.1f} µs"
            f" | {loop / 1e3:.3g} ms | {loop / ours:,.0f}x"
            f" | {statistics.median(self.candidates):.0f} | {max(self.candidates)}"
            f" | {self.validate + self.index:.1f} s ({self.validate:.1f} + {self.index:.1f}) |"
        )


HEADING = """\
The policies above are kind to an index. Below the same engine beside policies that nearly match
(`near_misses.py`): the right tool and a common region with an identifier that no call carries, conditions
that are common apart and rare together, patterns of common words or without any literal."""

HEAD = """\
| policies | workload | distinct patterns | p50 | p99 | plain loop | loop to p50 | candidates, median | most \
| load from JSON (validate + index) |
|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|"""


def measured(size: int, kind: type[Company], count: int) -> Line:
    """One line; every answer that the loop gives is compared."""
    made = kind(size)
    calls = made.calls(count)
    text = json.dumps([policy_as_json(policy) for policy in made.policies])
    del made
    start = time.process_time()
    with gc_paused():
        policies = [policy_from_json(body) for body in json.loads(text)]
    validated = time.process_time()
    ruleset = Ruleset.build(policies)
    indexed = time.process_time()
    gc.collect()
    gc.freeze()
    times = [float("inf")] * count
    for _ in range(PASSES):
        for number, call in enumerate(calls):
            begun = time.perf_counter_ns()
            ruleset.evaluate(call)
            times[number] = min(times[number], (time.perf_counter_ns() - begun) / 1e3)
    loop: list[float] = []
    for call in calls:
        begun = time.process_time_ns()
        found = ruleset.scan(call)
        loop.append((time.process_time_ns() - begun) / 1e3)
        assert found == ruleset.evaluate(call), f"the index answers otherwise for {call}"
        if sum(loop) > LOOP_BUDGET and len(loop) >= 5:
            break
    patterns = {
        condition.value
        for policy in policies
        for condition in policy.conditions
        if condition.operator == "matches"
    }
    candidates = [len(ruleset._matcher.candidates(call)) for call in calls]
    return Line(
        *(size, "near misses" if kind is NearMisses else "kind", times, loop, candidates),
        *(len(patterns), validated - start, indexed - validated),
    )


def table(sizes: tuple[int, ...] | list[int], count: int) -> str:
    lines = [measured(size, kind, count) for size in sizes for kind in (Company, NearMisses)]
    return "\n".join([HEAD, *map(str, lines)])


if __name__ == "__main__":
    print(table([int(size) for size in sys.argv[1:]] or SIZES, 2_000))
