"""The rooms of alerts and of agents, and what the start page tells of both."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

from api.notifications.texts import compose
from tests.browser.support import POLICIES, Console, entered
from tests.browser.test_looks import readable
from tests.harness.application import write_files
from tests.harness.policy_bodies import on_tool
from tests.harness.running_service import Served
from tests.harness.watching import look

pytestmark = pytest.mark.browser

NO_WIRES = on_tool("No wires", "block", "wire")
STUBBORN = """
apiVersion: governance/v1
kind: Detector
detectorId: stubborn
name: Stubborn <b>agent</b>
message: Ask whoever runs it what it is after.
severity: high
on: tool.refused
windowSeconds: 600
threshold: 2
"""


@pytest.fixture
def console(browser: Browser, tmp_path: Path) -> Iterator[Console]:
    """With one detector."""
    with Served(tmp_path, [*POLICIES, NO_WIRES], live=True) as service, Console(service, browser) as console:
        write_files(service.settings.policies_dir, {"detectors/stubborn.yaml": STUBBORN})
        console.until(lambda: service.call("admin", "GET", "/v1/detectors/stubborn").status_code == 200)
        watch(console)  # what was before the first look raises nothing
        yield console


def refused_twice(console: Console, agent: str = "mailer") -> None:
    for number in range(2):
        metadata = {"toolCallId": f"call-{agent}-{number}", "toolName": "wire", "inputPayload": {"amount": 9}}
        answer = console.post("tool.called", metadata, run=f"run-of-{agent}", agent=agent)
        assert answer["toolCallStatus"] == "blocked"
    watch(console)


def watch(console: Console) -> None:
    # Playwright has an event loop on this thread.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, look(console.service)).result()


def test_the_link_of_a_notice_opens_its_alert(console: Console) -> None:
    refused_twice(console)
    refused_twice(console, "other")
    alerts = console.service.call("viewer", "GET", "/v1/alerts").json()
    alert = next(each for each in alerts if each["agentId"] == "mailer")
    told = {"event": "alert.raised", "timestamp": "2026-01-31T09:30:00Z", "data": alert}
    link = compose([json.dumps(told)], console.address).link
    assert link is not None
    console.service.call("reviewer", "POST", f"/v1/alerts/{alert['alertId']}/acknowledge", {})
    page = console.page()
    console.log_in(page, "admin", link.removeprefix(console.address))
    expect(page.get_by_role("heading", level=1)).to_contain_text("mailer")
    page.get_by_role("link", name="All alerts").click()
    expect(page.get_by_role("list", name="Alerts").get_by_role("listitem")).to_have_count(1)


def test_an_alert_is_read_and_acknowledged(console: Console) -> None:
    page = console.page()
    console.log_in(page, "admin", "/alerts")
    expect(page.get_by_text("Nothing unusual is known.")).to_be_visible()
    refused_twice(console)
    row = page.get_by_role("list", name="Alerts").get_by_role("listitem")
    expect(row).to_contain_text("2 refused calls of the agent “mailer” within 10 minutes")
    readable(page)
    page.get_by_label("Severity").select_option("low")
    expect(row).to_have_count(0)
    page.get_by_label("Severity").select_option("")
    row.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("2 refused calls")
    expect(page.get_by_text("Ask whoever runs it")).to_be_visible()
    expect(page.get_by_role("list", name="Evidence").get_by_role("link")).to_have_count(2)
    readable(page)
    page.get_by_role("button", name="Acknowledge…").click()
    dialog = page.get_by_role("dialog", name="Acknowledge the alert")
    dialog.get_by_label("What was found out").fill("a wrong prompt")
    dialog.get_by_role("button", name="Acknowledge").click()
    expect(page.locator(".known")).to_contain_text("a wrong prompt")
    expect(page.get_by_role("button", name="Acknowledge…")).to_have_count(0)
    page.get_by_role("list", name="Evidence").get_by_role("link").first.click()
    expect(page.get_by_role("heading", name="Record aud_")).to_be_focused()


def test_a_note_that_came_too_late_is_told(console: Console) -> None:
    refused_twice(console)
    (alert,) = console.service.call("viewer", "GET", "/v1/alerts").json()
    page = entered(console, f"/alerts/{alert['alertId']}", "admin")
    page.get_by_role("button", name="Acknowledge…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("What was found out").fill("the key is stolen")
    path = f"/v1/alerts/{alert['alertId']}/acknowledge"
    assert console.service.call("reviewer", "POST", path, {}).status_code == 200
    dialog.get_by_role("button", name="Acknowledge").click()
    expect(page.get_by_role("log")).to_contain_text("Not kept, since rita@acme.example has acknowledged it")


def test_a_viewer_reads_alerts_and_cannot_acknowledge(console: Console) -> None:
    refused_twice(console)
    page = entered(console, "/alerts", "viewer")
    page.get_by_role("list", name="Alerts").get_by_role("link").click()
    expect(page.get_by_role("list", name="Evidence").get_by_role("listitem")).to_have_count(2)
    expect(page.get_by_role("list", name="Evidence").get_by_role("link")).to_have_count(0)
    expect(page.get_by_role("button", name="Acknowledge")).to_have_count(0)


@pytest.mark.parametrize("name", [" clerk ", "cle\nrk", "clerk\u200b"])
def test_the_agent_whose_page_it_is_is_halted_and_no_other(console: Console, name: str) -> None:
    """An agent chooses its name, such as one that reads like another's."""
    console.hold(agent="clerk", run="run-1")
    console.hold(agent=name, run="run-2")
    watch(console)
    page = entered(console, "/agents", "admin")
    page.locator(f'a[href="/agents/{quote(name, safe="")}"]').click()
    page.get_by_role("button", name="Halt this agent…").click()
    page.get_by_role("dialog", name="Halt").get_by_role("button", name="Halt now").click()
    expect(page.get_by_role("log")).to_contain_text("Halted: ")
    expect(page.get_by_role("log")).not_to_contain_text("No run")
    (halt,) = console.service.call("admin", "GET", "/v1/halts").json()
    assert halt["agentId"] == name


