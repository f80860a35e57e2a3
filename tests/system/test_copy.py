"""`governance copy`: an installation goes on where it was, on PostgreSQL; a killed copy goes on, too."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg
import pytest

from api import bootstrap
from api.database.connection import COPY_PROGRESS
from api.database.moving.streams import STREAMS
from api.settings import load
from tests.harness.application import environment, write_policies
from tests.harness.nodes import CLEAN, KEY, Node, called
from tests.harness.places import ROOT
from tests.harness.policy_bodies import on_tool
from tests.harness.receiver import Answer, Receiver

HOLD = on_tool("Hold payments", "require_approval", "pay")
LIMIT = on_tool(
    "Three mails", "block", "mail", rateLimit={"limit": 3, "windowSeconds": 86_400, "per": ["toolName"]}
)
AGENT = {"X-API-Key": KEY}
HITS = 60_000

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


class Command:
    """`governance` on the data folder of a node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        told = {"GOVERNANCE_AUDIT_KEY_FILE": str(folder.parent / "audit-key")}
        self._environment = CLEAN | environment(folder, **told)

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "api.cli", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env=self._environment,
        )

    def run(self, *words: str) -> tuple[int, str]:
        process = self.start(*words)
        output, _ = process.communicate(timeout=120)
        return process.returncode, output


def contents(folder: Path, url: str) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """All rows of all tables that are copied, on both sides."""
    before: dict[str, list[Any]] = {}
    after: dict[str, list[Any]] = {}
    path = folder / "data" / "governance.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as old, psycopg.connect(url) as new:
        for stream in STREAMS:
            columns = ", ".join(f'"{name}"' for name in stream.columns)
            if stream.table == stream.name:
                statement = f'SELECT {columns} FROM "{stream.table}"'
                before[stream.table] = sorted(map(repr, old.execute(statement)))
                rows = new.execute(statement).fetchall()  # type: ignore[call-overload]
                after[stream.table] = sorted(repr(tuple(map(_as_sqlite, row))) for row in rows)
    return before, after


def _as_sqlite(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value


def status(node: Node, number: str, tool: str, **payload: Any) -> str:
    answer = node.call(number, tool, **payload)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["toolCallStatus"])


def test_an_installation_goes_on_where_it_was(tmp_path: Path, postgres_url: str) -> None:
    folder, policies = tmp_path / "node", tmp_path / "policies"
    write_policies(policies, [HOLD, LIMIT])
    command = Command(folder)
    file = folder / "data" / "governance.sqlite"
    with Receiver([Answer(500)]) as receiver:
        allowed = {"GOVERNANCE_WEBHOOK_ALLOW": receiver.place}
        old = Node(folder, "", policies, allowed).ready()
        try:
            admin = old.admin()
            hook = {"url": receiver.url, "events": ["approval.requested"]}
            assert old.http.post("/v1/webhooks", json=hook, headers=admin).status_code == 201
            held = old.call("held", "pay", amount=9)
            first = old.call("free", "read")
            assert (held.status_code, first.status_code) == (200, 200)
            assert [status(old, f"mail-{n}", "mail") for n in range(2)] == ["allowed"] * 2
            receiver.wait_for(1)
            deadline = time.monotonic() + 20
            while not (old.http.get("/health").json()["audit"]["signedAt"] or time.monotonic() > deadline):
                time.sleep(0.05)
            code, said = command.run("copy", "--to", postgres_url)
            assert code == 1 and "a service runs on" in said, said
        finally:
            old.stop()
        receiver.plan = [Answer(200)]
        digest = sha256(file.read_bytes()).digest()
        code, said = command.run("copy", "--to", postgres_url)
        assert code == 0 and "copied and verified" in said, said
        assert sha256(file.read_bytes()).digest() == digest
        before, after = contents(folder, postgres_url)
        assert after == before
        assert {table for table, rows in before.items() if rows} >= {
            *("events", "tool_calls", "runs", "approvals", "audit", "checkpoints", "deliveries", "webhooks"),
            *("users", "api_keys", "data_keys", "rate_hits", "policy_files", "policy_versions", "counters"),
        }
        code, said = command.run("audit", "verify", "--database-url", postgres_url)
        assert code == 0, said
        code, said = command.run("copy", "--to", postgres_url)
        assert code == 1 and "is not empty" in said and "is whole, start with it" in said, said

        new = Node(folder, postgres_url, policies, allowed).ready()
        try:
            again = new.call("free", "read"), new.call("held", "pay", amount=9)
            assert [answer.content for answer in again] == [first.content, held.content]
            # The same call under another event is the same call, too.
            other = called("free", "read") | {"eventId": "another"}
            answer = new.http.post("/v1/events", json=other, headers=AGENT).json()
            assert answer["decidedAt"] == first.json()["decidedAt"]
            assert status(new, "more", "read") == "allowed"
            assert [status(new, f"mail-{n}", "mail") for n in range(2, 4)] == ["allowed", "blocked"]
            admin = new.admin()
            approval = held.json()["approvalId"]
            resolved = new.http.post(f"/v1/approvals/{approval}/approve", headers=admin)
            assert resolved.status_code == 200, resolved.text
            assert status(new, "held", "pay", amount=9) == "awaiting_approval"  # the recorded answer
            run = new.http.get("/v1/runs/run-1", headers=AGENT).json()
            calls = {call["toolCallId"]: call["status"] for call in run["toolCalls"]}
            assert (calls["call-held"], calls["call-more"]) == ("allowed", "allowed") and len(calls) == 7
            receiver.wait_for(2, timeout=60)
        finally:
            new.stop()
        code, said = command.run("audit", "verify", "--database-url", postgres_url)
        assert code == 0, said


