"""The service beside other servers that can be installed: `make bench-rivals` (`ARGS="--quick"` for a look).

Each server has core 0 for itself, the load (64 connections) has core 1; every figure is the median of pairs -
bare ASGI yardstick, server, yardstick, server. Before it is measured, each must answer calls as the policies
say. Rivals are installed below a temporary folder that goes away with the run.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx

from tests.bench import load, served
from tests.bench.contender import Contender, Unavailable
from tests.bench.contenders import CONTENDERS
from tests.bench.http import machine
from tests.bench.load import Measured
from tests.bench.rules import Call, Rule, calls, held, rules
from tests.bench.served import Server

RESULTS = Path(__file__).parent / "RESULTS-rivals.md"
README = served.ROOT / "README.md"
CONNECTIONS = 64
QUESTIONS = 100
BUSY = 3.0
FIGURES = (
    "server",
    "keeps",
    "policies",
    "requests/s",
    "of yardstick",
    "p50 ms",
    "p99 ms",
    "failed",
    "yardstick/s",
)
SERVERS = ("server", "version", "how it is started", "a request", "what it keeps of one")
ABSENT = {
    "AgentGate (AgentKit)": (
        "its server, `@agentgate/server`, is a private part of its repository's workspace, built on a file"
        " there; npm does not have it. It is another program than the `agentgate` above"
    ),
    "agent2allow": (
        "neither PyPI nor npm has it; its documentation starts it with Docker Compose in a clone of its"
        " repository"
    ),
    "Open Policy Agent": (
        "its documentation offers binaries, container images and Homebrew, and names no package of its"
        " server in PyPI, npm or Debian"
    ),
}
"""Rivals that no registry has, and why."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Yardstick and server, one after the other."""

    bare: Measured
    server: Measured


