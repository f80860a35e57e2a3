"""The service as one starts it: `governance serve` in a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from tests.harness.places import ROOT
from tests.harness.running_service import write_policy

CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("GOVERNANCE_")}


class Served:
    """A service of its own, as one starts it."""

    def __init__(self, folder: Path, *words: str, **environment: str) -> None:
        write_policy(folder / "policies.d")
        self.output = (folder / "output").open("w+")
        self.errors = (folder / "errors").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "api.cli", "serve", "--port", "0", *words],
            cwd=folder,
            env={**CLEAN, "PYTHONPATH": str(ROOT)}
            | {f"GOVERNANCE_{name}": value for name, value in environment.items()},
            stdout=self.output,
            stderr=self.errors,
        )

    def said(self, file: Any) -> str:
        file.flush()
        return Path(file.name).read_text()

    def url(self) -> str:
        """Where it serves, once it answers."""
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline and self.process.poll() is None:
            found = re.search(r"service +(\S+)", self.said(self.output))
            with contextlib.suppress(httpx.HTTPError):
                if found and httpx.get(found[1] + "/health/ready", trust_env=False).status_code == 200:
                    return found[1]
            time.sleep(0.05)
        raise AssertionError(self.said(self.output) + self.said(self.errors))

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(30)


@contextlib.contextmanager
def served(folder: Path, *words: str, **environment: str) -> Iterator[Served]:
    service = Served(folder, *words, **environment)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.process.kill()
            service.process.wait()
        service.output.close()
        service.errors.close()


def secret(text: str, name: str) -> str:
    found = re.search(rf"^ +{name} +(\S+)$", text, re.MULTILINE)
    assert found, text
    return found[1]