def crowded(folder: Path) -> None:
    """A first start, and many rows that take some time to copy."""
    bootstrap.prepare(load(environment(folder)))
    with contextlib.closing(sqlite3.connect(folder / "data" / "governance.sqlite")) as database, database:
        database.executemany(
            "INSERT INTO rate_hits (hit_no, bucket, at, expires_at) VALUES (?, ?, ?, ?)",
            ((number, f"bucket-{number}" * 20, number, 9e9) for number in range(1, HITS + 1)),
        )


def progress(url: str) -> int:
    """How many of those rows a copy under way has brought."""
    with psycopg.connect(url, autocommit=True) as connection:
        try:
            row = connection.execute(
                f"SELECT row_count FROM {COPY_PROGRESS} WHERE stream = 'rate_hits'"  # type: ignore[arg-type]
            ).fetchone()
        except psycopg.errors.UndefinedTable:
            return 0
    assert row is not None
    return int(row[0])


def test_killed_in_the_middle_it_goes_on(tmp_path: Path, postgres_url: str) -> None:
    folder = tmp_path / "node"
    crowded(folder)
    command = Command(folder)
    process = command.start("copy", "--to", postgres_url)
    deadline = time.monotonic() + 60
    while progress(postgres_url) == 0:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    brought = progress(postgres_url)
    assert 0 < brought < HITS
    code, said = command.run("audit", "verify", "--database-url", postgres_url)
    assert code == 2 and "run `governance copy` again" in said
    code, said = command.run("copy", "--to", postgres_url)
    assert code == 0 and "by the copy before" in said, said
    before, after = contents(folder, postgres_url)
    assert after == before and len(after["rate_hits"]) == HITS
    code, said = command.run("audit", "verify", "--database-url", postgres_url)
    assert code == 0, said


def test_what_has_changed_since_is_not_mixed(tmp_path: Path, postgres_url: str) -> None:
    folder = tmp_path / "node"
    crowded(folder)
    command = Command(folder)
    process = command.start("copy", "--to", postgres_url)
    while progress(postgres_url) == 0:
        assert process.poll() is None
        time.sleep(0.005)
    process.kill()
    process.communicate()
    assert command.run("keys", "add", "one more")[0] == 0
    code, said = command.run("copy", "--to", postgres_url)
    assert code == 1 and "before it was changed" in said and "drop it" in said
