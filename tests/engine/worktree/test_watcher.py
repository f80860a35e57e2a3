"""The listener to the policies folder, where the system cannot be asked what has changed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from engine.worktree.watcher import Watcher


def test_a_folder_whose_name_is_no_utf_8_is_only_looked_at(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = Path(os.fsdecode(bytes(tmp_path) + b"/l\xe9"))
    root.mkdir()
    watcher = Watcher(root, time.monotonic)
    watcher.start()
    try:
        assert watcher.settled(5) == {""}
        assert "cannot be watched, only looked at now and then" in caplog.text
        assert watcher._thread.is_alive()
    finally:
        watcher.stop()
        watcher.join()
