"""Nodes that drop audit records: one is killed at it, others go on, and the log proves all the same."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from api.audit.installation_key import InstallationKey
from api.audit.verification import Expectation, verify
from api.database.connection import Database
from api.database.partitions.catalog import RECORDS, partitions
from api.database.partitions.upkeep import Partitions, midnight
from tests.harness.application import PASSWORD, Clock, Service
from tests.harness.dropping import DAY, signed
from tests.harness.nodes import Node, nodes, wait_for
from tests.harness.partitions import divide_records_since
from tests.harness.postgres import Postgres
from tests.harness.watching import look

OLD = 1_200
"""Decisions whose records go, in three batches."""
KEY = "agk_of_the_agent"
DAYS = {"GOVERNANCE_EVENT_DAYS": "30", "GOVERNANCE_AUDIT_DAYS": "30"}
_LEFT = "SELECT COUNT(*) FROM audit WHERE at < ?"
_CERTIFICATES = "SELECT DISTINCT number FROM audit_carried"


def filled(folder: Path, url: str) -> Expectation:
    """Records of 40 days ago, and of every half a day since yesterday, as where somebody was always there."""

    async def fill() -> Expectation:
        async with Service(folder, database=url) as service:
            service.clock.advance(time.time() - 40 * DAY - Clock.START)
            for first in range(0, OLD, 100):
                await asyncio.gather(*(_called(service, n) for n in range(first, first + 100)))
            await signed(service)
            noted = await service.context.store.read(verify, service.context.store, "default")
            service.clock.advance(38.5 * DAY)
            for number in range(OLD, OLD + 3):
                service.clock.advance(DAY / 2 - 60)
                await _called(service, number)
            await signed(service)
            await look(service)
            return Expectation(noted["count"], noted["lastHash"])

    return asyncio.run(fill())


async def _called(service: Service, number: int) -> None:
    fields = {"toolCallId": f"old-{number}", "toolName": "look", "inputPayload": {}}
    answer = await service.report("agent", f"old-{number}", "tool.called", **fields)
    assert answer.status_code == 200, answer.text


def admin(node: Node) -> dict[str, str]:
    """The header of one of the people that a service of tests has."""
    answer = node.http.post("/auth/login", json={"email": "admin@acme.example", "password": PASSWORD})
    assert answer.status_code == 200, answer.text
    return {"Authorization": f"Bearer {answer.json()['accessToken']}"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "together"), [("sqlite", 1), pytest.param("postgresql", 4, marks=pytest.mark.postgres)]
)
def test_a_node_is_killed_while_it_drops_and_others_go_on(
    tmp_path: Path, request: pytest.FixtureRequest, engine: str, together: int
) -> None:
    if engine == "sqlite":
        url = f"sqlite:///{tmp_path / 'governance.sqlite'}"
    else:
        postgres: Postgres = request.getfixturevalue("postgres")
        url = postgres.create(postgres.migrated)
        with closing(Database(url)) as store:  # the old records have a partition of their own
            divide_records_since(store, midnight(time.time(), -45))
            Partitions(store, 30, RECORDS).prepare(time.time() - 40 * DAY)
    noted = filled(tmp_path, url)
    (tmp_path / "data" / "audit-key").rename(tmp_path / "audit-key")
    key = InstallationKey(bytes.fromhex((tmp_path / "audit-key").read_text())).public
    old = str(time.strftime("%Y-%m-%d", time.gmtime(time.time() - 35 * DAY)))
    with closing(Database(url)) as store:

        def proved() -> None:
            found = store.read_here(lambda: verify(store, "default", (key,), noted))
            assert found["problems"] == []

        def left() -> int:
            return int(store.read_here(store.rows, _LEFT, (old,))[0][0])

        proved()
        store.rows_changed("DELETE FROM counters WHERE name LIKE ?", ("kept.%",))  # or they count a day later
        with nodes(tmp_path, url, 1, **DAYS) as (node,):
            wait_for(lambda: bool(store.read_here(store.rows, _CERTIFICATES)), node)
            node.kill()
        proved()
        with nodes(tmp_path, url, together, **DAYS) as several:
            with ThreadPoolExecutor(4) as pool:
                calls = [(several[n % together], f"new-{n}", f"new-{n % 4}") for n in range(40)]
                answers = list(pool.map(lambda each: each[0].call(each[1], key=KEY, run=each[2]), calls))
            assert {answer.status_code for answer in answers} == {200}
            wait_for(lambda: not left(), several[0])
            for node in several:
                found = node.http.get("/v1/audit/verify", headers=admin(node)).json()
                assert found["valid"] and found["dropped"]["records"] >= OLD, found
                assert "Traceback" not in node.log
        proved()
        assert len(store.read_here(store.rows, _CERTIFICATES)) == 1
        if engine == "postgresql":
            assert min(each.span.until for each in partitions(store, RECORDS)) > old
    if engine == "postgresql":
        postgres.drop(url)
