"""What all shipped detectors cost, as a share of what an event costs: both in one run, in one process.

    .venv/bin/python -m tests.bench.detectors [ROUNDS]

An event is read, checked, decided against 1,000 policies and committed with its neighbours, without HTTP,
which would only make it dearer. Then everything is read again from the log and told to the detectors, step by
step as the service does it, with all that is kept. Processor time of the whole process, both times.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from api import settings
from api.alerts import worker
from api.alerts.worker import take_step
from api.auth.credentials import key_digest, key_prefix
from api.caller import Caller
from api.context import Context
from api.database.inline_commit import Entry
from api.database.transaction import Transaction
from api.ingestion.validation import checked
from api.policies.opening import open_policies
from api.service import open_service
from api.store import accounts
from api.store.alerts import alerts
from engine.model import ToolCall
from tests.bench import load
from tests.bench.served import write_policies
from tests.harness.application import environment, write_files
from tests.harness.watching import DETECTORS, TOOLS

POLICIES: Final = 1_000
GROUP: Final = 48
EVENTS: Final = 4_800
"""Of a round."""
AGENTS: Final = 64
TOOLS_OF_AN_AGENT: Final = 8
KEY: Final = "agk_" + "x" * 40


async def measured(folder: Path, rounds: int) -> tuple[float, float, int]:
    """Microseconds of an event, and of the detectors for it, each in its best round; and how many alerts
    there were."""
    policies = write_policies(folder, POLICIES)
    write_files(policies, DETECTORS | TOOLS)
    bodies = Path(load.write_bodies(folder, 1_000)).read_text(encoding="utf-8").splitlines()
    loaded = settings.load(environment(folder, GOVERNANCE_POLICIES_DIR=str(policies)))
    async with open_service(loaded, open_policies) as context:
        await context.writer.write(_populate)
        context.credentials.load_keys()
        caller = context.credentials.known(key_digest(KEY))
        assert caller is not None
        ruleset = context.live.ruleset("default")
        ordinary = [body for body in bodies if not ruleset.evaluate(_call(body)).matches]
        watching = context.detection
        spent, looked = [], []
        for number in range(rounds):
            spent.append(await _commit(context, caller, ordinary, number))
            begun = time.process_time()
            while await take_step(watching, context.store, context.writer):
                pass
            looked.append(time.process_time() - begun)
        found = await context.store.read(alerts.by_detector, "default")
    raised = sum(count for count, _, _ in found.values())
    return min(spent) / EVENTS * 1e6, min(looked) / EVENTS * 1e6, raised


def _call(body: str) -> ToolCall:
    event = json.loads(_raw(body, 0, "x"))
    return ToolCall.of(**{name: event["metadata"][name] for name in ("toolName", "inputPayload")})


def _raw(body: str, run: int, call: str) -> bytes:
    return (
        f'{{"eventId":"evt-{call}","runId":"run-{run}","agentId":"agent-{run}",'
        f'"timestamp":"2026-01-31T09:30:00.125Z","eventType":"tool.called",'
        f'"metadata":{{"toolCallId":"call-{call}{body}'
    ).encode()


def _populate(transaction: Transaction) -> None:
    accounts.add_organisation(transaction, "default", "Default", "test")
    accounts.add_key(transaction, "default", "bench", key_digest(KEY), key_prefix(KEY), "test")


async def _commit(context: Context, caller: Caller, bodies: list[str], number: int) -> float:
    """Processor seconds of the events of a round."""
    chance, loop, spent = random.Random(number), asyncio.get_running_loop(), 0.0
    for _ in range(EVENTS // GROUP):
        raws = []
        for _ in range(GROUP):
            run, call = chance.randrange(AGENTS), f"{chance.getrandbits(64):016x}-{number}"
            body = bodies[(run * TOOLS_OF_AN_AGENT + chance.randrange(TOOLS_OF_AN_AGENT)) % len(bodies)]
            raws.append(_raw(body, run, call))
        begun = time.process_time()
        entries = [Entry(None, checked(caller, raw), loop, lambda result: None, len(raw)) for raw in raws]
        with context.writer.writing:
            done = context.writer.commit_at_once(entries)
        spent += time.process_time() - begun
        if not done:
            await asyncio.gather(*(context.writer.ingested(checked(caller, raw), loop) for raw in raws))
    return spent


def main(rounds: int = 8) -> float:
    """Prints and returns the share."""
    worker.EVERY_SECONDS = 1e9  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as folder:
        event, looked, raised = asyncio.run(measured(Path(folder), rounds))
    share = looked / event
    print(f"{event:.1f} us an event, {looked:.2f} us for its detectors: {share:.1%}; {raised} alerts")
    return share


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
