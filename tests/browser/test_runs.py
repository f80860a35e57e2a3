"""The runs room: a list that goes on by itself, and the timeline of one run, for every role."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from api.store import runs as stored_runs
from tests.browser.support import Console, entered

pytestmark = pytest.mark.browser

SOON = 10_000
MARKUP = "<img src=x onerror=alert(1)>\u202e"


def test_a_viewer_sees_what_agents_do_as_they_do_it(console: Console) -> None:
    console.post("run.started", {"task": "Pay the invoices"}, run="run-1", agent="clerk")
    page = entered(console, "/runs")
    runs = page.get_by_role("list", name="Runs").get_by_role("listitem")
    expect(runs).to_have_count(1)
    expect(runs.first).to_contain_text("Pay the invoices")
    expect(page.locator(".live")).to_have_text("Live")
    console.hold(agent="newcomer")
    expect(runs).to_have_count(2, timeout=SOON)
    expect(runs.first).to_contain_text("1 waiting")
    page.get_by_label("Agent").fill("clerk")
    expect(runs).to_have_count(1)
    assert page.url.endswith("/runs?agentId=clerk")
    runs.first.get_by_role("link").click()
    expect(page.get_by_role("heading", name="Run run-1")).to_be_focused()
    expect(page.get_by_role("navigation")).not_to_contain_text("Approvals")
    page.go_back()
    expect(page.get_by_label("Agent")).to_have_value("clerk")


def test_what_is_too_large_to_be_shown_is_not_said_to_be_gone(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that fills its run would have what it does next look like a call whose time was over."""
    monkeypatch.setattr(stored_runs, "MOST_PAYLOAD_BYTES", 100_000)
    for number, text in enumerate(("x" * 100_000, "all of it")):
        call = {"toolCallId": f"c-{number}", "toolName": "look", "inputPayload": {"text": text}}
        console.post("tool.called", call, run="run-1", agent="clerk")
        done = {"toolCallId": f"c-{number}", "outputPayload": {}}
        console.post("tool.completed", done, run="run-1", agent="clerk")
    page = entered(console, "/runs/run-1")
    last = page.get_by_role("list", name="Tool calls").get_by_role("listitem").last
    last.get_by_text("Details").click()
    expect(last).to_contain_text("Too large to be shown here")
    expect(page.locator(".missing")).not_to_contain_text("no output")


def test_the_timeline_of_a_run(console: Console) -> None:
    console.hold("payments.send", {"amount": 1}, agent="clerk", run="run-1")
    call = {"toolCallId": "look-1", "toolName": "look", "inputPayload": {"number": 9007199254740991}}
    console.post("tool.called", call, run="run-1", agent="clerk")
    page = entered(console, "/runs/run-1", "reviewer")
    calls = page.get_by_role("list", name="Tool calls").get_by_role("listitem")
    expect(calls).to_have_count(2)
    expect(page.locator(".missing")).to_contain_text("no task")
    expect(calls.first).to_contain_text("Waiting")
    expect(calls.last).to_contain_text("not reported yet")
    calls.last.get_by_text("Details").click()
    expect(calls.last.locator(".payload")).to_contain_text("9007199254740991")
    output = {"toolCallId": "look-1", "outputPayload": {"found": "it"}}
    console.post("tool.completed", output, run="run-1", agent="clerk")
    expect(calls.last).to_contain_text("done", timeout=SOON)
    expect(calls.last.get_by_role("region", name="What came of it")).to_contain_text('"it"')
    calls.first.get_by_text("Details").click()
    calls.first.get_by_role("link", name="Its approval").click()
    expect(page.locator("#subject")).to_have_text("Pay 1")


def test_what_agents_say_stays_text(console: Console) -> None:
    console.post("run.started", {"task": MARKUP}, run=MARKUP, agent=MARKUP)
    console.hold(MARKUP, {"hold": MARKUP}, run=MARKUP, agent=MARKUP, reason=MARKUP)
    page = entered(console, "/runs")
    page.get_by_role("list", name="Runs").get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("<img src=x")
    expect(page.get_by_role("heading", level=1)).to_contain_text("U+202E")
    page.locator(".call summary").click()
    shown = json.loads(str(page.locator(".payload .json").first.text_content()))
    assert shown == {"hold": MARKUP}


def test_a_run_that_is_not_here_is_told(console: Console) -> None:
    console.expect_trouble("Failed to load resource")
    page = entered(console, "/runs/nowhere")
    expect(page.locator(".one")).to_contain_text("There is no such run")
