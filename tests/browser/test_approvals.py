"""What a reviewer sees of an approval, and deciding it by mouse and by keyboard."""

from __future__ import annotations

import re
import time

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.support import LATELY, Console, decide, link, row
from tests.harness.application import PEOPLE

pytestmark = pytest.mark.browser


def pane(page: Page) -> Locator:
    return page.get_by_role("article")


def expect_agents(page: Page, *agents: str) -> None:
    """These come to stand in the list, from top to bottom."""
    expect(page.locator(".items .agent")).to_have_text(agents)


def test_the_approval_of_the_link_comes_first_then_those_that_wait_longest(console: Console) -> None:
    console.hold(agent="first")
    console.hold(agent="second")
    linked = console.hold(agent="third")
    page = console.reviewer(linked)
    expect(pane(page)).to_contain_text("run-of-third")
    expect_agents(page, "third", "first", "second")
    expect(page.locator(".items [aria-current=true]")).to_contain_text("from your link")
    expect_agents(console.reviewer(), "first", "second", "third")


def test_everything_that_helps_to_judge_is_there(console: Console) -> None:
    console.post(
        "run.started", {"task": "Pay the open invoices of May", "model": "m"}, run="run-may", agent="clerk"
    )
    approval = console.hold(
        payload={"amount": 12000, "to": {"iban": "DE02 1203", "name": "Ärzte & Söhne"}, "lines": [1, 2]},
        run="run-may",
        reason="the invoice is due",
        agentContext={"goal": "settle all debts", "reasoning": "it is the last day", "steps": [1, "two"]},
    )
    page = console.reviewer(approval)
    expect(page.get_by_role("heading", name="Pay 12,000")).to_be_visible()
    expect(pane(page).locator(".called")).to_have_text("payments.send called by clerk")
    asked = "Asked to, as the agent says: “Pay the open invoices of May”"
    expect(pane(page).locator(".asked")).to_have_text(asked)
    expect(pane(page).locator("header .status")).to_have_text("Waiting")
    expect(pane(page).locator(".why")).to_have_text(console.approval(approval)["reason"])
    words = page.get_by_role("region", name="In the agent’s own words")
    expect(words).to_contain_text("not verified")
    for text in (
        "Pay the open invoices of May",
        "the invoice is due",
        "settle all debts",
        "it is the last day",
    ):
        expect(words).to_contain_text(text)
    expect(words.locator(".json")).to_contain_text('"two"')
    expect(page.locator(".form.payment")).to_contain_text("Ärzte & Söhne")
    page.keyboard.press("v")
    shown = page.get_by_role("region", name="What it would be called with").locator(".json")
    assert (
        shown.evaluate("(node) => JSON.parse(node.textContent)") == console.approval(approval)["inputPayload"]
    )
    facts = page.get_by_role("region", name="Who and when")
    for text in ("clerk", "run-may", LATELY, approval):
        expect(facts).to_contain_text(text)
    policies = page.get_by_role("region", name="Policies that matched").get_by_role("listitem")
    expect(policies).to_have_count(2)
    expect(policies.first).to_contain_text("Ask before paying asks for approval")
    expect(policies.last).to_contain_text("Warn <b>of</b> payments warns")


def test_approving_by_mouse_with_a_reason(console: Console) -> None:
    first, second = console.hold(agent="first"), console.hold(agent="second")
    page = console.reviewer(role="admin")
    expect(page.get_by_role("button", name="Waiting 2")).to_be_visible()
    page.get_by_label("Reason").fill("checked with the bank")
    decide(page, "Approve")
    expect(page.get_by_text("Approved: payments.send of first.")).to_be_visible()
    expect(pane(page)).to_contain_text("run-of-second")
    expect(page.get_by_label("Reason")).to_have_value("")
    expect(page.locator("#subject")).to_be_focused()
    expect(page.get_by_role("button", name="Waiting 1")).to_be_visible()
    found = console.approval(first)
    assert (found["status"], found["decisionReason"]) == ("approved", "checked with the bank")
    assert found["actor"] == page.user  # type: ignore[attr-defined]
    assert console.approval(second)["status"] == "pending"


def test_rejecting_by_mouse_without_a_reason(console: Console) -> None:
    approval = console.hold()
    page = console.reviewer(approval)
    decide(page, "Reject")
    expect(page.get_by_role("heading", name="All clear")).to_be_focused()
    found = console.approval(approval)
    assert (found["status"], found["decisionReason"]) == ("rejected", None)


def test_a_second_click_never_decides_the_next_one(console: Console) -> None:
    first, second = console.hold(agent="first"), console.hold(agent="second")
    page = console.reviewer()
    expect(pane(page)).to_contain_text("run-of-first")
    place = page.get_by_role("button", name="Approve", exact=True).bounding_box()
    assert place is not None
    begun = time.monotonic()
    while time.monotonic() - begun < 0.4:  # well before the buttons are good for the next one
        page.mouse.click(place["x"] + 20, place["y"] + 20)
        page.wait_for_timeout(60)
    expect(pane(page)).to_contain_text("run-of-second")
    page.wait_for_timeout(300)
    assert [console.approval(each)["status"] for each in (first, second)] == ["approved", "pending"]


