"""The page keeps up: with new requests, with other reviewers, and with a service that comes and goes."""

from __future__ import annotations

import re
import time

import pytest
from playwright.sync_api import Page, expect

from tests.browser.support import LATELY, Console, decide, line_to, link, row

pytestmark = pytest.mark.browser

REFUSED = "Failed to load resource"
SOON = 10_000
"""Milliseconds; sooner than the page asks by itself while it is live, so only the stream can have told it."""

PLACE = """async (node) => {
  for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
  return node.getBoundingClientRect().top;
}"""
"""Pixels from the top of the window, once the rows that have come into view have their real height."""


def live(page: Page) -> None:
    expect(page.locator(".live")).to_have_text("Live")
    page.wait_for_timeout(300)  # what is loaded after the stream has opened is in


def test_new_requests_appear_at_once_and_disturb_nothing(console: Console) -> None:
    console.hold(agent="first")
    page = console.reviewer()
    live(page)
    page.get_by_label("Reason").fill("half a sent")
    page.get_by_label("Reason").focus()
    console.hold("brief", agent="newcomer")
    expect(row(page, "newcomer")).to_be_visible(timeout=SOON)
    expect(page).to_have_title("(2) Approvals · Agent Governance")
    expect(page.locator("#announcer")).to_have_text("New: brief of newcomer. 2 waiting.")
    expect(page.get_by_label("Reason")).to_be_focused()
    page.keyboard.type("ence")
    expect(page.get_by_label("Reason")).to_have_value("half a sentence")
    expect(page.get_by_role("article")).to_contain_text("run-of-first")


def test_a_refreshed_list_keeps_its_focus_and_place(console: Console) -> None:
    ids = [console.hold(agent=f"agent-{number:02}") for number in range(30)]
    page = console.reviewer()
    live(page)
    row(page, "agent-25").focus()
    assert page.locator(".list").evaluate("(node) => node.scrollTop") > 0
    place = row(page, "agent-25").evaluate(PLACE)
    console.resolve(ids[28], "reject", None)
    expect(row(page, "agent-28")).to_have_count(0, timeout=SOON)
    expect(row(page, "agent-25")).to_be_focused()
    assert row(page, "agent-25").evaluate(PLACE) == pytest.approx(place, abs=1)


def test_of_two_reviewers_the_slower_is_told_who_what_when_and_why(console: Console) -> None:
    console.expect_trouble(REFUSED)  # the 409 itself
    approval = console.hold(agent="first")
    console.hold(agent="second")
    fast, slow = console.reviewer(approval), console.reviewer(approval)
    for page in (fast, slow):
        expect(page.get_by_role("article")).to_contain_text("run-of-first")
    # The slow one's page does not hear of it, as in the moment before the news arrives.
    slow.route("**/v1/stream", lambda route: route.abort())
    slow.reload()
    expect(slow.get_by_role("article")).to_contain_text("run-of-first")
    slow.route("**/v1/approvals?*", lambda route: route.abort())
    fast.get_by_label("Reason").fill("the bank says it is fine")
    decide(fast, "Approve")
    expect(fast.get_by_role("article")).to_contain_text("run-of-second")
    slow.get_by_label("Reason").fill("I do not like it")
    decide(slow, "Reject")
    ending = slow.locator("#ending")
    expect(ending).to_contain_text(re.compile(rf"Approved by {re.escape(fast.user)} {LATELY.pattern}"))  # type: ignore[attr-defined]
    expect(ending).to_contain_text("the bank says it is fine")
    expect(ending).to_be_focused()
    expect(slow.locator(".notice.bad")).to_contain_text("Already settled")
    expect(slow.get_by_role("button", name="Reject", exact=True)).to_have_count(0)
    found = console.approval(approval)
    assert (found["status"], found["decisionReason"]) == ("approved", "the bank says it is fine")


def test_an_approval_that_is_settled_while_it_is_read_says_so(console: Console) -> None:
    approval = console.hold(agent="first")
    console.hold(agent="second")
    page = console.reviewer(approval)
    live(page)
    page.keyboard.press("a")
    page.keyboard.type("nearly")
    console.resolve(approval, "reject", "not this week")
    expect(page.locator("#ending")).to_be_focused(timeout=SOON)
    expect(page.locator("#ending")).to_contain_text("not this week")
    page.keyboard.press("Enter")  # meant for the reason that is gone
    page.keyboard.press("a")
    page.keyboard.press("Enter")
    assert console.approval(approval)["decisionReason"] == "not this week"
    page.keyboard.press("j")  # goes on with the one that took its place
    expect(page.get_by_role("article")).to_contain_text("run-of-second")


def test_an_approval_that_expires_while_it_is_read_says_so(console: Console) -> None:
    approval = console.hold("brief")
    page = console.reviewer(approval)
    live(page)
    expect(page.get_by_role("region", name="Who and when")).to_contain_text("Expiresin 1 hour")
    console.service.clock.ahead = 3700
    expect(page.locator("#ending")).to_contain_text("Expired before anyone resolved it")
    expect(page.get_by_role("button", name="Approve", exact=True)).to_have_count(0)
    expect(page.locator("#announcer")).to_contain_text("Expired")


