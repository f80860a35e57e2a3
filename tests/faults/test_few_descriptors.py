"""A service that cannot open a file any more, as when its descriptors are used up."""

from __future__ import annotations

import resource
import socket
from contextlib import ExitStack
from pathlib import Path

import httpx

from api.cli.commands.serve import FEWEST_FILES
from tests.harness.application import write_policies
from tests.harness.nodes import KEY, Anew, called, serve
from tests.harness.policy_bodies import policy_body

DROPS = policy_body("No drops", "block", {"expression": 'derived.sql.exists(each, each.verb == "drop")'})


def test_calls_are_decided_with_what_was_loaded_at_the_start(tmp_path: Path) -> None:
    write_policies(tmp_path / "policies.d", [DROPS])
    with serve(tmp_path, kind=Anew, GOVERNANCE_API_KEY=KEY) as process:
        http, agent = process.ready().http, {"X-API-Key": KEY}
        assert http.post("/v1/events", headers=agent, json=called(0)).status_code == 200
        before = resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE, (3, before[1]))
        for number, query in enumerate(["drop table a", "drop table `a`", "drop table [a]"], 1):
            answer = http.post("/v1/events", headers=agent, json=called(number, "execute_sql", query=query))
            assert (answer.status_code, answer.json().get("toolCallStatus")) == (200, "blocked"), answer.text
        wrong = http.post("/access/v1/evaluation", headers=agent, json={"subject": 1})
        assert wrong.status_code == 400, wrong.text
        resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE, before)
        assert "Traceback" not in process.errors


def test_idle_connections_keep_nobody_out_with_the_fewest_files(tmp_path: Path) -> None:
    write_policies(tmp_path / "policies.d", [DROPS])
    with serve(tmp_path, kind=Anew, GOVERNANCE_API_KEY=KEY) as process, ExitStack() as idle:
        http = process.ready().http
        before = resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE, (FEWEST_FILES, before[1]))
        place = (http.base_url.host, http.base_url.port or 0)
        for _ in range(2 * FEWEST_FILES):
            idle.enter_context(socket.create_connection(place))
        for number in range(5):
            answer = httpx.post(
                http.base_url.join("/v1/events"), headers={"X-API-Key": KEY}, json=called(number, "x")
            )
            assert answer.json()["toolCallStatus"] == "allowed"