def test_what_is_decided_is_what_is_in_view(console: Console) -> None:
    first, second = console.hold(agent="first"), console.hold(agent="second")
    page = console.reviewer(first)
    expect(pane(page)).to_contain_text("run-of-first")
    held: list[Route] = []
    page.route(f"**/v1/approvals/{second}*", lambda route: held.append(route))
    page.keyboard.press("j")  # the next is chosen, but its answer is still on its way
    page.get_by_role("button", name="Approve", exact=True).click(force=True)
    page.keyboard.press("a")
    page.keyboard.press("Enter")
    page.wait_for_timeout(300)
    for route in held:
        route.continue_()
    expect(pane(page)).to_contain_text("run-of-second")
    assert [console.approval(each)["status"] for each in (first, second)] == ["pending", "pending"]


def test_a_whole_round_by_keyboard(console: Console) -> None:
    ids = [console.hold(agent=f"agent-{number}") for number in range(4)]
    page = console.reviewer()
    expect(pane(page)).to_contain_text("run-of-agent-0")
    page.keyboard.press("j")
    expect(pane(page)).to_contain_text("run-of-agent-1")
    expect(page.locator(".items [aria-current=true]")).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("ArrowDown")
    expect(pane(page)).to_contain_text("run-of-agent-2")
    page.keyboard.press("k")
    expect(pane(page)).to_contain_text("run-of-agent-1")
    page.keyboard.press("Enter")  # on an entry of the list: into the approval
    expect(page.locator("#subject")).to_be_focused()
    page.keyboard.press("a")
    expect(page.get_by_label("Reason")).to_be_focused()
    expect(page.get_by_text("Enter approves, Esc leaves.")).to_be_visible()
    page.keyboard.type("just a jark")  # letters are letters here
    page.keyboard.press("Escape")
    expect(page.locator(".items [aria-current=true]")).to_be_focused()
    expect(page.get_by_text("Enter approves")).to_have_count(0)
    assert console.approval(ids[1])["status"] == "pending"
    page.keyboard.press("r")
    expect(page.get_by_text("Enter rejects, Esc leaves.")).to_be_visible()
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("ask me first")
    page.keyboard.press("Enter")
    expect(pane(page)).to_contain_text("run-of-agent-2")
    found = console.approval(ids[1])
    assert (found["status"], found["decisionReason"]) == ("rejected", "just a jark\nask me first")
    page.keyboard.press("a")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Send now")).to_be_focused()
    page.keyboard.press("Enter")
    expect(pane(page)).to_contain_text("run-of-agent-3")
    assert [console.approval(each)["status"] for each in ids] == [
        "pending",
        "rejected",
        "approved",
        "pending",
    ]


def test_enter_alone_decides_nothing(console: Console) -> None:
    approval = console.hold()
    page = console.reviewer(approval)
    expect(pane(page)).to_contain_text("run-of-clerk")
    for key in ("Enter", " ", "Escape", "Control+a", "Enter"):
        page.keyboard.press(key)
    page.get_by_label("Reason").click()
    page.keyboard.press("Enter")
    page.wait_for_timeout(200)
    assert console.approval(approval)["status"] == "pending"


def test_what_was_typed_stays_with_its_approval(console: Console) -> None:
    console.hold(agent="first")
    console.hold(agent="second")
    page = console.reviewer()
    page.get_by_label("Reason").fill("for the first")
    row(page, "second").click()
    expect(pane(page)).to_contain_text("run-of-second")
    expect(page.get_by_label("Reason")).to_have_value("")
    row(page, "first").click()
    expect(page.get_by_label("Reason")).to_have_value("for the first")


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_a_link_to_a_resolved_approval_tells_how_it_ended(console: Console, verb: str) -> None:
    approval = console.hold()
    console.hold(agent="other")
    console.resolve(approval, verb, "I know them")
    page = console.reviewer(approval)
    word = {"approve": "Approved", "reject": "Rejected"}[verb]
    ending = page.locator("#ending")
    expect(ending).to_contain_text(
        re.compile(rf"{word} by {re.escape(console.approval(approval)['actor'])} {LATELY.pattern}")
    )
    expect(ending).to_contain_text("I know them")
    expect(page.get_by_role("button", name="Approve", exact=True)).to_have_count(0)
    expect_agents(page, "other")
    page.get_by_role("button", name="Next waiting approval").click()
    expect(pane(page)).to_contain_text("run-of-other")


