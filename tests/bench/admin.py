"""What admins wait for: `python -m tests.bench.admin [--quick] [--only reload|starts|commands] [--write]`.

Reload: the time from writing a file until the compiled rules decide by it, twenty changes one after another
from the moment the service has started, and again with every change meeting a rescan of the whole folder.
Starts: `governance serve` from the command until it says that it is ready: with files it has never seen, with
the same files again, and with one of them changed meanwhile.
Commands: `governance lint` and `test` over ten thousand policies with examples, in processes of their own.

A machine that is busy with other things makes all of it slower; the load is noted beside each row.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

import engine.live
from api.clock import iso, random_ids, system_clock
from api.database.connection import Database
from api.store.policy_archive import SqlArchive
from engine.documents.edit import dump
from engine.documents.policy import policy_as_json
from engine.live import LivePolicies
from engine.model import ToolCall
from engine.repository.repository import Repository
from tests.bench.workload import Company

RESULTS = Path(__file__).parent / "RESULTS-admin.md"
CHANGES = 20
USUALLY, OFTEN = engine.live.RESCAN_SECONDS, 1.5
"""Seconds between rescans: those of the service, and so few that waiting for one does not take long."""
AGED = 3600
"""Seconds that files lie there before the start, as they do when nobody has just written them."""


def document(number: int, tool: str) -> str:
    return (
        f"apiVersion: governance/v1\nkind: Policy\npolicyId: p{number}\nname: Policy\naction: block\n"
        f"matchConditions:\n  - {{field: toolName, operator: equals, value: {tool}}}\n"
        f"  - {{field: inputPayload.text, operator: contains, value: word{number}}}\n"
    )


def path_of(root: Path, number: int) -> Path:
    return root / "policies" / f"team{number // 500}" / f"p{number}.yaml"


class Told(Repository):
    """Tells when a look at the whole folder begins."""

    begun = threading.Event()

    def differing(self, *arguments: Any) -> Any:
        self.begun.set()
        return super().differing(*arguments)


@contextlib.contextmanager
def started(size: int) -> Iterator[tuple[Path, LivePolicies]]:
    """Live rules over so many files, watching from this moment on."""
    home = Path(tempfile.mkdtemp(prefix="governance-bench-"))
    root = home / "policies.d"
    for number in range(size):
        path = path_of(root, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(document(number, f"tool{number}"))
        then = time.time() - AGED
        os.utime(path, (then, then))
    time.sleep(2.1)  # the time of the last change, which nobody can set, is to lie behind as well
    store = Database(f"sqlite:///{home}/governance.sqlite")
    store.migrate()
    archive = SqlArchive(store, system_clock, random_ids)
    live = LivePolicies(Told(root, archive, clock=lambda: iso(system_clock())))
    live.start()
    live.watch()
    try:
        yield root, live
    finally:
        live.close()
        store.close()
        shutil.rmtree(home)


def changes(root: Path, live: LivePolicies, size: int, meeting: bool) -> list[float]:
    """Seconds until each change was in force. `meeting`: a rescan of all has just begun."""
    took = []
    for number in range(CHANGES):
        which = number * 7919 % size
        tool = f"new{number}-{meeting}"
        call = ToolCall.of(toolName=tool, inputPayload={"text": f"word{which}"})
        if meeting:
            Told.begun.clear()
            Told.begun.wait()
        begun = time.monotonic()
        path_of(root, which).write_text(document(which, tool))
        while not live.ruleset("default").evaluate(call).matches:
            time.sleep(0.001)
        took.append(time.monotonic() - begun)
    return took


def reload(sizes: list[int]) -> Iterator[str]:
    yield "| files | changes | median | slowest | load |"
    yield "|---:|---|---:|---:|---:|"
    for size in sizes:
        for what, seconds in (("from the start on", None), ("each meeting a rescan", OFTEN)):
            engine.live.RESCAN_SECONDS = seconds or USUALLY  # type: ignore[misc]
            with started(size) as (root, live):
                took = changes(root, live, size, seconds is not None)
            yield (
                f"| {size:,} | {CHANGES} {what} | {statistics.median(took) * 1000:.0f} ms "
                f"| {max(took) * 1000:.0f} ms | {os.getloadavg()[0]:.1f} |"
            )


def starts(size: int) -> Iterator[str]:
    yield "| start | policy files | until ready | memory | load |"
    yield "|---|---:|---:|---:|---:|"
    home = Path(tempfile.mkdtemp(prefix="governance-bench-"))
    root = home / "policies.d"
    files = []
    for number, sample in enumerate(Company(size).samples):
        body = {"apiVersion": "governance/v1", "kind": "Policy"} | policy_as_json(sample.policy)
        body.pop("version", None)
        path = root / "policies" / f"team{number // 500}" / f"{sample.policy.policy_id}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dump(body))
        files.append(path)
    try:
        for what in ("with files never seen", "with the same files", "with one file changed"):
            if what == "with one file changed":
                files[size // 2].write_text(files[size // 2].read_text() + "# a remark\n")
            took, memory = _served(home, root)
            yield f"| {what} | {size:,} | {took:.1f} s | {memory:.0f} MB | {os.getloadavg()[0]:.1f} |"
    finally:
        shutil.rmtree(home)


def _served(home: Path, root: Path) -> tuple[float, float]:
    """Seconds until a service is ready, and the megabytes it has then."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "GOVERNANCE_PORT": str(port),
        "GOVERNANCE_DATA_DIR": str(home / "data"),
        "GOVERNANCE_POLICIES_DIR": str(root),
        "GOVERNANCE_ADMIN_PASSWORD": "of the benchmark only",
    }
    begun = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "api.cli", "serve"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while True:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"http://127.0.0.1:{port}/health/ready", timeout=30).status_code == 200:
                    break
            if process.poll() is not None:
                raise RuntimeError(f"the service ended with {process.returncode}")
            time.sleep(0.02)
        took = time.monotonic() - begun
        pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
        return took, pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    finally:
        process.terminate()
        process.wait(60)


