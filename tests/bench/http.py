"""The service under load against the bare ASGI yardstick: `make bench-http` (`ARGS="--quick"` for a minute).

Every figure of a row comes from alternating pairs - yardstick, service, yardstick, service - and is the
median; the ratio is taken pair by pair, so a machine that is busy with other things moves it little. On a
machine with two cores and `taskset` the server has core 0 for itself, the load and PostgreSQL have core 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx

from tests.bench import load, served
from tests.bench.load import Measured
from tests.bench.served import KEY, Server

RESULTS = Path(__file__).parent / "RESULTS-http.md"
HEADINGS = (
    *("database", "workers", "policies", "connections", "events/s", "of yardstick", "CPU of yardstick"),
    *("p50 ms", "p99 ms", "p99/p50", "CPU µs/event", "yardstick/s"),
)
BATCH = 100
WAITING = 1_000
WOKEN = 30


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table."""

    database: str
    workers: int
    policies: int
    connections: int


@dataclass(frozen=True, slots=True)
class Pair:
    """Yardstick and service, one after the other; CPU in seconds."""

    bare: Measured
    bare_cpu: float
    ours: Measured
    ours_cpu: float

    @property
    def ratio(self) -> float:
        return self.ours.rate / self.bare.rate

    @property
    def cpu_ratio(self) -> float:
        """How many bare requests cost the processor as much as one event, turned round."""
        return (self.bare_cpu / self.bare.requests) / (self.ours_cpu / self.ours.requests)


