"""A hostile key beside a normal one: `python -m tests.bench.hostile [--database postgresql]`.

The normal key sends ten small events a second; the hostile one sends, on so many connections, 800 kB commands
of escapes, lists of 9,000 elements for eight policies of nested macros, small commands that take some
milliseconds each, requests to read a run of 6,000 calls, outputs of 10,000 values under many long keys, and
requests that are dear before it is known who sends them: tens of thousands of parameters or of header lines,
or a body in chunks of one byte. In the rows of crowds it sends ordinary events, one or a hundred at once, as
soon as the last ones are answered. Each row has the normal key's median and 95th percentile, and the ratio of
its median to that without the other. In the rows of many keys each connection has a key of its own, and sends
small commands that take some tenths of a second each, outputs, or batches. In the next rows a crowd without a
key asks for a page or the health, and the times are those of a person who asks who they are, by a token. At
the end many keys keep all connections at work that there may be, and the normal key opens one for each event.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from tests.bench import load
from tests.bench.served import KEY, Server, service
from tests.harness.places import ROOT
from tests.harness.postgres import Postgres

SECONDS = 8
PAUSE = 0.1
CONNECTIONS = (1, 4, 16)
CROWDS = ((64, 1), (500, 1), (2_500, 1), (16, 100), (64, 100))
"""Connections, and events of each request."""
PAGES = ("/health/live", "/health", "/docs/search.json", "/v1/me", "/nothing")
MANY = 30
"""Keys at once."""
CROWDING, EACH, FEW = 14, 60, 768
"""Keys, the connections that each would have, and those that there may be."""
DEAR = "(delete from t ||" * 900
ANONYMOUS = 1_500
"""Connections that ask for one of them."""
SMALL = "a;" * 400
CALLS = 6_000
ESCAPES = "echo $'" + "\\x72" * 200_000 + "'"
LIST = list(range(9_000))
NESTED = "inputPayload.l.all(a, inputPayload.l.all(b, a + b >= 0))"
VALUES = "derived.untrustedTargets.exists(target, target == 'nowhere')"
HEAD = b"POST /v1/events?%b HTTP/1.1\r\nHost: bench\r\nX-API-Key: %b\r\nConnection: close\r\n%b\r\n"

Act = Callable[[httpx.AsyncClient, str, str], Awaitable[int]]
"""What the hostile key does again and again, with its client, its key and a run: the status of the answer."""

_numbers = itertools.count()


def event(tool: str, payload: dict[str, Any], run: str = "") -> bytes:
    name = f"{time.time_ns()}-{next(_numbers)}"
    metadata = {"toolCallId": name, "toolName": tool, "inputPayload": payload}
    body = {"eventId": name, "runId": f"run-{tool}{run}", "agentId": f"agent-{tool}", "metadata": metadata}
    return json.dumps(body | {"timestamp": "2026-01-31T09:30:00Z", "eventType": "tool.called"}).encode()


def report(call: bytes) -> bytes:
    """What came of a call: a register of many values, each under many long keys."""
    told = json.loads(call)
    output: Any = [f"value {number}" for number in range(10_000)]
    for depth in range(50):
        output = {f"notes of the customer at depth {depth}": output}
    metadata = {"toolCallId": told["metadata"]["toolCallId"], "outputPayload": output}
    named = {"eventId": f"{told['eventId']}-report", "eventType": "tool.completed", "metadata": metadata}
    return json.dumps(told | named).encode()


async def post(http: httpx.AsyncClient, key: str, body: bytes) -> int:
    """The status of an event's answer; without a body, of that to reading the run of many calls."""
    headers = {"X-API-Key": key, "Content-Type": "application/json"}
    if not body:
        return (await http.get("/v1/runs/run-many", headers={"X-API-Key": key})).status_code
    return (await http.post("/v1/events", content=body, headers=headers)).status_code


async def reported(http: httpx.AsyncClient, key: str, run: str) -> int:
    call = event("get_customer", {}, run)
    await post(http, key, call)
    return await post(http, key, report(call))


async def batch(http: httpx.AsyncClient, key: str, run: str) -> int:
    """A hundred ordinary calls."""
    events = b",".join(event("get_customer", {"id": number}, run) for number in range(100))
    headers = {"X-API-Key": key, "Content-Type": "application/json"}
    sent = await http.post("/v1/events/batch", content=b'{"events":[' + events + b"]}", headers=headers)
    return sent.status_code


def sending(payload: Callable[[], tuple[str, dict[str, Any]]]) -> Act:
    """Events of a tool with a payload."""

    async def act(http: httpx.AsyncClient, key: str, run: str) -> int:
        return await post(http, key, event(*payload(), run))

    return act


