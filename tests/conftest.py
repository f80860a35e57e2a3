"""Fixtures that several test modules use, and what a service of a test need not wait for.

What tests write is kept in memory where there is room for it: no test can tell a disk from it, since a killed
process loses no page of either, but each fsync of a database or policy file costs milliseconds on a disk.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

from api.alerts import worker
from api.audit import checkpointer
from api.database import change_hints
from api.health import heartbeat, readiness
from tests.harness import cheap_passwords
from tests.harness.cheap_passwords import dear_passwords
from tests.harness.postgres import database_url, postgres, postgres_url, store

__all__ = ["database_url", "dear_passwords", "postgres", "postgres_url", "store"]

MEMORY = Path("/dev/shm")
ROOM = 4 << 30

if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
    os.environ["TMPDIR"] = str(MEMORY)
    tempfile.tempdir = None

gc.disable()  # until all is collected: what is loaded stays
cheap_passwords.use()
settings.register_profile("unhurried", deadline=None)  # a machine that is shared is slow at times
settings.load_profile("unhurried")

change_hints.IDLE_SECONDS = 0.02
"""A service that stops waits for this, and tests stop hundreds of them."""

readiness.EVERY_SECONDS = 3600.0  # type: ignore[misc]
"""A probe in between would be one of the statements that tests count; `faults/test_readiness.py` wants it."""

heartbeat.EVERY_SECONDS = 3600  # type: ignore[misc]
"""The same of what nodes tell of themselves, beside what they tell as they start."""

checkpointer.EVERY_SECONDS = 3600.0  # type: ignore[misc]
"""The same of signing the audit log; `api/audit` and `system` want it."""

worker.EVERY_SECONDS = 3600.0  # type: ignore[misc]
"""The same of the detectors; `harness/watching.py` has them look at once."""


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine runs in a loop of its own."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    asyncio.run(test(**{name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}))
    return True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The slow ones begin first: at the end, a long one would keep one worker busy while the others rest.
    Each worker gets one part of the whole row, so each begins with slow ones, those of a file together."""
    workers: int = getattr(config, "workerinput", {"workercount": 1})["workercount"]
    slow: dict[Path, list[pytest.Item]] = {}
    quick: list[pytest.Item] = []
    for item in items:
        (slow.setdefault(item.path, []) if item.get_closest_marker("slow") else quick).append(item)
    files = list(slow.values())
    share = -(-len(items) // workers)
    items.clear()
    for part in range(workers):
        first = [item for file in files[part::workers] for item in file]
        rest = max(0, share - len(first)) if part < workers - 1 else len(quick)
        items += first + quick[:rest]
        del quick[:rest]


def pytest_collection_finish() -> None:
    """What was loaded stays, and the collector need not walk through it again and again (the service does the
    same, `api/cli/serving/server_process.py`): a third of what tests with a service in their process cost."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
