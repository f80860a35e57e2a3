"""Where a machine gives a process too few threads or too little memory, it says that instead of a fault."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import argon2
import pytest

from api.cli.scarcity import MEMORY, TASKS, scarcity
from tests.harness.nodes import CLEAN

SERVES = """
import threading
from api.cli import command_line

def start(self):
    raise {}

threading.Thread.start = start
raise SystemExit(command_line.run(["serve", "--port", "0", "--data-dir", "data"]))
"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("can't start new thread"), TASKS),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), TASKS),
        (MemoryError(), MEMORY),
        (argon2.exceptions.HashingError("Memory allocation error"), MEMORY),
        (ImportError("libstdc++.so.6: failed to map segment from shared object"), MEMORY),
        (RuntimeError("something else"), None),
        (ImportError("No module named `x`"), None),
    ],
)
def test_what_python_raises_is_put_in_words(error: Exception, said: str | None) -> None:
    assert scarcity(error) == said


@pytest.mark.parametrize(
    ("error", "said"), [('RuntimeError("can\'t start new thread")', TASKS), ("MemoryError", MEMORY)]
)
def test_a_start_without_enough_is_refused_in_words(tmp_path: Path, error: str, said: str) -> None:
    (tmp_path / "policies.d").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", SERVES.format(error)],
        cwd=tmp_path,
        env=CLEAN,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == f"governance: refused to start: {said}"
    assert "Traceback" not in done.stderr
