"""The benchmarks of nodes in their short form: they run, and what they say is well formed."""

from __future__ import annotations

import os
import shutil
import threading
import time
from dataclasses import astuple

import psycopg
import pytest

from tests.bench import growth, scale
from tests.harness.database_proxy import DatabaseProxy
from tests.harness.postgres import Postgres

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _wrk() -> None:
    if shutil.which("wrk") is None:
        reason = "`wrk` makes the load and is not here; get it with: apt-get install wrk"
        if os.environ.get("CI_REQUIRE_ALL"):
            pytest.fail(reason)
        pytest.skip(reason)


def test_the_short_form_measures_every_cell() -> None:
    arguments = scale.arguments_of(["--short"])
    cells, single, events = scale.measure(arguments)
    assert [(cell.round_trip, cell.nodes) for cell in cells] == [(5, 1), (5, 2), (0, 1), (0, 2)]
    for cell in cells:
        assert all(number > 0 for number in astuple(cell)[1:5]), cell
        assert cell.p50 <= cell.p99 and cell.pausing_rate > 0
    # What is counted was recorded; the rest came in the warming up, and in the last moment.
    assert events >= sum(cell.rate + cell.pausing_rate for cell in cells) * arguments.seconds * 0.9
    text = scale.report(arguments, cells, single)
    assert all("nan" not in line and "inf" not in line for line in text.splitlines())


def test_the_report_has_a_line_for_each_round_trip() -> None:
    cells = [
        scale.Cell(trip, nodes, 1_000 * nodes * 0.9, 3.0, 9.0, 100, 50, 10, 900 * nodes * 0.9, 4.0)
        for trip in (10, 0.5)
        for nodes in (1, 2, 4)
    ]
    arguments = scale.arguments_of([])
    text = scale.report(arguments, cells, [scale.Alone(64, 5_000, 0.25, 4_500, 0.24)])
    assert "| 10 ms | 900 | 2.00 of it | 4.00 of it | 0.90 | 0.90 | 0.90 |" in text
    assert "| 0.5 ms | 4 | 3,600 | 3.0 | 9.0 | 3,240 | 4.0 | 100 | 50 | 10 |" in text
    assert "| 64 | 5,000 | 0.250 | 4,500 | 0.240 | 0.90 |" in text


def test_the_network_delays_and_holds_nobody_up(postgres: Postgres, postgres_url: str) -> None:
    with DatabaseProxy(postgres.socket) as network:
        connections = [psycopg.connect(network.url(postgres_url), autocommit=True) for _ in range(20)]
        network.round_trip(0.2)
        begun = time.monotonic()
        text = "x" * 300_000  # more than one packet
        threads = [
            threading.Thread(target=lambda each=each: each.execute("SELECT %s", (text,)))
            for each in connections
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.monotonic() - begun
        assert 0.2 <= took < 20 * 0.2
        for each in connections:
            each.close()


def test_the_network_can_be_cut(postgres: Postgres, postgres_url: str) -> None:
    with DatabaseProxy(postgres.socket) as network:
        address = network.url(postgres_url)
        for cut in (network.close_all, network.reset_all):
            with psycopg.connect(address, autocommit=True) as connection:
                cut()
                with pytest.raises(psycopg.OperationalError):
                    connection.execute("SELECT 1")
        network.refuse()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(address, connect_timeout=2)
        network.go()
        with psycopg.connect(address, autocommit=True) as connection:
            answers: list[object] = []
            thread = threading.Thread(target=lambda: answers.append(connection.execute("SELECT 1")))
            network.stall()
            thread.start()
            thread.join(0.3)
            assert thread.is_alive() and not answers
            network.go()
            thread.join(20)
            assert answers


def test_growth_is_told_in_bytes_an_event() -> None:
    arguments = growth.arguments_of(["--events", "2000", "--steps", "2", "--policies", "20"])
    found, retention = growth.measure(arguments)
    assert len(found) == 2 and found[-1].events >= 2_000
    for step in found:
        assert step.wal > 300 and step.rate > 0
        assert step.sizes["events"].table > 100 and step.sizes["events"].indexes > 0
    assert retention is not None and retention.events == found[-1].events
    text = growth.report(arguments, found, retention)
    assert "| events |" in text and "nan" not in text
