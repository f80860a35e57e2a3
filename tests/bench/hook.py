"""What a hook costs beside a bare Python process that makes one HTTP request: `python -m tests.bench.hook`.

Both are started anew each time, in turn, against one service; the ratio of their medians must stay below 1.5.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from api.hosts import hook
from tests.harness.running_service import Served

ROUNDS: Final = 40
MOST: Final = 1.5
BARE: Final = """
import http.client, os, sys
link = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
headers = {"Content-Type": "application/json", "X-API-Key": os.environ["GOVERNANCE_API_KEY"]}
link.request("POST", "/v1/hooks/claude-code", sys.stdin.buffer.read(), headers)
sys.stdout.buffer.write(link.getresponse().read())
"""
CALL: Final = {"session_id": "s", "hook_event_name": "PreToolUse", "tool_name": "look", "tool_input": {}}


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, Served(Path(folder)) as service:
        ways = {
            "a bare process": [sys.executable, "-c", BARE, str(service.port)],
            "the hook, as installed": [sys.executable, "-I", "-S", hook.__file__, "claude-code"],
            "`governance hook`": [str(Path(sys.executable).with_name("governance")), "hook", "claude-code"],
        }
        environment = {
            "PATH": os.environ["PATH"],
            "GOVERNANCE_API_KEY": service.api_key,
            "GOVERNANCE_URL": f"http://127.0.0.1:{service.port}",
            "XDG_STATE_HOME": folder,
        }
        took: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, words in ways.items():
                began = time.perf_counter()
                done = subprocess.run(
                    words, input=json.dumps(CALL).encode(), env=environment, capture_output=True, check=True
                )
                took[name].append(time.perf_counter() - began)
                assert json.loads(done.stdout) == {}, done.stdout
    bare = statistics.median(took["a bare process"])
    worst = 0.0
    for name, times in took.items():
        ratio = statistics.median(times) / bare
        worst = max(worst, ratio)
        print(f"{name:24} {statistics.median(times) * 1_000:6.1f} ms  {ratio:.2f}")
    return 0 if worst <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