def test_an_agent_is_found_read_and_halted(console: Console) -> None:
    console.hold(agent="clerk")
    refused_twice(console)
    page = entered(console, "/agents", "admin")
    agents = page.get_by_role("list", name="Agents").get_by_role("listitem")
    expect(agents).to_have_count(2)
    readable(page)
    page.get_by_label("Search").fill("MAIL")
    expect(agents).to_have_count(1)
    expect(agents).to_contain_text("2 calls, 2 blocked, 0 held")
    expect(agents).to_contain_text("1 alert")
    agents.get_by_role("link").click()
    expect(page.get_by_role("heading", name="Agent mailer")).to_be_focused()
    expect(page.get_by_role("region", name="Tools")).to_contain_text("wire")
    expect(page.get_by_role("list", name="Runs").get_by_role("link")).to_contain_text("run-of-mailer")
    expect(page.get_by_role("list", name="Alerts").get_by_role("link")).to_contain_text("2 refused calls")
    readable(page)
    page.get_by_role("button", name="Halt this agent…").click()
    dialog = page.get_by_role("dialog", name="Halt")
    expect(dialog.get_by_label("Which agent")).to_have_value("mailer")
    dialog.get_by_label("Why").fill("it does not listen")
    dialog.get_by_role("button", name="Halt now").click()
    expect(page.locator(".missing")).to_contain_text("it does not listen")
    page.get_by_role("main").get_by_role("button", name="Resume…").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume", exact=True).click()
    expect(page.get_by_role("button", name="Halt this agent…")).to_be_visible()


def test_a_busy_agent_does_not_take_the_button_that_halts_it_away(console: Console) -> None:
    refused_twice(console)
    page = entered(console, "/agents/mailer", "admin")
    halt = page.get_by_role("button", name="Halt this agent…")
    halt.focus()
    console.hold(agent="mailer", run="run-of-mailer")
    watch(console)
    expect(page.locator(".known")).to_contain_text("3: 0 allowed, 2 blocked, 1 held")
    expect(halt).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Halt").get_by_label("Which agent")).to_have_value("mailer")


def test_the_start_page_tells_of_new_agents_and_open_alerts(console: Console) -> None:
    refused_twice(console)
    page = entered(console, "/", "viewer")
    expect(page.get_by_role("list", name="What is unusual").get_by_role("link")).to_contain_text("mailer")
    agents = page.get_by_role("list", name="New agents").get_by_role("link")
    expect(agents).to_contain_text("mailer")
    readable(page)
    agents.click()
    expect(page.get_by_role("heading", name="Agent mailer")).to_be_focused()
    expect(page.get_by_role("button", name="Halt this agent…")).to_have_count(0)
