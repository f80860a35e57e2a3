"""What the shipped presets cost a call: `python -m tests.bench.presets`.

Ordinary calls of the corpus, as one agent makes them: a few tools, over and over. Each is decided by the
policies of a pack, and, as the yardstick of the same run, by 1,000 policies that are kind to an index; the
best of its passes counts. Reading what a call does - its commands, its SQL, where it goes - is part of it.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Final

from engine.matching.ruleset import Ruleset
from engine.model import ToolCall
from tests.bench.workload import Company
from tests.corpus.score import EVERYTHING, calls, ruleset

PASSES: Final = 40
CALLS: Final = 80


def measured(rules: Ruleset, chosen: Sequence[ToolCall]) -> list[float]:
    """Microseconds of each call."""
    best = [float("inf")] * len(chosen)
    for _ in range(PASSES):
        for number, call in enumerate(chosen):
            begun = time.perf_counter_ns()
            rules.evaluate(call)
            best[number] = min(best[number], (time.perf_counter_ns() - begun) / 1e3)
    return best


def main() -> None:
    corpus = [each.call for half in ("held", "fresh", "unseen") for each in calls("benign", half)]
    chosen = corpus[:: max(1, len(corpus) // CALLS)]
    company = Company(1_000)
    yardstick = statistics.median(measured(Ruleset.build(company.policies), company.calls(500)))
    print(f"{len(chosen)} calls; 1,000 policies without presets: {yardstick:.1f} µs a call (median)")
    for name in sys.argv[1:] or ("starter", "coding-agent", "office-agent", EVERYTHING):
        rules = ruleset(name)
        gc.collect()
        gc.freeze()
        times = sorted(measured(rules, chosen))
        median, p95 = statistics.median(times), times[int(len(times) * 0.95)]
        print(
            f"{name:<14}{len(rules.rules):>4} policies {median:>8.0f} µs {median / yardstick:>6.0f}x"
            f"   p95 {p95:>6.0f} µs"
        )


if __name__ == "__main__":
    main()