class Bench:
    """One run: a folder, the yardstick, and what the arguments say."""

    def __init__(self, folder: Path, installed: Path, arguments: argparse.Namespace) -> None:
        self.folder = folder
        self.installed = installed
        self.seconds: int = arguments.seconds
        self.pairs: int = arguments.pairs
        self.seed = int(time.time())
        self.yardstick = served.yardstick()

    def measure(self, contender: Contender, count: int) -> list[Pair]:
        """Start it with so many rules, see that it answers right, and load it."""
        place = Path(tempfile.mkdtemp(dir=self.folder))
        given = rules(count)
        asked = calls(given)
        server = None
        try:
            server = contender.start(place, given)
            check(contender, server, given, asked)
            warm = self.run(contender, server, asked, 2)
            seconds = max(self.seconds, enough(warm))
            return [
                Pair(
                    self.run(contender, self.yardstick, asked, max(1, self.seconds // 2)),
                    self.run(contender, server, asked, seconds),
                )
                for _ in range(self.pairs)
            ]
        finally:
            if server is not None:
                contender.stop(server)
            shutil.rmtree(place, ignore_errors=True)

    def run(self, contender: Contender, server: Server, asked: Sequence[Call], seconds: int) -> Measured:
        self.seed += 1
        found = contender.load(
            server, self.folder, asked, connections=CONNECTIONS, seconds=seconds, seed=self.seed
        )
        settle(server)
        if found.refused > found.requests / 2:
            raise Unavailable(f"with {CONNECTIONS} connections most of its answers were errors")
        return found


def check(contender: Contender, server: Server, given: Sequence[Rule], asked: Sequence[Call]) -> None:
    """See that the server holds what it should and nothing else. One without rules holds all."""
    url = f"http://127.0.0.1:{server.port}{contender.path}"
    with httpx.Client(trust_env=False, timeout=30, headers=dict(contender.headers)) as http:
        for number, call in enumerate(asked[:QUESTIONS]):
            answer = http.post(url, json=contender.body(call, number))
            if answer.is_error:
                raise Unavailable(f"refuses a request: {answer.status_code} {answer.text[:150]}")
            expected = contender.always or held(given, call)
            if contender.held(answer.json()) != expected:
                raise Unavailable(f"answers otherwise than the rules say: {answer.text[:150]}")


def enough(warm: Measured) -> int:
    """Seconds in which every connection gets some four answers: a slow server's latencies need them."""
    return min(30, math.ceil(4 * CONNECTIONS / max(warm.rate, 1)))


def settle(server: Server, seconds: float = 30) -> None:
    """Wait until the server has done what it still had to do, so that the next one has the core."""
    before = -1.0
    deadline = time.monotonic() + seconds
    while (now := server.cpu()) - before > 0.02 and time.monotonic() < deadline:
        before = now
        time.sleep(0.3)


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured of one server with so many policies; medians, times in milliseconds."""

    server: Contender
    policies: int
    rate: float
    ratio: float
    p50: float
    p99: float
    bare: float
    failed: int

    @classmethod
    def of(cls, server: Contender, policies: int, pairs: Sequence[Pair]) -> Row:
        middle = statistics.median
        return cls(
            server,
            policies,
            middle(good(pair.server) for pair in pairs),
            middle(good(pair.server) / pair.bare.rate for pair in pairs),
            middle(pair.server.p50 / 1000 for pair in pairs),
            middle(pair.server.p99 / 1000 for pair in pairs),
            middle(pair.bare.rate for pair in pairs),
            sum(max(pair.server.refused, pair.server.broken) for pair in pairs),
        )

    @property
    def cells(self) -> list[str]:
        return [
            *(self.server.name, self.server.durable, "none" if self.server.always else f"{self.policies:,}"),
            *(f"{self.rate:,.0f}", f"{self.ratio:.3f}", f"{self.p50:,.1f}", f"{self.p99:,.1f}"),
            *(f"{self.failed:,}", f"{self.bare:,.0f}"),
        ]


def good(found: Measured) -> float:
    """Answers a second that were not errors."""
    return (found.requests - found.refused) * 1e6 / found.micros


def summary(rows: Sequence[Row], counts: Sequence[int]) -> str:
    """The table of the README: a line for each server, latencies at the middle number of policies."""
    middle = counts[len(counts) // 2]
    headings = ["server", "keeps", *(f"{count:,} policies" for count in counts), "p50 ms", "p99 ms"]
    lines = []
    for server in dict.fromkeys(row.server for row in rows):
        found = {row.policies: row for row in rows if row.server is server}
        shown = found.get(counts[0] if server.always else middle)
        rates = [
            f"{found[count].ratio:.3f} ({found[count].rate:,.0f})" if count in found else ""
            for count in counts
        ]
        times = [f"{shown.p50:,.1f}", f"{shown.p99:,.1f}"] if shown else ["", ""]
        name = f"{server.name} ({server.version})" if server.packages else server.name
        lines.append([name, server.durable, *rates, *times])
    return table(headings, lines, 2)


def into(readme: str, new: str) -> str:
    """The README with the new table in the place of the old one."""
    lines, fresh = readme.split("\n"), new.split("\n")
    begin = next((index for index, line in enumerate(lines) if line.startswith("| server | keeps |")), -1)
    if begin < 0:
        return readme
    end = begin
    while lines[end].startswith("|"):
        end += 1
    return "\n".join([*lines[:begin], *fresh, *lines[end:]])


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], numbers: int) -> str:
    """A table whose columns from the one numbered `numbers` on are set to the right."""
    rule = [" --- " if index < numbers else " ---: " for index in range(len(headings))]
    lines = ["| " + " | ".join(headings) + " |", "|" + "|".join(rule) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(cells) + " |" for cells in rows)])


def arguments_of(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-rivals", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short pair each, 100 policies")
    parser.add_argument("--seconds", type=int, default=5, help="of load for each server in a pair")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--policies", nargs="+", type=int, default=[0, 100, 1_000])
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="servers with such a name")
    parser.add_argument("--installed", metavar="FOLDER", help="install there and leave it for the next run")
    parser.add_argument(
        "--write", action="store_true", help=f"keep the results in {RESULTS.name}, and in the README"
    )
    arguments = parser.parse_args(given)
    if arguments.quick:
        arguments.seconds, arguments.pairs, arguments.policies = 2, 1, [100]
    return arguments


def main(given: Sequence[str]) -> int:
    arguments = arguments_of(given)
    try:
        load.program()
    except load.Missing as error:
        print(error, file=sys.stderr)
        return 2
    if hasattr(os, "sched_setaffinity") and (os.cpu_count() or 1) > 1:
        # This program, what it installs with, and PostgreSQL keep off the server's core.
        os.sched_setaffinity(0, set(os.sched_getaffinity(0)) - {0})
    folder = Path(tempfile.mkdtemp(prefix="governance-rivals-"))
    installed = Path(arguments.installed).resolve() if arguments.installed else folder / "installed"
    chosen = [each(installed) for each in CONTENDERS if wanted(each.name, arguments.only)]
    rows: list[Row] = []
    missing: dict[str, str] = {}
    for contender in chosen:
        print(f"installing {contender.name}: {contender.version}", flush=True)
        try:
            contender.install()
        except Unavailable as error:
            missing[contender.name] = str(error)
    bench = Bench(folder, installed, arguments)
    try:
        print("\n" + table(FIGURES, [], 2), flush=True)
        for contender in chosen:
            for count in arguments.policies[:1] if contender.always else arguments.policies:
                if contender.name in missing:
                    break
                try:
                    rows.append(Row.of(contender, count, bench.measure(contender, count)))
                    print("| " + " | ".join(rows[-1].cells) + " |", flush=True)
                except (Unavailable, httpx.HTTPError, subprocess.SubprocessError) as error:
                    missing[f"{contender.name}, {count:,} policies"] = str(error)
    finally:
        bench.yardstick.stop()
        shutil.rmtree(folder, ignore_errors=True)
    text = report(given, chosen, rows, missing)
    print("\n" + "\n".join(f"{name}: {reason}" for name, reason in missing.items()))
    if arguments.write:
        RESULTS.write_text(text, encoding="utf-8")
        short = summary(rows, arguments.policies)
        README.write_text(into(README.read_text(encoding="utf-8"), short), encoding="utf-8")
        print(f"written: {RESULTS.name}, and the table in {README.name}")
    return 0


def wanted(name: str, only: Sequence[str]) -> bool:
    return not only or any(word.lower() in name.lower() for word in only)


def report(
    given: Sequence[str],
    chosen: Sequence[Contender],
    rows: Sequence[Row],
    missing: dict[str, str],
) -> str:
    """The file of results."""
    shown = [each for each in given if each != "--installed" and not each.startswith(("/", "."))]
    command = "make bench-rivals" + (f' ARGS="{" ".join(shown)}"' if shown else "")
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    servers = [
        [
            each.name,
            each.version,
            each.started,
            each.request,
            each.records,
        ]
        for each in chosen
        if any(row.server is each for row in rows)
    ]
    reasons = "".join(f"- **{name}**: {reason}.\n" for name, reason in (missing | ABSENT).items())
    caution = ""
    if os.getloadavg()[0] > BUSY:
        caution = " The machine was busy with other work: differences below a factor of two mean nothing."
    return f"""# The service beside other servers

Measured {today} by `{command}` on {machine()}.

One run. Each server alone on core 0, `wrk` with {CONNECTIONS} connections on core 1; medians of alternating
pairs of the bare ASGI yardstick and the server, the same bytes sent to both. All have the same policies - a
tool's name and a bound on an amount in its payload - written in their own language, and get the same calls,
with a payload of some 600 bytes, of which about 30 % are held. Each had to answer {QUESTIONS} of the calls as
the policies say before it was measured. `keeps`: what is recorded of a request is on disk before the answer
leaves (durable), or nothing is recorded. `failed`: answers that were errors or took over 20 s; errors do not
count as requests.{caution}

{table(FIGURES, [row.cells for row in rows], 2)}

## How each was measured

{table(SERVERS, servers, len(SERVERS))}

Versions are pinned, what they depend on is as the registries had it on that day.

## Not measured

{reasons}"""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