def test_without_a_stream_the_page_asks_every_few_seconds(console: Console) -> None:
    console.expect_trouble(REFUSED)
    page = console.page()
    page.route("**/v1/stream", lambda route: route.abort())
    console.log_in(page)
    expect(page.get_by_role("heading", name="All clear")).to_be_visible()
    expect(page.locator(".live")).to_have_text("Updating every few seconds")
    console.hold(agent="newcomer")
    expect(page.get_by_role("article")).to_contain_text("run-of-newcomer")
    page.unroute("**/v1/stream")
    expect(page.locator(".live")).to_have_text("Live")


def test_a_service_that_goes_away_is_told_and_comes_back_by_itself(console: Console) -> None:
    console.expect_trouble(REFUSED)
    approval = console.hold(agent="first")
    with line_to(console.address) as line:
        page = console.page(line.address)
        console.log_in(page, place=link(approval))
        live(page)
        expect(page.get_by_role("article")).to_contain_text("run-of-first", timeout=SOON)
        line.cut()
        warning = page.get_by_role("alert").filter(has_text="cannot be reached")
        expect(warning).to_be_visible()
        expect(page.locator(".live")).to_have_text("Not connected")
        expect(page.get_by_role("article")).to_contain_text("run-of-first")
        page.get_by_label("Reason").fill("kept")
        decide(page, "Approve")
        expect(page.locator(".notice.bad")).to_contain_text("No answer came")
        expect(page.get_by_label("Reason")).to_have_value("kept")
        console.hold(agent="second")
        line.mend()
        expect(warning).to_be_hidden(timeout=15_000)
        expect(row(page, "second")).to_be_visible()
        decide(page, "Approve")
        expect(page.get_by_role("article")).to_contain_text("run-of-second")
        assert console.approval(approval)["decisionReason"] == "kept"


def test_a_service_that_stands_still_is_noticed_within_ten_seconds(console: Console) -> None:
    console.expect_trouble(REFUSED)
    with line_to(console.address) as line:
        page = console.page(line.address)
        page.clock.install()
        console.log_in(page)
        expect(page.get_by_role("heading", name="All clear")).to_be_visible()
        expect(page.locator(".live")).to_have_text("Live")
        line.freeze()
        page.clock.fast_forward(10_000)
        expect(page.locator(".live")).not_to_have_text("Live", timeout=SOON)


def test_choosing_while_the_service_is_away_shows_it_once_it_is_back(console: Console) -> None:
    console.expect_trouble(REFUSED)
    console.hold(agent="first")
    console.hold(agent="second")
    with line_to(console.address) as line:
        page = console.page(line.address)
        console.log_in(page)
        live(page)
        expect(row(page, "second")).to_be_visible(timeout=SOON)
        line.cut()
        row(page, "second").click()
        expect(page.locator(".notice.bad")).to_contain_text("cannot be reached")
        line.mend()
        expect(page.get_by_role("article")).to_contain_text("run-of-second")


def test_a_database_that_is_away_is_told_and_nothing_is_lost(console: Console) -> None:
    console.expect_trouble(REFUSED)
    approval = console.hold()
    page = console.reviewer(approval)
    live(page)
    away = {"status": 503, "code": "unavailable", "detail": "the database cannot be reached"}
    page.route("**/v1/approvals**", lambda route: route.fulfill(status=503, json=away))
    page.route("**/v1/approvals/**", lambda route: route.fulfill(status=503, json=away))
    page.get_by_label("Reason").fill("kept")
    decide(page, "Approve")
    expect(page.locator(".notice.bad")).to_contain_text("nothing was decided")
    expect(page.locator(".away")).to_be_visible()
    page.unroute("**/v1/approvals**")
    page.unroute("**/v1/approvals/**")
    expect(page.locator(".away")).to_be_hidden()
    expect(page.get_by_label("Reason")).to_have_value("kept")
    decide(page, "Approve")
    expect(page.get_by_role("heading", name="All clear")).to_be_visible()


def test_a_busy_service_is_not_asked_for_every_single_change(console: Console) -> None:
    page = console.reviewer()
    live(page)
    asked: list[str] = []
    page.on("request", lambda request: "/v1/approvals?" in request.url and asked.append(request.url))
    start = time.monotonic()
    for _ in range(40):
        console.hold()
    expect(page.get_by_role("button", name="Waiting 40")).to_be_visible()
    assert len(asked) <= 3 + (time.monotonic() - start) / 0.15


def test_times_go_on(console: Console) -> None:
    approval = console.hold()
    page = console.page()
    page.clock.install()
    console.log_in(page, place=link(approval))
    asked = page.get_by_role("region", name="Who and when").locator("dt:text-is('Asked') + dd time")
    expect(asked).to_have_text("just now")
    page.clock.fast_forward(125_000)
    expect(asked).to_have_text("2 minutes ago")
