"""Do nodes add up? Several nodes on one PostgreSQL some milliseconds away: `make bench-scale`.

Each node has its own load (wrk) and its own network to the database, which delays every byte and limits
nothing. All processes share all cores; with two of them what a round trip costs shows, and at a round trip of
nothing only how the cores are shared. So the first table is made with waiting, not with the processor: its
ratios are of one run, to one node at the same round trip.

The last rows are one node on a core of its own and a database without a network, in pairs with a bare ASGI
app, as `bench-http` has them; and the same with agents that pause between two calls.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import psycopg

from tests.bench import http, load, served
from tests.bench.load import Measured
from tests.bench.served import KEY, Server
from tests.harness.database_proxy import DatabaseProxy
from tests.harness.postgres import Postgres

RESULTS = Path(__file__).parent / "RESULTS-scale.md"
PAUSE = 5
"""Milliseconds that agents pause for at most, in the rows where they do."""
WARM_SECONDS = 1


@dataclass(frozen=True, slots=True)
class Cell:
    """So many nodes at one round trip. Rates in events a second, costs in microseconds of processor time an
    event, latencies in milliseconds."""

    round_trip: float
    nodes: int
    rate: float
    p50: float
    p99: float
    nodes_cost: float
    postgres_cost: float
    network_cost: float
    pausing_rate: float
    pausing_p50: float


@dataclass(frozen=True, slots=True)
class Alone:
    """One node on a core of its own, and the bare app there."""

    connections: int
    rate: float
    ratio: float
    pausing_rate: float
    pausing_ratio: float


class Bench:
    """All nodes, started once; a cell loads the first few of them."""

    def __init__(
        self,
        folder: Path,
        server: Postgres,
        arguments: argparse.Namespace,
        stack: contextlib.ExitStack,
    ) -> None:
        """`stack` ends what is started here."""
        self._folder = folder
        self._arguments = arguments
        self._server = server
        self.database = server.create()
        self._seed = int(time.time())
        policies = served.write_policies(folder, arguments.policies)
        self._bodies = load.write_bodies(folder, arguments.policies)
        self.networks: list[DatabaseProxy] = []
        self.nodes: list[Server] = []
        for number in range(max(arguments.nodes)):
            network = stack.enter_context(DatabaseProxy(server.socket))
            own = folder / f"node-{number}"
            shutil.copytree(policies, own / "policies.d")
            node = served.service(
                own,
                own / "policies.d",
                database=network.url(self.database),
                cores=all_cores(),
                secrets=folder,
            )
            stack.callback(node.stop)
            self.networks.append(network)
            self.nodes.append(node)

    def events(self) -> int:
        """In the database."""
        with psycopg.connect(self.database) as connection:
            found = connection.execute("SELECT count(*) FROM events").fetchone()
        return int(found[0]) if found else 0

    def cell(self, round_trip: float, nodes: int) -> Cell:
        for network in self.networks:
            network.round_trip(round_trip / 1000)
        seconds = self._arguments.seconds
        self._run(nodes, WARM_SECONDS, 0)
        costs = self._costs(nodes)
        found = self._run(nodes, seconds, 0)
        events = sum(each.requests for each in found)
        node, postgres, network_ = (
            (after - before) / events * 1e6 for before, after in zip(costs, self._costs(nodes), strict=True)
        )
        pausing = self._run(nodes, seconds, PAUSE)
        return Cell(
            round_trip,
            nodes,
            sum(each.rate for each in found),
            statistics.median(each.p50 for each in found) / 1000,
            max(each.p99 for each in found) / 1000,
            node,
            postgres,
            network_,
            sum(each.rate for each in pausing),
            statistics.median(each.p50 for each in pausing) / 1000,
        )

    def _costs(self, nodes: int) -> tuple[float, float, float]:
        return (
            sum(node.cpu() for node in self.nodes[:nodes]),
            self._server.cpu(),
            sum(network.cpu() for network in self.networks[:nodes]),
        )

    def _run(self, nodes: int, seconds: int, pause: int) -> list[Measured]:
        """Load on so many nodes at once, by a program for each."""

        def one(node: Server) -> Measured:
            return load.run(
                self._folder,
                node.port,
                KEY,
                self._bodies,
                connections=self._arguments.connections,
                seconds=seconds,
                seed=self._seed + node.port,
                pause=pause,
                cores=all_cores(),
            )

        self._seed += 1 << 16
        with ThreadPoolExecutor(nodes) as pool:
            found = list(pool.map(one, self.nodes[:nodes]))
        for each in found:
            if each.refused or each.broken:
                raise RuntimeError(f"{each.refused} events were refused, {each.broken} connections broke")
        return found


def all_cores() -> str:
    return ",".join(str(core) for core in range(os.cpu_count() or 1))


@contextlib.contextmanager
def off_the_servers_core() -> Iterator[None]:
    """PostgreSQL and this program keep off the core of the server."""
    if not hasattr(os, "sched_setaffinity") or (os.cpu_count() or 1) == 1:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, before - {int(served.SERVER_CORE)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def alone(folder: Path, arguments: argparse.Namespace, connections: int) -> Alone:
    """Pairs of the bare app and one node, as in `bench-http`, with and without pauses."""
    bench = http.Bench(folder, arguments)
    with (
        off_the_servers_core(),
        contextlib.closing(_Stopped(bench.yardstick)),
        bench.service("postgresql", 1, arguments.policies) as (server, bodies),
    ):
        pairs = bench.measure(server, bodies, connections)
        pausing = bench.measure(server, bodies, connections, PAUSE)
    return Alone(
        connections,
        statistics.median(pair.ours.rate for pair in pairs),
        statistics.median(pair.ratio for pair in pairs),
        statistics.median(pair.ours.rate for pair in pausing),
        statistics.median(pair.ratio for pair in pausing),
    )


@dataclass(frozen=True, slots=True)
class _Stopped:
    server: Server

    def close(self) -> None:
        self.server.stop()


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(headings) + " |", "|" + " ---: |" * len(headings)]
    return "\n".join([*lines, *("| " + " | ".join(cells) + " |" for cells in rows)])


def summary(cells: Sequence[Cell]) -> str:
    """A line for each round trip: events a second of the fewest nodes, and the others as a ratio to them."""
    counts = sorted({cell.nodes for cell in cells})
    first, *more = counts
    rows = []
    for round_trip in dict.fromkeys(cell.round_trip for cell in cells):
        of = {cell.nodes: cell for cell in cells if cell.round_trip == round_trip}
        row = [f"{round_trip:g} ms", f"{of[first].rate:,.0f}"]
        row += [f"{of[count].rate / of[first].rate:.2f} of it" for count in more]
        rows.append([*row, *(f"{of[count].pausing_rate / of[count].rate:.2f}" for count in counts)])
    names = [f"{count} node{'s' * (count > 1)}" for count in counts]
    headings = ["round trip", f"{names[0]}, events/s", *names[1:], *(f"{name}, pausing" for name in names)]
    return table(headings, rows)


def details(cells: Sequence[Cell]) -> str:
    headings = [
        *("round trip", "nodes", "events/s", "p50 ms", "p99 ms", "pausing events/s", "pausing p50 ms"),
        *("nodes µs/event", "PostgreSQL µs/event", "network µs/event"),
    ]
    rows = [
        [
            *(f"{cell.round_trip:g} ms", str(cell.nodes), f"{cell.rate:,.0f}"),
            *(f"{cell.p50:.1f}", f"{cell.p99:.1f}", f"{cell.pausing_rate:,.0f}", f"{cell.pausing_p50:.1f}"),
            *(f"{cell.nodes_cost:.0f}", f"{cell.postgres_cost:.0f}", f"{cell.network_cost:.0f}"),
        ]
        for cell in cells
    ]
    return table(headings, rows)


def of_one(found: Sequence[Alone]) -> str:
    headings = ["connections", "events/s", "of bare app", "pausing events/s", "of bare app", "pausing / not"]
    return table(
        headings,
        [
            [
                *(str(each.connections), f"{each.rate:,.0f}", f"{each.ratio:.3f}"),
                *(f"{each.pausing_rate:,.0f}", f"{each.pausing_ratio:.3f}"),
                f"{each.pausing_rate / each.rate:.2f}",
            ]
            for each in found
        ],
    )


def report(arguments: argparse.Namespace, cells: Sequence[Cell], single: Sequence[Alone]) -> str:
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    return (
        f"# Nodes that add up\n\nMeasured {today} by `make bench-scale` on {http.machine()}.\n\n"
        f"PostgreSQL, {arguments.policies:,} policies, {arguments.connections} connections a node, each node"
        " with a load of its own and a network to the database that adds a round trip. Nodes, loads,"
        f" networks and database share {os.cpu_count()} cores. `pausing`: each agent waits 0 to {PAUSE} ms"
        " between two calls; in this table as a ratio to the rate without pauses.\n\n"
        f"{summary(cells)}\n\n"
        "The same in full; costs are processor time an event.\n\n"
        f"{details(cells)}\n"
        + (
            "\nOne node on a core of its own, the database beside the load on another, no network; in"
            f" pairs with the bare ASGI app.\n\n{of_one(single)}\n"
            if single
            else ""
        )
    )


def arguments_of(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-scale", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--short", action="store_true", help="two nodes, two round trips, a second each")
    parser.add_argument("--nodes", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--round-trips", nargs="+", type=float, default=[10, 5, 1, 0], metavar="MS")
    parser.add_argument("--connections", type=int, default=32, help="of each node")
    parser.add_argument("--alone", nargs="*", type=int, default=[64], help="connections of a node alone")
    parser.add_argument("--policies", type=int, default=1_000)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--write", action="store_true", help=f"keep the results in {RESULTS.name}")
    arguments = parser.parse_args(given)
    if arguments.short:
        arguments.nodes, arguments.round_trips, arguments.seconds, arguments.pairs = [1, 2], [5, 0], 1, 1
        arguments.policies, arguments.connections, arguments.alone = 20, 8, []
    return arguments


def measure(arguments: argparse.Namespace) -> tuple[list[Cell], list[Alone], int]:
    """The cells, the rows of one node alone, and how many events the nodes have recorded."""
    folder = Path(tempfile.mkdtemp(prefix="governance-scale-"))
    cells: list[Cell] = []
    events = 0
    try:
        single = [alone(folder, arguments, connections) for connections in arguments.alone]
        server = Postgres(wal_init_zero="off", shared_buffers="256MB", max_wal_size="4GB")
        with contextlib.closing(server), contextlib.ExitStack() as stack:
            server.start()
            bench = Bench(folder, server, arguments, stack)
            for round_trip in arguments.round_trips:
                for nodes in arguments.nodes:
                    cells.append(bench.cell(round_trip, nodes))
                    print(asdict(cells[-1]), file=sys.stderr, flush=True)
            events = bench.events()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return cells, single, events


def main(given: Sequence[str]) -> int:
    arguments = arguments_of(given)
    try:
        load.program()
    except load.Missing as error:
        print(error, file=sys.stderr)
        return 2
    cells, single, _ = measure(arguments)
    text = report(arguments, cells, single)
    print(text)
    if arguments.write:
        RESULTS.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