class Bench:
    """One run: a folder, the yardstick, and what the arguments say."""

    def __init__(self, folder: Path, arguments: argparse.Namespace) -> None:
        self.folder = folder
        self.seconds: int = arguments.seconds
        self.pairs: int = arguments.pairs
        self.seed = int(time.time())
        self.yardstick = served.yardstick()

    @contextmanager
    def service(self, database: str, workers: int, policies: int) -> Iterator[tuple[Server, Path]]:
        """A fresh service and the bodies to load it with."""
        place = Path(tempfile.mkdtemp(dir=self.folder))
        postgres = None
        url = ""
        if database == "postgresql":
            from tests.harness.postgres import Postgres

            # A server that has run for a while uses its old log files again; a new one would fill each with
            # zeros first, for some 50 ms, three times a second.
            postgres = Postgres(wal_init_zero="off")
            postgres.start()
            url = postgres.create()
        cores = "0" if workers == 1 else "0,1"
        server = served.service(
            place, served.write_policies(self.folder, policies), database=url, workers=workers, cores=cores
        )
        try:
            yield server, load.write_bodies(self.folder, policies)
        finally:
            server.stop()
            if postgres is not None:
                postgres.close()
            shutil.rmtree(place, ignore_errors=True)

    def run(
        self,
        server: Server,
        bodies: Path,
        connections: int,
        seconds: int,
        batch: int = 1,
        pause: int = 0,
    ) -> Measured:
        self.seed += 1
        return load.run(
            self.folder,
            server.port,
            KEY,
            bodies,
            connections=connections,
            seconds=seconds,
            seed=self.seed,
            batch=batch,
            pause=pause,
        )

    def measure(self, server: Server, bodies: Path, connections: int, pause: int = 0) -> list[Pair]:
        """`pause`: see `load.run`."""
        self.run(server, bodies, connections, 1)
        pairs = []
        for _ in range(self.pairs):
            cpu = self.yardstick.cpu()
            bare = self.run(self.yardstick, bodies, connections, max(1, self.seconds // 2), pause=pause)
            bare_cpu = self.yardstick.cpu() - cpu
            cpu = server.cpu()
            ours = self.run(server, bodies, connections, self.seconds, pause=pause)
            pairs.append(Pair(bare, bare_cpu, ours, server.cpu() - cpu))
            if ours.refused or ours.broken:
                raise RuntimeError(f"{ours.refused} events were refused and {ours.broken} connections broke")
        return pairs


def row(setting: Setting, pairs: Sequence[Pair]) -> list[str]:
    def middle(values: Iterator[float]) -> float:
        return statistics.median(values)

    p50 = middle(pair.ours.p50 / 1000 for pair in pairs)
    p99 = middle(pair.ours.p99 / 1000 for pair in pairs)
    cpu = middle(pair.ours_cpu / pair.ours.requests * 1e6 for pair in pairs)
    return [
        *(setting.database, str(setting.workers), f"{setting.policies:,}", str(setting.connections)),
        f"{middle(pair.ours.rate for pair in pairs):,.0f}",
        f"{middle(pair.ratio for pair in pairs):.3f}",
        f"{middle(pair.cpu_ratio for pair in pairs):.3f}",
        f"{p50:.1f}",
        f"{p99:.1f}",
        f"{p99 / p50:.1f}",
        f"{cpu:.0f}",
        f"{middle(pair.bare.rate for pair in pairs):,.0f}",
    ]


def batches(bench: Bench) -> str:
    """Events a second through POST /v1/events/batch."""
    with bench.service("sqlite", 1, 1_000) as (server, bodies):
        bench.run(server, bodies, 4, 1, BATCH)
        found = bench.run(server, bodies, 4, bench.seconds, BATCH)
    rate = found.rate * BATCH
    return f"`POST /v1/events/batch`, {BATCH} events a request, 4 connections: {rate:,.0f} events/s."


def growth(bench: Bench, events: int) -> str:
    """The rate at the beginning and after so many events, as ratios to the yardstick at that time."""
    with bench.service("sqlite", 1, 1_000) as (server, bodies):
        first = statistics.median(pair.ratio for pair in bench.measure(server, bodies, 64))
        sent = 0
        while sent < events:
            sent += bench.run(server, bodies, 64, 10).requests
        last = statistics.median(pair.ratio for pair in bench.measure(server, bodies, 64))
    return (
        f"After {sent:,} events (64 connections, SQLite, 1,000 policies): {last:.3f} of the yardstick;"
        f" at the beginning {first:.3f}; that is {last / first:.2f} of the first rate."
    )


def waiting(bench: Bench) -> str:
    """What many agents that wait cost, and how soon one is woken."""
    with bench.service("sqlite", 1, 0) as (server, _):
        return asyncio.run(_waiting(server))


async def _waiting(server: Server) -> str:
    base = f"http://127.0.0.1:{server.port}"
    limits = httpx.Limits(max_connections=WAITING + 10, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=base, timeout=120, trust_env=False, limits=limits) as http:
        body = {"email": "admin@localhost", "password": "of the benchmark only"}
        token = (await http.post("/auth/login", json=body)).json()["accessToken"]
        admin, agent = {"Authorization": f"Bearer {token}"}, {"X-API-Key": KEY}
        policy = {
            "name": "Hold all",
            "action": "require_approval",
            "enabled": True,
            "matchConditions": [{"field": "toolName", "operator": "equals", "value": "pay"}],
        }
        (await http.post("/v1/policies", json=policy, headers=admin)).raise_for_status()

        async def hold(number: int) -> str:
            event = {
                "eventId": f"e{number}",
                "runId": "r",
                "agentId": "a",
                "timestamp": "2026-01-31T09:30:00Z",
                "eventType": "tool.called",
                "metadata": {"toolCallId": f"c{number}", "toolName": "pay", "inputPayload": {}},
            }
            answer = await http.post("/v1/events", json=event, headers=agent)
            return str(answer.json()["approvalId"])

        ids = [await hold(number) for number in range(WAITING)]
        before = server.memory()

        async def wait(approval_id: str) -> float:
            await http.get(f"/v1/approvals/{approval_id}?wait=100", headers=agent)
            return time.perf_counter()

        waits = [asyncio.create_task(wait(approval_id)) for approval_id in ids]
        await asyncio.sleep(5)
        memory, cpu = server.memory() - before, server.cpu()
        await asyncio.sleep(5)
        cpu = server.cpu() - cpu
        late = []
        for number in range(WOKEN):
            await http.post(f"/v1/approvals/{ids[number]}/approve", headers=admin)
            done = time.perf_counter()
            late.append(max(0.0, await waits[number] - done) * 1000)
            await asyncio.sleep(0.02)
        for task in waits:
            task.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    return (
        f"{WAITING:,} agents wait for approvals: {memory / WAITING / 1024:.0f} KiB each,"
        f" {cpu / 5 * 100:.1f} % of a core; one is woken {statistics.median(late):.1f} ms (median) and"
        f" {max(late):.1f} ms (most) after the reviewer has the answer."
    )


def table(rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + "|".join(" ---: " for _ in HEADINGS) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(cells) + " |" for cells in rows)])


