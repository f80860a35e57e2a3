"""`kill -9` under load, of the service and of PostgreSQL: whatever was acknowledged is there, and stays true.

Agents and reviewers work against a real `governance serve` until it, or its database, dies under them, again
and again. After each recovery the ledger asks for everything it was told: answers word for word, approvals,
resolutions, rate counts, audit links; at the end a receiver that outlived it all has every webhook owed.

`make test-faults` runs 50 rounds of each kind; `KILL_ROUNDS` sets any other number.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.ledger import HOOKED, POLICIES, Inbox, Ledger
from tests.faults.load import Load
from tests.harness import forked
from tests.harness.application import SECRET
from tests.harness.nodes import CLEAN, Node, nodes
from tests.harness.postgres import Postgres

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("KILL_ROUNDS", "2"))
RETRIES = ",".join(["0", "0.3", *["1"] * 18])
ARRIVAL_SECONDS = 150
"""A lease of half a minute, taken just before the last kill, must run out first."""


class Scene:
    """A service with a webhook, and the ledger of what it acknowledged."""

    def __init__(self, node: Node, inbox: Inbox, database: str) -> None:
        self.node, self.inbox, self.database = node, inbox, database
        self.admin = node.admin()
        self.ledger = Ledger()
        self.chance = random.Random()
        self.begun = time.monotonic()
        hook = {"url": inbox.receiver.url, "events": list(HOOKED)}
        made = node.http.post("/v1/webhooks", json=hook, headers=self.admin)
        assert made.status_code == 201, made.text
        inbox.secret = made.json()["secret"]

    def load(self, *, unavailable: bool) -> Load:
        self.ledger.round += 1
        now = time.gmtime(time.time() - 1)
        self.ledger.starts[self.ledger.round] = time.strftime("%Y-%m-%dT%H:%M:%SZ", now)
        return Load(self.node.port, admin=self.admin, ledger=self.ledger, unavailable=unavailable)

    def check(self) -> None:
        self.ledger.check(self.node, self.admin, self.chance)
        assert self.inbox.problems == []

    def finish(self) -> None:
        ledger = self.ledger
        owed = ledger.wait_for_owed(self.inbox, ARRIVAL_SECONDS)
        ledger.check_all(self.node, self.admin)
        assert ledger.resolutions
        assert verified(self.node, self.database) > len(ledger.events)
        print(
            f"\n{ledger.round} rounds in {time.monotonic() - self.begun:.0f} s: {len(ledger.events)} events "
            f"and {len(ledger.resolutions)} resolutions acknowledged, {owed} webhooks owed and accepted in "
            f"{self.inbox.posts} posts"
        )


def verified(node: Node, database: str) -> int:
    """The number of records, once the command line has found every link whole."""
    command = ["audit", "verify", "--format", "json"]
    where = ["--database-url", database, "--data-dir", str(node.folder / "data")]
    done = forked.run([*command, *where], node.folder, CLEAN | {"GOVERNANCE_JWT_SECRET": SECRET})
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(done.stdout)
    assert all(result["valid"] for result in results)
    return max(int(result["count"]) for result in results)


@contextlib.contextmanager
def scene(folder: Path, database: str) -> Iterator[Scene]:
    inbox = Inbox()
    with (
        inbox.receiver,
        nodes(
            folder,
            database,
            1,
            POLICIES,
            GOVERNANCE_WEBHOOK_ALLOW=inbox.receiver.place,
            GOVERNANCE_WEBHOOK_RETRY=RETRIES,
        ) as (node,),
    ):
        yield Scene(node, inbox, database)


def test_everything_acknowledged_survives_kills_of_the_service(tmp_path: Path, database_url: str) -> None:
    with scene(tmp_path, database_url) as play:
        for _ in range(ROUNDS):
            load = play.load(unavailable=False)
            load.wait_for(20)
            time.sleep(play.chance.uniform(0, 1.2))
            play.node.kill()
            load.stop()
            if play.chance.random() < 0.3:
                # And again, while it starts: it may be replaying its log.
                play.node.process = play.node._start()
                time.sleep(play.chance.uniform(0, 2))
                play.node.kill()
            play.node.restart()
            play.check()
        play.finish()
        assert "Traceback" not in play.node.log


@pytest.mark.postgres
def test_everything_acknowledged_survives_kills_of_postgresql(
    tmp_path: Path, postgres: Postgres, postgres_url: str
) -> None:
    with scene(tmp_path, postgres_url) as play:
        for _ in range(ROUNDS):
            load = play.load(unavailable=True)
            load.wait_for(20)
            time.sleep(play.chance.uniform(0, 1.2))
            postgres.crash()
            time.sleep(play.chance.uniform(0, 0.5))
            postgres.start()
            # The same process goes on as soon as the database is back; nobody restarts it.
            load.wait_for(20)
            load.stop()
            assert load.refused, "nobody noticed"
            play.check()
        assert play.node.process.poll() is None
        play.finish()
