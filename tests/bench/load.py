"""Load by `wrk`: the same made-up calls against any server, and what came back in numbers.

Every request is a `tool.called` event of its own - random event id, one of 64 active runs - and its call is
one of a few hundred of the made-up company, of which about 30 % match a policy.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.bench.workload import Company

RUNS = 64
BODIES = 500
LOAD_CORE = "1"

_SCRIPT = """
local tails = {}
for line in io.lines("%(bodies)s") do tails[#tails + 1] = line end
local head = "POST %(path)s HTTP/1.1\\r\\nHost: bench\\r\\nContent-Type: application/json\\r\\n"
  .. "X-API-Key: %(key)s\\r\\nContent-Length: "
math.randomseed(%(seed)d)
local count, batch = 0, %(batch)d
local function event()
  count = count + 1
  local id = string.format("%%08x%%08x-%%x", math.random(0, 4294967295), math.random(0, 4294967295), count)
  local run = math.random(1, %(runs)d)
  return '{"eventId":"evt-' .. id .. '","runId":"run-%(seed)d-' .. run .. '","agentId":"agent-' .. run
    .. '","timestamp":"2026-01-31T09:30:00.125Z","eventType":"tool.called"'
    .. ',"metadata":{"toolCallId":"call-' .. id .. tails[math.random(1, #tails)]
end
function request()
  local body
  if batch == 1 then
    body = event()
  else
    local events = {}
    for index = 1, batch do events[index] = event() end
    body = '{"events":[' .. table.concat(events, ",") .. "]}"
  end
  return head .. #body .. "\\r\\n\\r\\n" .. body
end
"""

_REPEATED = """
local head = "POST %(path)s HTTP/1.1\\r\\nHost: bench\\r\\nContent-Type: application/json\\r\\n"
  .. "%(headers)sContent-Length: "
local requests = {}
for line in io.lines("%(bodies)s") do
  requests[#requests + 1] = head .. #line .. "\\r\\n\\r\\n" .. line
end
math.randomseed(%(seed)d)
function request()
  return requests[math.random(1, #requests)]
end
"""

_PAUSE = """
function delay()
  return math.random(0, %(pause)d)
end
"""

_DONE = """
function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '\\n{"requests":%d,"micros":%d,"p50":%d,"p99":%d,"refused":%d,"broken":%d}\\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), e.status,
    e.connect + e.read + e.write + e.timeout))
end
"""


class Missing(Exception):
    """A program is not there; the text says how to get it."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of the load. Times in microseconds; `refused` answers were not 2xx."""

    requests: int
    micros: int
    p50: int
    p99: int
    refused: int
    broken: int

    @property
    def rate(self) -> float:
        return self.requests * 1e6 / self.micros


def program() -> str:
    found = shutil.which("wrk")
    if found is None:
        raise Missing("`wrk` makes the load and is not here; get it with: apt-get install wrk")
    return found


def write_bodies(folder: Path, policies: int) -> Path:
    """The part of each event after its ids, a line each."""
    path = folder / f"bodies-{policies}"
    lines = []
    for call in Company(max(policies, 100)).calls(BODIES):
        rest = msgspec.json.encode({"toolName": call.tool_name, "inputPayload": call.input_payload})
        lines.append('",' + rest.decode()[1:] + "}")
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def run(
    folder: Path,
    port: int,
    key: str,
    bodies: Path,
    *,
    connections: int,
    seconds: float,
    seed: int,
    batch: int = 1,
    pause: int = 0,
    cores: str = LOAD_CORE,
) -> Measured:
    """Load one server with events for a while. The requests never repeat within a seed. Each agent waits
    between two of them for up to `pause` milliseconds."""
    path = "/v1/events" if batch == 1 else "/v1/events/batch"
    values = {"bodies": bodies, "key": key, "seed": seed, "runs": RUNS, "batch": batch, "path": path}
    text = _SCRIPT % values + (_PAUSE % {"pause": pause} if pause else "")
    return _drive(folder, port, text, connections, seconds, cores)


def repeat(
    folder: Path,
    port: int,
    path: str,
    headers: Mapping[str, str],
    bodies: Path,
    *,
    connections: int,
    seconds: float,
    seed: int,
) -> Measured:
    """Load one server with whole bodies, a line each, drawn again and again."""
    lines = "".join(f"{name}: {value}\\r\\n" for name, value in headers.items())
    values = {"bodies": bodies, "path": path, "headers": lines, "seed": seed}
    return _drive(folder, port, _REPEATED % values, connections, seconds)


def _drive(
    folder: Path, port: int, text: str, connections: int, seconds: float, cores: str = LOAD_CORE
) -> Measured:
    script = folder / f"load-{port}.lua"
    script.write_text(text + _DONE, encoding="utf-8")
    command = [program(), "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "20s", "-s", str(script)]
    if (os.cpu_count() or 1) > 1 and shutil.which("taskset"):
        command = ["taskset", "-c", cores, *command]
    done = subprocess.run(
        [*command, f"http://127.0.0.1:{port}"],
        check=True,
        capture_output=True,
        text=True,
        timeout=seconds + 60,
    )
    return Measured(**json.loads(done.stdout.strip().splitlines()[-1]))
