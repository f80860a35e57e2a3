"""A service that cannot open a file any more, as when its descriptors are used up."""

from __future__ import annotations

import resource
from pathlib import Path

from tests.harness.application import write_policies
from tests.harness.nodes import KEY, Anew, called, serve

DROPS = {
    "name": "No drops",
    "action": "block",
    "matchConditions": [{"expression": 'derived.sql.exists(each, each.verb == "drop")'}],
}


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
