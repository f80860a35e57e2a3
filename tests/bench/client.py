"""What the Python client costs: a governed call beside the same request by bare httpx, to the same service.

    python -m tests.bench.client [--calls 500] [--rounds 8]

Both take turns, round by round, so that whatever else runs on the machine slows both. A governed call is
asked about, made and reported; bare httpx only asks. The median of the rounds counts.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import tempfile
import time
import uuid
from pathlib import Path

import httpx
from governance_client import AsyncGovernance, ClientSettings, Governance

from tests.bench.served import KEY, service, write_policies

Seconds = list[float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=8)
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as resources:
        place = Path(name)
        served = service(place / "data", write_policies(place, 100))
        resources.callback(served.stop)
        settings = ClientSettings(
            KEY, f"http://127.0.0.1:{served.port}", "bench-agent", journal=place / "journal"
        )
        measured: dict[str, tuple[Seconds, Seconds]] = {
            "httpx, a question": ([], []),
            "check": ([], []),
            "check and report": ([], []),
            "async check": ([], []),
        }
        for _ in range(told.rounds):
            for name, ask in zip(measured, (_bare, _check, _reported, _async), strict=True):
                begun, computed = time.perf_counter(), time.process_time()
                ask(settings, told.calls)
                measured[name][0].append((time.perf_counter() - begun) / told.calls)
                measured[name][1].append((time.process_time() - computed) / told.calls)
        base = statistics.median(measured["httpx, a question"][1])
        print("| | ms a call | processor ms of the client | more than bare httpx |\n|---|---:|---:|---:|")
        for name, (whole, own) in measured.items():
            cpu, wall = statistics.median(own) * 1e3, statistics.median(whole) * 1e3
            print(f"| {name} | {wall:.2f} | {cpu:.2f} | {cpu - base * 1e3:+.2f} |")


def _bare(settings: ClientSettings, calls: int) -> None:
    run_id = str(uuid.uuid4())
    headers = {"X-API-Key": settings.api_key}
    with httpx.Client(base_url=settings.url, headers=headers, trust_env=False) as client:
        for number in range(calls):
            call = {
                "toolCallId": f"call-{number}",
                "toolName": "read_file",
                "inputPayload": {"number": number},
            }
            event = {
                "eventId": str(uuid.uuid4()),
                "runId": run_id,
                "agentId": "bench-agent",
                "metadata": call,
            }
            body = {**event, "timestamp": "2026-01-31T09:30:00Z", "eventType": "tool.called"}
            assert client.post("/v1/events", json=body).json()["toolCallStatus"]


def _check(settings: ClientSettings, calls: int) -> None:
    with Governance(settings) as governance:
        run = governance.run("measure")
        for number in range(calls):
            assert run.check("read_file", {"number": number}).reason


def _reported(settings: ClientSettings, calls: int) -> None:
    with Governance(settings) as governance, governance.run("measure") as run:
        for number in range(calls):
            run.completed(run.check("read_file", {"number": number}), {"text": "a line of the file"})


def _async(settings: ClientSettings, calls: int) -> None:
    async def agent() -> None:
        async with AsyncGovernance(settings) as governance:
            run = governance.run("measure")
            for number in range(calls):
                assert (await run.check("read_file", {"number": number})).reason

    asyncio.run(agent())


if __name__ == "__main__":
    main()
