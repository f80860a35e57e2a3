"""Plays the server of a recorded session: `python mcp_recorded_server.py RECORDING SEEN`.

A recording has one object a line: `{"from": "client" | "server", "line": "..."}`. After each line of the
client it says what the recording says next; every line that it gets is written to SEEN as it came.
"""

import json
import sys
from pathlib import Path

recording = [json.loads(line) for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()]
with Path(sys.argv[2]).open("wb") as seen:
    while recording:
        entry = recording.pop(0)
        if entry["from"] == "server":
            sys.stdout.buffer.write(entry["line"].encode() + b"\n")
            sys.stdout.buffer.flush()
        else:
            seen.write(sys.stdin.buffer.readline())
            seen.flush()
    seen.write(sys.stdin.buffer.read())