def commands(size: int) -> Iterator[str]:
    yield "| command | policies | seconds | of the processor | load |"
    yield "|---|---:|---:|---:|---:|"
    home = Path(tempfile.mkdtemp(prefix="governance-bench-"))
    (home / "policies").mkdir()
    for sample in Company(size).samples:
        tool = sample.tool or "some_tool"
        examples = [
            {"match": True, "toolName": tool, "inputPayload": sample.payload},
            {"match": False, "toolName": "another tool", "inputPayload": {}},
        ]
        head = {"apiVersion": "governance/v1", "kind": "Policy"}
        body = head | policy_as_json(sample.policy) | {"examples": examples}
        body.pop("version", None)
        (home / "policies" / f"{sample.policy.policy_id}.yaml").write_text(dump(body))
    try:
        for command in ("lint", "test"):
            before, begun = os.times(), time.monotonic()
            subprocess.run(
                [sys.executable, "-m", "api.cli", command, str(home)], stdout=subprocess.DEVNULL, check=False
            )
            took, after = time.monotonic() - begun, os.times()
            used = after.children_user + after.children_system - before.children_user - before.children_system
            yield f"| `{command}` | {size:,} | {took:.1f} | {used:.1f} | {os.getloadavg()[0]:.1f} |"
    finally:
        shutil.rmtree(home)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--only", choices=("reload", "starts", "commands"))
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    lines = ["# What admins wait for", "", *(__doc__ or "").strip().splitlines()[2:]]
    for name, rows in (
        ("reload", reload([100] if arguments.quick else [1_000, 20_000])),
        ("starts", starts(200 if arguments.quick else 100_000)),
        ("commands", commands(200 if arguments.quick else 10_000)),
    ):
        if arguments.only in (None, name):
            lines.append("")
            for row in rows:
                lines.append(row)
                print(row, flush=True)
    if arguments.write:
        RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