def test_links_to_expired_and_cancelled_approvals_say_so(console: Console) -> None:
    expired = console.hold("brief")
    cancelled = console.hold(agent="quitter")
    console.post("run.failed", {"cancelApprovals": True}, run="run-of-quitter", agent="quitter")
    console.service.clock.ahead = 3700
    console.until(lambda: console.approval(expired)["status"] == "expired")
    page = console.reviewer(expired)
    expect(page.locator("#ending")).to_contain_text("Expired before anyone resolved it")
    expect(pane(page).locator("header .status")).to_have_text("Expired")
    page.goto(link(cancelled))
    expect(page.locator("#ending")).to_contain_text("Cancelled, because its run ended")
    expect(page.get_by_role("button", name="Reject", exact=True)).to_have_count(0)


def test_an_unknown_approval_is_told_and_the_others_are_at_hand(console: Console) -> None:
    console.expect_trouble("Failed to load resource")
    console.hold(agent="other")
    page = console.reviewer("apr_<b>nope</b>")
    expect(page.get_by_role("heading", name="This approval is not here")).to_be_visible()
    expect(pane(page)).to_contain_text("No approval has the id apr_<b>nope</b>.")
    page.keyboard.press("j")
    expect(pane(page)).to_contain_text("run-of-other")


def test_another_organisations_approval_is_unknown(console: Console) -> None:
    console.expect_trouble("Failed to load resource")
    approval = console.hold()
    page = console.page()
    page.goto(link(approval))
    console.fill_login(page, PEOPLE["other reviewer"][1])
    expect(page.get_by_role("heading", name="This approval is not here")).to_be_visible()
    expect(page.get_by_text("Nothing waits for you.")).to_be_visible()


def test_nothing_to_do_is_calm_and_fills_by_itself(console: Console) -> None:
    page = console.reviewer()
    expect(page.get_by_role("heading", name="All clear")).to_be_visible()
    console.hold(agent="early")
    expect(pane(page)).to_contain_text("run-of-early")


def test_the_other_views_show_what_was_decided(console: Console) -> None:
    approved, rejected = console.hold(agent="yes"), console.hold(agent="no")
    console.hold(agent="open")
    console.resolve(approved, "approve", "fine")
    console.resolve(rejected, "reject", "never")
    page = console.reviewer()
    page.get_by_role("button", name="Rejected").click()
    expect(page.locator("#ending")).to_contain_text("never")
    expect_agents(page, "no")
    page.get_by_role("button", name="All", exact=True).click()
    expect(page.locator(".items .status")).to_have_text(["Waiting", "Rejected", "Approved"])
    page.reload()
    expect(page.get_by_role("button", name="All", exact=True)).to_have_attribute("aria-pressed", "true")


def test_deciding_among_all_shows_how_it_ended(console: Console) -> None:
    approval = console.hold(agent="first")
    console.hold(agent="second")
    page = console.page()
    console.log_in(page, place=f"/approvals?status=all&approvalId={approval}")
    expect(pane(page)).to_contain_text("run-of-first")
    page.get_by_label("Reason").fill("fine")
    decide(page, "Approve")
    expect(page.locator("#ending")).to_contain_text(re.compile(rf"Approved by you {LATELY.pattern}"))
    expect(page.locator("#ending")).to_be_focused()
    expect(page.locator(".items .status")).to_have_text(["Waiting", "Approved"])
    expect(page.get_by_role("button", name="Waiting 1")).to_be_visible()


def test_a_halted_call_can_be_rejected_but_not_approved(console: Console) -> None:
    approval = console.hold()
    halted = console.service.call("admin", "POST", "/v1/halt", {"scope": "all", "reason": "a fire drill"})
    assert halted.is_success, halted.text
    page = console.reviewer(approval)
    expect(pane(page)).to_contain_text("run-of-clerk")
    approve = page.get_by_role("button", name="Approve", exact=True)
    expect(approve).to_have_attribute("aria-disabled", "true")
    expect(page.get_by_role("form").get_by_role("status").first).to_contain_text(
        "Approving is off: all agents"
    )
    expect(page.locator(".off")).to_contain_text("a fire drill")
    approve.click(force=True)
    page.keyboard.press("a")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Send now")).to_have_count(0)
    console.service.call("admin", "POST", "/v1/resume", {"scope": "all"})
    expect(approve).to_have_attribute("aria-disabled", "false")
    expect(page.locator(".off")).to_be_hidden()
    console.service.call("admin", "POST", "/v1/halt", {"agentId": "clerk", "reason": "again"})
    expect(page.locator(".off")).to_contain_text("the agent clerk")
    assert console.approval(approval)["status"] == "pending"
    decide(page, "Reject")
    expect(page.get_by_role("heading", name="All clear")).to_be_visible()
    assert console.approval(approval)["status"] == "rejected"


def test_an_approval_that_reached_nobody_is_marked_until_somebody_opens_it(console: Console) -> None:
    console.hold(agent="first")
    console.hold(agent="second")
    page = console.reviewer()
    expect_agents(page, "first", "second")
    expect(page.locator(".items li").nth(1)).to_contain_text("reached nobody")
    page.locator(".items button").nth(1).click()
    expect(pane(page)).to_contain_text("First seen")
    page.reload()
    expect_agents(page, "second", "first")
    expect(page.locator(".items")).not_to_contain_text("reached nobody")
