"""Fixtures that several test modules use, and what a service of a test need not wait for.

What tests write is kept in memory where there is room for it: no test can tell a disk from it, since a killed
process loses no page of either, but each fsync of a database or policy file costs milliseconds on a disk.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from api import readiness
from api.audit import checkpointer
from api.database import change_hints
from tests.harness.postgres import database_url, postgres, postgres_url

__all__ = ["database_url", "postgres", "postgres_url"]

MEMORY = Path("/dev/shm")
ROOM = 4 << 30

if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
    os.environ["TMPDIR"] = str(MEMORY)
    tempfile.tempdir = None

change_hints.IDLE_SECONDS = 0.02
"""A service that stops waits for this, and tests stop hundreds of them."""

readiness.EVERY_SECONDS = 3600.0  # type: ignore[misc]
"""A probe in between would be one of the statements that tests count; `faults/test_readiness.py` wants it."""

checkpointer.EVERY_SECONDS = 3600.0  # type: ignore[misc]
"""The same of signing the audit log; `api/audit` and `system` want it."""
