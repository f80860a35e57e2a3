"""The health room: the last hour as plots and as tables, and the nodes."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from api.health.heartbeat import Heartbeat
from api.health.history import Point, slot_of
from api.metrics import LATENCY_BOUNDS
from tests.browser.support import POLICIES, Console, entered
from tests.browser.test_looks import readable
from tests.harness.running_service import Served

pytestmark = pytest.mark.browser

QUICK = (90, 0, 0, 0, 10, *(0,) * (len(LATENCY_BOUNDS) - 4))


def hour(console: Console) -> None:
    """Thirty minutes of calls, and a gap."""
    heartbeat = console.service.context.heartbeat
    now = slot_of(console.service.clock())
    slots = [slot for slot in range(now - 120, now + 1) if slot % 20]
    points = [
        Point(slot, allowed=60, blocked=15, awaiting_approval=0, events=90, latency=QUICK, writer=2,
              webhooks=3, notifications=0, approvals=7)
        for slot in slots
    ]  # fmt: skip
    heartbeat.history.add(heartbeat.node_id, points, now)


def second_node(console: Console) -> None:
    context = console.service.context

    async def beat() -> None:
        other = Heartbeat(context.store, context.writer, context.live, console.service.clock)
        await other.beat()

    # Playwright has an event loop on this thread.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, beat()).result()


def test_the_last_hour_is_drawn_and_told(console: Console) -> None:
    hour(console)
    page = console.page()
    console.log_in(page, "viewer", "/status")
    calls = page.get_by_role("figure").filter(has_text="Events a second")
    expect(calls.get_by_role("img")).to_be_visible()
    lines = calls.locator("path").evaluate_all("(all) => all.map((each) => each.getAttribute('d'))")
    assert len(lines) == 4 and all(line.count("M") > 3 and line.count("L") > 50 for line in lines)
    calls.get_by_text("As a table").click()
    table = calls.get_by_role("table")
    expect(table.get_by_role("columnheader")).to_have_text(
        ["Until", "allowed", "blocked", "held", "all events"]
    )
    expect(table.get_by_role("row").nth(2).get_by_role("cell")).to_have_text(["4", "1", "0", "6"])
    waiting = page.get_by_role("figure").filter(has_text="Approvals that wait")
    expect(waiting.get_by_role("img", name="Approvals that wait for a person")).to_be_visible()
    readable(page)


def test_every_node_is_listed(console: Console) -> None:
    second_node(console)
    page = entered(console, "/status", "reviewer")
    nodes = page.get_by_role("region", name="Nodes").get_by_role("row")
    expect(nodes).to_have_count(3)  # with the heading
    expect(nodes.filter(has_text="this one")).to_have_count(1)
    expect(nodes.filter(has_text="serving")).to_have_count(2)
    console.service.clock.advance(90)
    page.reload()
    expect(nodes.filter(has_text="silent")).to_have_count(2)


def test_people_of_another_organisation_see_no_nodes(console: Console) -> None:
    console.expect_trouble("Failed to load resource")
    email = str(console.service.user("admin", organisation="other")["email"])
    page = console.page()
    page.goto("/status")
    console.fill_login(page, email)
    expect(page.get_by_text("The service decides and records.")).to_be_visible()
    expect(page.get_by_role("heading", name="Nodes")).to_be_hidden()


def test_how_many_policies_wait_for_a_setting_is_said_in_words(browser: Browser, tmp_path: Path) -> None:
    with Served(tmp_path, POLICIES, live=True) as service, Console(service, browser) as console:

        def needing(name: str) -> None:
            field = {"field": "inputPayload.to", "operator": "matches", "value": "@{{companyDomains}}$"}
            body = {"name": name, "action": "block", "enabled": True, "matchConditions": [field]}
            service.answered("admin", "POST", "/v1/policies", body, status=201)

        needing("One")
        page = console.page()
        console.log_in(page, "admin", "/overview")
        expect(page.get_by_text("A policy waits for a setting")).to_be_visible()
        needing("Another")
        page.reload()
        expect(page.get_by_text("2 policies wait for a setting")).to_be_visible()