def raw(port: int, query: bytes, lines: bytes, body: bytes) -> Act:
    """Bytes that no client would write."""

    async def act(http: httpx.AsyncClient, key: str, run: str) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(HEAD % (query, key.encode(), lines) + body)
            return int((await reader.readline()).split()[1])
        finally:
            writer.close()

    return act


async def timed(ask: Callable[[], Awaitable[int]]) -> list[float]:
    """Milliseconds of each answer."""
    found: list[float] = []
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        begun = time.perf_counter()
        assert await ask() == 200
        found.append((time.perf_counter() - begun) * 1000)
        await asyncio.sleep(PAUSE)
    return found


async def normal(http: httpx.AsyncClient) -> list[float]:
    return await timed(lambda: post(http, KEY, event("read", {"path": "notes.txt"})))


async def normal_with(server: Server, kept: int | None) -> list[float]:
    """The same, with connections that are kept as httpx does it, or so many of them."""
    limits, base = httpx.Limits(max_keepalive_connections=kept), f"http://127.0.0.1:{server.port}"
    async with httpx.AsyncClient(base_url=base, timeout=120, limits=limits) as http:
        return await normal(http)


async def person(server: Server) -> list[float]:
    """Of somebody who has a token."""
    bearer = bearer_of(server)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=120) as http:

        async def ask() -> int:
            return (await http.get("/v1/me", headers=bearer)).status_code

        return await timed(ask)


async def beside_nobody(server: Server, path: str) -> tuple[list[float], str]:
    """A person's times beside a crowd without a key, and how many answers that got a second."""
    words = (load.program(), "-t1", f"-c{ANONYMOUS}", f"-d{SECONDS + 2}s", "--timeout", "60s")
    url = f"http://127.0.0.1:{server.port}{path}"
    crowd = await asyncio.create_subprocess_exec(*words, url, stdout=asyncio.subprocess.PIPE)
    await asyncio.sleep(1.0)
    times = await person(server)
    said = (await crowd.communicate())[0].decode()
    return times, said.partition("Requests/sec:")[2].split()[0]


async def beside(server: Server, keys: Sequence[str], act: Act, run: str) -> tuple[Any, ...]:
    """The normal key's times, and how many answers the hostile ones, of a connection each, got a second, by
    status."""
    base = f"http://127.0.0.1:{server.port}"
    statuses: dict[int, int] = {}

    async def hostile(key: str) -> None:
        async with httpx.AsyncClient(base_url=base, timeout=120) as http:
            while True:
                status = await act(http, key, f"{run}-{key[-8:]}")
                statuses[status] = statuses.get(status, 0) + 1
                await asyncio.sleep(0.05 if status == 200 else 0.2)

    async with httpx.AsyncClient(base_url=base, timeout=120) as http:
        others = [asyncio.create_task(hostile(key)) for key in keys]
        await asyncio.sleep(1.0 if keys else 0)
        statuses.clear()
        times = await normal(http)
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)
    return times, {status: round(count / SECONDS, 1) for status, count in statuses.items()}


async def in_crowd(
    server: Server, keys: Sequence[str], folder: Path, connections: int, batch: int, kept: int | None = None
) -> tuple[list[float], dict[str, float]]:
    """The same as `beside`, with a crowd that waits for its answers alone: of each key so many connections.
    See `normal_with`."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(len(keys)))
    crowds = []
    for key in keys:
        (place := folder / f"crowd-{key[-8:]}").mkdir()
        crowd = asyncio.to_thread(
            load.run,
            place,
            server.port,
            key,
            load.write_bodies(folder, 100),
            connections=connections,
            seconds=SECONDS + 2,
            seed=next(_numbers),
            batch=batch,
        )
        crowds.append(asyncio.create_task(crowd))
    await asyncio.sleep(1.0)
    times = await normal_with(server, kept)
    done = await asyncio.gather(*crowds)
    seconds = done[0].micros / 1e6
    sums = {"all": sum(each.requests for each in done), "refused": sum(each.refused for each in done)}
    return times, {name: round(count / seconds, 1) for name, count in sums.items()}


def another_key(server: Server) -> str:
    """Each row has its own: one that has spent much of the processor's time rests for a while."""
    url, name = f"http://127.0.0.1:{server.port}/v1/api-keys", f"hostile {next(_numbers)}"
    return str(httpx.post(url, json={"name": name}, headers=bearer_of(server)).json()["key"])


def bearer_of(server: Server) -> dict[str, str]:
    """An admin's header."""
    login = {"email": "admin@localhost", "password": "of the benchmark only"}
    answer = httpx.post(f"http://127.0.0.1:{server.port}/auth/login", json=login)
    return {"Authorization": f"Bearer {answer.json()['accessToken']}"}


