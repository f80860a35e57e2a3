"""gcc, for the few parts of tests that are programs in C."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def compile_c(source: Path, target: Path, *options: str) -> None:
    """Skips the test where there is no compiler, or fails where nothing may be skipped."""
    if shutil.which("gcc") is None:
        reason = f"gcc builds {source.name} and is not here; get it with: apt-get install gcc libc6-dev"
        if os.environ.get("CI_REQUIRE_ALL"):
            pytest.fail(reason)
        pytest.skip(reason)
    command = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(target), str(source), *options]
    subprocess.run(command, check=True, timeout=60)