def machine() -> str:
    model = platform.processor()
    with open("/proc/cpuinfo", encoding="utf-8") as info:  # noqa: PTH123
        for line in info:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    busy = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    python = platform.python_version()
    return f"{os.cpu_count()} x {model}, Python {python}, load averages at the end {busy}"


def arguments_of(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-http", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two rows a database, short")
    parser.add_argument("--seconds", type=int, default=4, help="of load for each half of a pair")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--databases", nargs="+", default=["sqlite", "postgresql"])
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--policies", nargs="+", type=int, default=[0, 1_000, 10_000])
    parser.add_argument("--connections", nargs="+", type=int, default=[1, 16, 64, 256])
    parser.add_argument("--growth", type=int, default=0, metavar="EVENTS", help="also after so many events")
    parser.add_argument("--rows-only", action="store_true", help="leave out batches and waiting agents")
    parser.add_argument("--write", action="store_true", help=f"keep the results in {RESULTS.name}")
    arguments = parser.parse_args(given)
    if arguments.quick:
        arguments.seconds, arguments.pairs = 2, 2
        arguments.workers, arguments.policies, arguments.connections = [1], [1_000], [64, 256]
    return arguments


def main(given: Sequence[str]) -> int:
    arguments = arguments_of(given)
    try:
        load.program()
    except load.Missing as error:
        print(error, file=sys.stderr)
        return 2
    if hasattr(os, "sched_setaffinity") and (os.cpu_count() or 1) > 1:
        # PostgreSQL and this program keep off the server's core.
        os.sched_setaffinity(0, set(os.sched_getaffinity(0)) - {0})
    folder = Path(tempfile.mkdtemp(prefix="governance-bench-"))
    rows: list[list[str]] = []
    notes: list[str] = []
    bench = Bench(folder, arguments)
    try:
        print(table([]), flush=True)
        for database in arguments.databases:
            for workers in arguments.workers:
                for policies in arguments.policies:
                    with bench.service(database, workers, policies) as (server, bodies):
                        for connections in arguments.connections:
                            setting = Setting(database, workers, policies, connections)
                            rows.append(row(setting, bench.measure(server, bodies, connections)))
                            print("| " + " | ".join(rows[-1]) + " |", flush=True)
        if not arguments.rows_only:
            notes += [batches(bench), waiting(bench)]
        if arguments.growth:
            notes.append(growth(bench, arguments.growth))
        print("\n" + "\n".join(notes))
    finally:
        bench.yardstick.stop()
        shutil.rmtree(folder, ignore_errors=True)
    if arguments.write:
        written(given, rows, notes)
    return 0


def written(given: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]) -> None:
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    command = f'make bench-http ARGS="{" ".join(given)}"'
    about = (
        f"Measured {today} by `{command}` on {machine()}.\n\n"
        "`of yardstick` compares requests a second with a bare ASGI app in the same pair, `CPU of yardstick`"
        " processor time a request; the second is the steadier one where other work shares the machine."
        " Everything is on: durable commits (`synchronous=FULL`), decisions, audit chain, approvals, webhook"
        " outbox; random event ids, 64 active runs, about 30 % of the calls match a policy.\n"
    )
    text = f"# The service under load\n\n{about}\n{table(rows)}\n"
    text += "".join(f"\n- {note}" for note in notes) + ("\n" if notes else "")
    RESULTS.write_text(text, encoding="utf-8")
    print(json.dumps({"written": str(RESULTS)}))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