def write_many(server: Server, key: str) -> None:
    """A run of many calls, of the hostile key."""
    for _ in range(CALLS // 1_000):
        batch = [event("many", {}) for _ in range(1_000)]
        sent = httpx.post(
            f"http://127.0.0.1:{server.port}/v1/events/batch",
            content=b'{"events":[' + b",".join(batch) + b"]}",
            headers={"X-API-Key": key, "Content-Type": "application/json"},
            timeout=120,
        )
        assert sent.status_code == 200


def policies(folder: Path) -> Path:
    place = folder / "policies"
    shutil.copytree(ROOT / "policies.d", place)
    wanted = {f"nested-{number}": ("lists", f"{NESTED} && {number} >= 0") for number in range(8)}
    wanted["values"] = ("pay", VALUES)
    for name, (tool, expression) in wanted.items():
        conditions = [
            {"field": "toolName", "operator": "equals", "value": tool},
            {"expression": expression},
        ]
        document = {"apiVersion": "governance/v1", "kind": "Policy", "policyId": name}
        document |= {"name": name, "action": "block", "matchConditions": conditions}
        (place / "policies" / f"{name}.yaml").write_text(json.dumps(document))
    return place


def row(kind: str, connections: int, median: float, times: list[float], answered: object) -> str:
    middle, late = statistics.median(times), statistics.quantiles(times, n=20)[-1]
    return f"| {kind} | {connections} | {middle:.1f} | {late:.1f} | {middle / median:.1f} | {answered} |"


def rows(server: Server, folder: Path) -> Iterator[str]:
    alone, _ = asyncio.run(beside(server, (), reported, ""))
    median = statistics.median(alone)
    yield row("alone", 0, median, alone, "")
    length, chunked = (
        b"Content-Length: 0\r\n",
        b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n",
    )
    kinds: dict[str, Act] = {
        "escapes": sending(lambda: ("bash", {"command": ESCAPES})),
        "macros": sending(lambda: ("lists", {"l": LIST})),
        "commands": sending(lambda: ("bash", {"command": f"{SMALL}{next(_numbers)}"})),
        "reads": lambda http, key, run: post(http, key, b""),
        "outputs": reported,
        "parameters": raw(server.port, b"?" + b"a&" * 30_000, length, b""),
        "header lines": raw(server.port, b"", length + b"a:\r\n" * 14_000, b""),
        "tiny chunks": raw(server.port, b"", chunked, b"1\r\n \r\n" * 150_000 + b"0\r\n\r\n"),
    }
    write_many(server, reader := another_key(server))
    for kind, connections in itertools.product(kinds, CONNECTIONS):
        key = reader if kind == "reads" else another_key(server)
        done = beside(server, [key] * connections, kinds[kind], f"-{kind}-{connections}")
        yield row(kind, connections, median, *asyncio.run(done))
    kinds_of_many: dict[str, Act] = {
        "dear calls": sending(lambda: ("execute_sql", {"query": f"{DEAR}{next(_numbers)}"})),
        "outputs": reported,
        "batches": batch,
    }
    for kind, act in kinds_of_many.items():
        done = beside(server, [another_key(server) for _ in range(MANY)], act, f"-many-{kind}")
        yield row(f"{MANY} keys, {kind}", MANY, median, *asyncio.run(done))
    for connections, together in CROWDS:
        crowd = in_crowd(server, [another_key(server)], folder, connections, together)
        yield row(f"events, {together} at once", connections, median, *asyncio.run(crowd))
    alone = asyncio.run(person(server))
    median = statistics.median(alone)
    yield row("a person alone", 0, median, alone, "")
    for path in PAGES:
        yield row(f"nobody, {path}", ANONYMOUS, median, *asyncio.run(beside_nobody(server, path)))


def without_room(folder: Path) -> Iterator[str]:
    """Of a service on SQLite with fewer connections than many keys keep at work, from one address; the normal
    key opens one for each event."""
    server = service(folder / "small", folder / "policies", GOVERNANCE_CONNECTIONS=str(FEW))
    try:
        alone = asyncio.run(normal_with(server, 0))
        median = statistics.median(alone)
        yield row("nobody, each on a connection of its own", 0, median, alone, "")
        keys = [another_key(server) for _ in range(CROWDING)]
        done = asyncio.run(in_crowd(server, keys, folder, EACH, 1, kept=0))
        yield row(f"{CROWDING} keys, {FEW} connections may be", CROWDING * EACH, median, *done)
    finally:
        server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as resources:
        folder, url = Path(name), ""
        if told.database == "postgresql":
            postgres = Postgres(wal_init_zero="off")
            resources.callback(postgres.close)
            postgres.start()
            url = postgres.create()
        server = service(folder / "data", policies(folder), database=url)
        resources.callback(server.stop)
        print("| hostile key | connections | p50 ms | p95 ms | ratio | its answers a second |")
        print("|---|---|---|---|---|---|")
        for line in itertools.chain(rows(server, folder), without_room(folder)):
            print(line)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
