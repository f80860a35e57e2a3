"""What history costs on PostgreSQL: `make bench-growth` (`ARGS="--events 200000 --copies 49"`: ten million).

One node takes events with random ids until there are so many; at each step it is said what an event costs in
the write-ahead log, what tables and indexes have grown to, and how fast events come in. With `--copies` the
database then copies all of it so many times, with numbers and random ids of their own (such records verify
as nothing, which nobody asks here), and the node takes one step more beside it. Then the node is started
again a year later, told to keep events for a day, and it is measured what that costs: once as partitions
that are dropped, or (`--rows`) as rows that are deleted, as where partitions are too long.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psycopg

from api.database.connection import Database
from tests.bench import http, load, served
from tests.bench.scale import all_cores, table
from tests.bench.served import KEY, Server
from tests.harness.partitions import divide_since
from tests.harness.places import ROOT
from tests.harness.postgres import Postgres

RESULTS = Path(__file__).parent / "RESULTS-growth.md"
BATCH = 100
CONNECTIONS = 16
A_YEAR_LATER = (
    "import time; now = time.time; time.time = lambda: now() + 366 * 86_400; "
    "import sys; from api.retention import cleaning, days_kept; "
    "cleaning.leaps_of = lambda store, now, leaps: leaps; "
    "days_kept.KEPT = 'as of first.'; "
    "from api.health.clocks import ClockCheck; ClockCheck.look = lambda self: None; "
    "from api.cli import main; sys.exit(main())"
)

_NUL = "|| '\\x00'::bytea ||"
_KEY = (
    f"encode(substring(sha256(convert_to('event', 'UTF8') {_NUL} convert_to(organisation_id, 'UTF8') {_NUL}"
    " convert_to(event_id, 'UTF8')) FROM 1 FOR 16), 'hex')::uuid"
)
"""What `api.database.lanes.keys.event_key` computes."""
COPIES = {
    "events": {"event_no": "event_no + {far}", "event_id": "'evt-' || md5(event_id || {far})"},
    "tool_calls": {
        "call_no": "call_no + {far}",
        "event_no": "event_no + {far}",
        "tool_call_id": "'call-' || md5(tool_call_id || {far})",
        "audit_id": "'aud_' || md5(audit_id || {far})",
    },
    "audit": {"sequence": "sequence + {far}", "audit_id": "'aud_' || md5(audit_id || {far})"},
}
"""What differs in a copy, whose numbers are so much further on."""
FURTHER = 1 << 32


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes."""

    table: int
    indexes: int


@dataclass(frozen=True, slots=True)
class Step:
    """After so many events: bytes of WAL an event since the step before, events a second meanwhile, and the
    sizes of the tables by name, those of partitions added up."""

    events: int
    wal: float
    rate: float
    sizes: dict[str, Size]


@dataclass(frozen=True, slots=True)
class Retention:
    """Until all events were gone: seconds, of the server's processor too, bytes of WAL, and what is left."""

    events: int
    seconds: float
    cpu: float
    wal: int
    sizes: dict[str, Size]


