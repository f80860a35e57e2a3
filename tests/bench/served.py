"""Server processes for the benchmarks: the service as people start it and the yardstick, each on one core."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from engine.documents.policy import policy_as_json
from tests.bench.workload import Company
from tests.harness.nodes import descendants, free_port
from tests.harness.places import ROOT

KEY = "agk_of_the_benchmark_only_0123456789"
SERVER_CORE = "0"
_TICK = os.sysconf("SC_CLK_TCK")


def write_policies(folder: Path, count: int) -> Path:
    """A policies folder of the made-up company; with 0 it holds one that is switched off."""
    place = folder / f"policies-{count}"
    target = place / "policies"
    target.mkdir(parents=True, exist_ok=True)
    for policy in Company(max(count, 1)).policies:
        body = policy_as_json(policy)
        for owned in ("version", "createdAt", "updatedAt"):
            body.pop(owned, None)
        if not count:
            body["enabled"] = False
        document = {"apiVersion": "governance/v1", "kind": "Policy", **body}
        (target / f"{policy.policy_id}.yaml").write_text(json.dumps(document, indent=1), encoding="utf-8")
    return place


class Server:
    """One server, alone in its process group; with workers it is several processes."""

    def __init__(self, command: Sequence[str], port: int, environment: Mapping[str, str], cores: str) -> None:
        self.port = port
        if shutil.which("taskset") and (os.cpu_count() or 1) > 1:
            command = ["taskset", "-c", cores, *command]
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **environment},
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )

    def wait(self, path: str, seconds: float = 300) -> Server:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5):
                    return self
            except OSError:
                time.sleep(0.1)
        self.stop()
        raise RuntimeError("the server did not start:\n" + self.output())

    def output(self) -> str:
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def processes(self) -> list[int]:
        """The process and all below it."""
        return [self.process.pid, *descendants(self.process.pid)]

    def cpu(self) -> float:
        """Seconds of CPU time used so far by all its processes."""
        ticks = 0
        for pid in self.processes():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / _TICK

    def memory(self) -> int:
        """Resident bytes of all its processes together."""
        kilobytes = 0
        for pid in self.processes():
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    kilobytes += int(line.split()[1])
        return kilobytes * 1024

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        # A program that only starts another one may have left it behind.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


def yardstick(cores: str = SERVER_CORE) -> Server:
    port = free_port()
    command = [
        *(sys.executable, "-m", "uvicorn", "tests.bench.yardstick:application", "--port", str(port)),
        *("--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "warning"),
    ]
    return Server(command, port, {}, cores).wait("/")


def service(
    folder: Path,
    policies: Path,
    *,
    database: str = "",
    workers: int = 1,
    cores: str = SERVER_CORE,
    secrets: Path | None = None,
    **told: str,
) -> Server:
    """`governance serve` over `policies`, with its data below `folder`, and what it is `told` beside.
    Nodes share the folder `secrets`."""
    port = free_port()
    environment = {
        "GOVERNANCE_PORT": str(port),
        "GOVERNANCE_DATA_DIR": str(folder),
        "GOVERNANCE_POLICIES_DIR": str(policies),
        "GOVERNANCE_DATABASE_URL": database,
        "GOVERNANCE_API_KEY": KEY,
        "GOVERNANCE_WORKERS": str(workers),
        "GOVERNANCE_ADMIN_PASSWORD": "of the benchmark only",
        # One key sends all of the load.
        "GOVERNANCE_KEY_EVENTS_PER_MINUTE": "0",
        "GOVERNANCE_KEY_PENDING_APPROVALS": "0",
        **told,
    }
    if secrets is not None:
        environment["GOVERNANCE_JWT_SECRET"] = "the secret of a benchmark that signs nothing of worth"
        environment["GOVERNANCE_AUDIT_KEY_FILE"] = str(secrets / "audit-key")
    command = [sys.executable, "-m", "api.cli", "serve"]
    return Server(command, port, environment, cores).wait("/health/ready")
