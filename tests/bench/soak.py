"""Full load for a while, watching the memory: `python -m tests.bench.soak --seconds 300`.

Prints a line every few seconds and fails when the service's memory at the end is more than a tenth above what
it was after the first quarter, when everything that grows with use should have reached its size.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.bench import load, served

ALLOWED = 1.10


def soak(seconds: int, step: int, connections: int, policies: int) -> list[tuple[int, int, float]]:
    """`(events so far, resident bytes, events a second)` after each step."""
    folder = Path(tempfile.mkdtemp(prefix="governance-soak-"))
    bodies = load.write_bodies(folder, policies)
    server = served.service(folder / "data", served.write_policies(folder, policies))
    found: list[tuple[int, int, float]] = []
    try:
        events = 0
        for number in range(max(4, seconds // step)):
            measured = load.run(
                folder,
                server.port,
                served.KEY,
                bodies,
                connections=connections,
                seconds=step,
                seed=os.getpid() + number,
            )
            if measured.refused or measured.broken:
                raise RuntimeError(f"{measured.refused} events were refused, {measured.broken} broke")
            events += measured.requests
            found.append((events, server.memory(), measured.rate))
            print(
                f"{events:>10,} events  {found[-1][1] / 2**20:6.0f} MiB  {measured.rate:7,.0f}/s", flush=True
            )
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return found


def grown(found: Sequence[tuple[int, int, float]]) -> float:
    """The memory of the last quarter by that after the first one."""
    quarter = max(1, len(found) // 4)
    sizes = [size for _, size, _ in found]
    return statistics.median(sizes[-quarter:]) / statistics.median(sizes[quarter : 2 * quarter])


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="soak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--step", type=int, default=10)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--policies", type=int, default=1_000)
    arguments = parser.parse_args(given)
    found = soak(arguments.seconds, arguments.step, arguments.connections, arguments.policies)
    factor = grown(found)
    print(f"memory at the end is {factor:.2f} of that after the first quarter")
    return 0 if factor <= ALLOWED else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