class Bench:
    def __init__(self, folder: Path, server: Postgres, arguments: argparse.Namespace) -> None:
        self.database = server.create()
        self._server = server
        self._folder = folder
        self._policies = served.write_policies(folder, arguments.policies)
        self._bodies = load.write_bodies(folder, arguments.policies)
        self._seed = int(time.time())

    def node(self) -> Server:
        return served.service(
            self._folder, self._policies, database=self.database, cores=all_cores(), secrets=self._folder
        )

    def node_a_year_later(self) -> Server:
        """It keeps events for a day."""
        port = served.free_port()
        environment = {
            "GOVERNANCE_DATA_DIR": str(self._folder),
            "GOVERNANCE_POLICIES_DIR": str(self._policies),
            "GOVERNANCE_DATABASE_URL": self.database,
            "GOVERNANCE_EVENT_DAYS": "1",
            "GOVERNANCE_JWT_SECRET": "the secret of a benchmark that signs nothing of worth",
            "GOVERNANCE_AUDIT_KEY_FILE": str(self._folder / "audit-key"),
            "PYTHONPATH": str(ROOT),
        }
        words = ["serve", "--port", str(port)]
        return Server([sys.executable, "-c", A_YEAR_LATER, *words], port, environment, all_cores())

    def fill(self, node: Server, more: int) -> Step:
        begun, wal, before = time.monotonic(), self.wal(), self.events()
        events, upto = before, before + more
        while events < upto:
            # So long as the rest will take, at the rate so far.
            rate = (events - before) / (time.monotonic() - begun)
            seconds = min(20, max(1, (upto - events) / rate if rate else 1))
            self._seed += 1
            load.run(
                self._folder,
                node.port,
                KEY,
                self._bodies,
                connections=CONNECTIONS,
                seconds=round(seconds),
                seed=self._seed,
                batch=BATCH,
                cores=all_cores(),
            )
            events = self.events()
        took = time.monotonic() - begun
        return Step(events, (self.wal() - wal) / (events - before), (events - before) / took, self.sizes())

    def copy(self, times: int) -> None:
        """Copy what there is so many times."""
        with psycopg.connect(self.database, autocommit=True) as connection:
            for table in COPIES:
                connection.execute(f"CREATE UNLOGGED TABLE copied_{table} AS SELECT * FROM {table}")
            for number in range(1, times + 1):
                far = number * FURTHER
                for table, other in COPIES.items():
                    found = connection.execute(f"SELECT * FROM {table} LIMIT 0").description or ()
                    names = [column.name for column in found]
                    values = [other.get(name, name).format(far=far) for name in names]
                    rows = f"SELECT {', '.join(values)} FROM copied_{table}"
                    connection.execute(f"INSERT INTO {table} ({', '.join(names)}) {rows}")
                connection.execute(
                    f"INSERT INTO ids SELECT organisation_id, {_KEY}, event_no FROM events"
                    f" WHERE event_no IN (SELECT event_no + {far} FROM copied_events)"
                )
                connection.execute(
                    "INSERT INTO ids SELECT organisation_id, gen_random_uuid(), call_no FROM tool_calls"
                    f" WHERE call_no IN (SELECT call_no + {far} FROM copied_tool_calls)"
                )
                print(f"copied {number} times", file=sys.stderr, flush=True)
            for table in COPIES:
                connection.execute(f"DROP TABLE copied_{table}")
            connection.execute("ANALYZE")

    def clean(self, upto: int, seconds: float) -> Retention:
        wal, cpu, begun = self.wal(), self._server.cpu(), time.monotonic()
        node = self.node_a_year_later()
        try:
            most = upto // 1_000  # the newest may stay
            while self._number(f"SELECT count(*) FROM (SELECT FROM events LIMIT {most + 1}) few") > most:
                if node.process.poll() is not None:
                    raise RuntimeError(node.output())
                if time.monotonic() - begun > seconds:
                    raise RuntimeError(f"{self.events():,} events are left after {seconds:.0f} seconds")
                time.sleep(0.2)
            took = time.monotonic() - begun
        finally:
            node.stop()
        return Retention(upto, took, self._server.cpu() - cpu, self.wal() - wal, self.sizes())

    def join_partitions(self) -> None:
        """Let the events be in one partition that is never wholly past."""
        with contextlib.closing(Database(self.database)) as store:
            divide_since(store, "2030-01-01T00:00:00.000000Z")

    def _number(self, statement: str) -> int:
        with psycopg.connect(self.database, autocommit=True) as connection:
            found = connection.execute(statement).fetchone()  # type: ignore[call-overload]
        return int(found[0])

    def events(self) -> int:
        return self._number("SELECT count(*) FROM events")

    def wal(self) -> int:
        return self._number("SELECT pg_current_wal_lsn() - '0/0'")

    def sizes(self) -> dict[str, Size]:
        """A partition counts to its table."""
        with psycopg.connect(self.database, autocommit=True) as connection:
            rows = connection.execute(
                "SELECT coalesce(p.relname, c.relname), sum(pg_table_size(c.oid)),"
                " sum(pg_indexes_size(c.oid)) FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid"
                " LEFT JOIN pg_class p ON p.oid = i.inhparent"
                " WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace GROUP BY 1"
            ).fetchall()
        found = {str(name): Size(int(own), int(indexes)) for name, own, indexes in rows}
        return dict(sorted(found.items(), key=lambda item: -item[1].table - item[1].indexes))


def measure(arguments: argparse.Namespace) -> tuple[list[Step], Retention | None]:
    folder = Path(tempfile.mkdtemp(prefix="governance-growth-"))
    server = Postgres(wal_init_zero="off", shared_buffers="512MB", max_wal_size="4GB")
    try:
        with contextlib.closing(server):
            server.start()
            bench = Bench(folder, server, arguments)
            node = bench.node()
            try:
                steps = []
                for _ in range(arguments.steps):
                    steps.append(bench.fill(node, arguments.events // arguments.steps))
                    print(steps[-1], file=sys.stderr, flush=True)
                if arguments.copies:
                    bench.copy(arguments.copies)
                    steps.append(bench.fill(node, arguments.events // arguments.steps))
                    print(steps[-1], file=sys.stderr, flush=True)
            finally:
                node.stop()
            if arguments.no_retention:
                return steps, None
            if arguments.rows:
                bench.join_partitions()
            return steps, bench.clean(steps[-1].events, 60 + steps[-1].events / 500)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def report(arguments: argparse.Namespace, steps: Sequence[Step], retention: Retention | None) -> str:
    last = steps[-1]
    grown = table(
        ["events", "WAL bytes an event", "events/s", "all tables MiB", "all indexes MiB"],
        [
            [
                *(f"{step.events:,}", f"{step.wal:,.0f}", f"{step.rate:,.0f}"),
                mebibytes(sum(size.table for size in step.sizes.values())),
                mebibytes(sum(size.indexes for size in step.sizes.values())),
            ]
            for step in steps
        ],
    )
    sizes = table(
        ["table", "MiB", "its indexes MiB", "bytes an event", "of indexes"],
        [
            [
                *(name, mebibytes(size.table), mebibytes(size.indexes)),
                *(f"{size.table / last.events:,.0f}", f"{size.indexes / last.events:,.0f}"),
            ]
            for name, size in last.sizes.items()
            if size.table + size.indexes > last.events
        ],
    )
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    text = (
        f"# Growth on PostgreSQL\n\nMeasured {today} by `make bench-growth` on {http.machine()};"
        f" {arguments.policies:,} policies, random ids, in batches of {BATCH}.\n\n{grown}\n\n"
        f"After {last.events:,} events:\n\n{sizes}\n"
    )
    if retention is not None:
        left = sum(size.table + size.indexes for size in retention.sizes.values())
        how = "deleted row by row" if arguments.rows else "dropped with their partition"
        text += (
            f"\nBy retention {retention.events:,} events were {how}, in {retention.seconds:,.1f} s, the start"
            f" of the node included, with {retention.wal / retention.events:,.0f} bytes of WAL and"
            f" {retention.cpu / retention.events * 1e6:,.0f} us of the server's processor time each;"
            f" {mebibytes(left)} MiB are left.\n"
        )
    return text


def mebibytes(size: float) -> str:
    return f"{size / 2**20:,.1f}"


def arguments_of(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-growth", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--copies", type=int, default=0, help="of all these events, made by the database")
    parser.add_argument("--policies", type=int, default=1_000)
    parser.add_argument("--no-retention", action="store_true")
    parser.add_argument("--rows", action="store_true", help="retention deletes rows")
    parser.add_argument("--write", action="store_true", help=f"keep the results in {RESULTS.name}")
    return parser.parse_args(given)


def main(given: Sequence[str]) -> int:
    arguments = arguments_of(given)
    try:
        load.program()
    except load.Missing as error:
        print(error, file=sys.stderr)
        return 2
    text = report(arguments, *measure(arguments))
    print(text)
    if arguments.write:
        RESULTS.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
