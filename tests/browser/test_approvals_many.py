"""Many approvals: found by words and filters, the same ones decided together; decisions taken back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.support import POLICIES, Console, decide, hold_time, line_to, link, row
from tests.browser.test_approvals import expect_agents, pane
from tests.browser.test_looks import readable
from tests.harness.application import event
from tests.harness.policy_bodies import on_tool
from tests.harness.running_service import Served

pytestmark = pytest.mark.browser


def undecided(page: Page, verb: str) -> None:
    """It is on its way, and can be taken back."""
    page.get_by_role("button", name=verb, exact=True).click()
    expect(page.get_by_role("region", name="On its way")).to_be_visible()
    page.clock.run_for(1000)  # until the buttons are no longer guarded against a second click


def test_a_row_says_what_it_is_about(console: Console) -> None:
    console.hold("payments.send", {"amount": 640, "currency": "EUR"}, agent="support")
    console.hold("brief", {"title": "News"}, agent="newsroom")
    page = console.reviewer()
    rows = page.locator(".items li")
    expect(rows.first.locator(".sentence")).to_have_text("Pay 640 EUR")
    expect(rows.first.locator(".policy")).to_have_text("payments.send · Ask before paying")
    expect(rows.last.locator(".time")).to_contain_text("expires in 1 hour")


def test_approvals_are_found_by_words_tool_agent_and_policy(console: Console) -> None:
    console.hold("payments.send", {"amount": 640}, agent="support")
    console.hold("payments.send", {"amount": 50}, agent="clerk")
    console.hold("brief", {"title": "News"}, agent="clerk")
    page = console.reviewer()
    expect_agents(page, "support", "clerk", "clerk")
    page.get_by_label("Search").fill("PAY 640")
    expect_agents(page, "support")
    expect(page.get_by_text("1 found", exact=True)).to_be_visible()
    page.get_by_label("Search").fill("")
    page.get_by_label("Agent", exact=True).select_option("clerk")
    expect_agents(page, "clerk", "clerk")
    expect(pane(page)).to_contain_text("run-of-clerk")  # what is shown is one of the rows
    page.get_by_label("Policy").select_option("Ask, but not for long")
    expect(page.locator(".items .tool")).to_have_text(["brief"])
    expect(page.locator(".called")).to_have_text("brief called by clerk")
    assert "agentId=clerk" in page.url and "policyId=hold-brief" in page.url
    page.reload()
    expect(page.locator(".items .tool")).to_have_text(["brief"])
    page.get_by_label("Tool").select_option("brief")
    page.get_by_label("Search").fill("nothing has this")
    expect(page.get_by_text("None of these.")).to_be_visible()
    readable(page)


def test_identical_calls_are_one_row_and_decided_together(console: Console) -> None:
    same = [console.hold(payload={"amount": 9, "note": "a"}, run=f"run-{number}") for number in range(3)]
    other = console.hold(payload={"amount": 9, "note": "b"})  # which looks the same in the list
    page = console.reviewer()
    expect(page.get_by_role("button", name="Waiting 4")).to_be_visible()
    expect(page.locator(".items .sentence")).to_have_text(["3 × Pay 9", "Pay 9"])
    page.get_by_text("3 calls wait that are the same to the letter").click()
    expect(page.locator(".same li")).to_have_count(3)
    expect(page.get_by_role("button", name="Approve all 3")).to_be_enabled()
    readable(page)
    decide(page, "Approve all 3")
    expect(page.get_by_role("log")).to_have_text(re.compile("Approved: 3 × payments.send of clerk."))
    expect(page.locator(".items li")).to_have_count(1)
    assert [console.approval(each)["status"] for each in [*same, other]] == ["approved"] * 3 + ["pending"]


def test_evaluations_of_another_subject_or_action_are_decided_apart(console: Console) -> None:
    """Tool and payload are the same; who may do what is not."""

    def evaluated(subject: str, action: str) -> None:
        body = {
            "subject": {"type": "user", "id": subject},
            "action": {"name": action},
            "resource": {"type": "tool", "id": "payments.send", "properties": {"amount": 9}},
            "context": {"governance": {"agentId": "clerk"}},
        }
        answer = console.service.call("agent", "POST", "/access/v1/evaluation", body)
        assert answer.json()["decision"] is False, answer.text

    calls = (("alice", "read"), ("alice", "read"), ("alice", "delete"), ("bob", "read"))
    for subject, action in calls:
        evaluated(subject, action)
    page = console.reviewer()
    said = [f"Pay 9 (asked as “{action}” for “{subject}”)" for subject, action in calls]
    expect(page.locator(".items .sentence")).to_have_text([f"2 × {said[0]}", *said[2:]])
    decide(page, "Approve all 2")
    expect(page.locator(".items li")).to_have_count(2)


LABEL_OUTSIDE = on_tool(
    "Label what has looked outside", "allow", "look_outside", labels={"add": ["untrusted-content"]}
)


def test_the_same_call_of_a_run_that_was_asked_or_has_read_something_else_is_decided_apart(
    browser: Browser, tmp_path: Path
) -> None:
    """What differs stands in no list, and who looks at one of them does not see it of the other."""
    with Served(tmp_path, (*POLICIES, LABEL_OUTSIDE)) as service, Console(service, browser) as console:
        look = {"toolCallId": "look", "toolName": "look_outside", "inputPayload": {}}
        console.post("tool.called", look, run="led", agent="clerk")
        console.post("run.started", {"task": "Summarise the page"}, run="other-task", agent="clerk")
        plain = [console.hold(run=run) for run in ("plain", "plain-too")]
        alone = [console.hold(run=run) for run in ("led", "other-task")]
        page = console.reviewer()
        expect(page.locator(".items .sentence")).to_have_text(["2 × Pay 120", "Pay 120", "Pay 120"])
        decide(page, "Approve all 2")
        expect(page.locator(".items li")).to_have_count(2)
        found = [console.approval(each) for each in (*plain, *alone)]
        assert [each["status"] for each in found] == ["approved"] * 2 + ["pending"] * 2
        assert [each.get("labels") for each in found] == [None, None, ["untrusted-content"], None]


def test_what_was_meant_for_one_call_is_not_done_to_those_that_have_come_since(console: Console) -> None:
    """An agent may ask for the same at any moment, also when the reviewer has begun to click."""
    console.hold()
    page = console.reviewer()
    approve = page.get_by_role("button", name="Approve", exact=True)
    expect(approve).to_be_enabled()
    page.evaluate(
        """() => {
            const button = document.querySelector("button.approve");
            new MutationObserver(() => button.textContent.includes("all 3") && button.click())
                .observe(button, { childList: true, subtree: true, characterData: true });
        }"""
    )
    console.hold(), console.hold()
    expect(page.get_by_role("button", name="Approve all 3", exact=True)).to_be_visible()
    expect(page.get_by_role("region", name="On its way")).to_be_hidden()
    decide(page, "Approve all 3")
    expect(page.locator(".items li")).to_have_count(0)


def test_calls_that_come_without_a_pause_keep_nobody_from_deciding_one(console: Console) -> None:
    first = console.hold()
    page = console.reviewer()
    approve = page.get_by_role("button", name="Approve", exact=True)
    expect(approve).to_be_enabled()
    for _ in range(30):
        console.hold()
        page.wait_for_timeout(200)
        if page.locator("#together").is_visible() and approve.count() and approve.is_enabled():
            approve.click()
            break
    expect(page.get_by_role("region", name="On its way")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_role("log")).to_have_text(re.compile("Approved: payments.send of clerk."))
    assert console.approval(first)["status"] == "approved"


def test_of_identical_calls_one_alone_can_be_decided(console: Console) -> None:
    first, second = console.hold(), console.hold()
    page = console.reviewer()
    page.get_by_label("Decide all 2 identical calls").uncheck()
    decide(page, "Reject")
    expect(page.get_by_role("button", name="Waiting 1")).to_be_visible()
    expect(page.locator("#subject")).to_be_focused()
    assert [console.approval(each)["status"] for each in (first, second)] == ["rejected", "pending"]


def test_what_could_not_be_decided_of_a_group_is_named(console: Console) -> None:
    console.expect_trouble("Failed to load resource")
    first, second = console.hold(), console.hold()
    page = console.reviewer()
    expect(page.get_by_role("button", name="Approve all 2")).to_be_visible()
    refused = {"status": 409, "code": "conflict", "detail": "the moon is full"}
    page.route(f"**/v1/approvals/{second}/approve", lambda route: route.fulfill(status=409, json=refused))
    decide(page, "Approve all 2")
    expect(page.locator(".notice.good")).to_contain_text("Approved: payments.send of clerk.")
    expect(page.locator(".notice.bad")).to_contain_text("1 of 2 were not decided")
    expect(page.locator(".notice.bad")).to_contain_text("the moon is full")
    assert [console.approval(each)["status"] for each in (first, second)] == ["approved", "pending"]


def test_a_decision_is_taken_back_by_button_and_by_key(console: Console) -> None:
    approval = console.hold()
    page = console.reviewer(approval)
    page.get_by_label("Reason").fill("looks fine")
    hold_time(page)
    undecided(page, "Approve")
    expect(page.get_by_role("region", name="On its way")).to_contain_text("Approving: Pay 120")
    readable(page)
    page.get_by_role("button", name="Take back").click()
    expect(page.get_by_role("button", name="Approve", exact=True)).to_be_focused()
    expect(page.get_by_label("Reason")).to_have_value("looks fine")
    page.keyboard.press("r")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Send now")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("region", name="On its way")).to_be_hidden()
    assert console.approval(approval)["status"] == "pending"


def test_a_decision_is_sent_by_itself_and_what_comes_next_by_the_next_one(console: Console) -> None:
    first, second, third = (console.hold(agent=agent) for agent in ("first", "second", "third"))
    page = console.reviewer()
    hold_time(page)
    undecided(page, "Approve")
    row(page, "second").click()  # to look elsewhere changes nothing of it
    expect(pane(page)).to_contain_text("run-of-second")
    expect(page.get_by_role("region", name="On its way")).to_contain_text("Approving: Pay 120")
    undecided(page, "Reject")
    console.until(lambda: console.approval(first)["status"] == "approved")
    assert console.approval(second)["status"] == "pending"
    page.clock.run_for(5000)
    expect(page.locator(".notice.good")).to_contain_text("of first")
    expect(page.locator(".notice.rejected")).to_contain_text("of second")
    expect(pane(page)).to_contain_text("run-of-third")
    assert [console.approval(each)["status"] for each in (second, third)] == ["rejected", "pending"]


@pytest.mark.parametrize("way", ["another room", "another page", "log out"])
def test_leaving_sends_what_was_decided(console: Console, way: str) -> None:
    approval = console.hold()
    page = console.reviewer(approval)
    hold_time(page)
    undecided(page, "Approve")
    if way == "another room":
        page.get_by_role("link", name="Runs", exact=True).click()
    elif way == "another page":
        page.goto(
            "/docs",
        )
    else:
        page.get_by_role("button", name="Log out").click()
    console.until(lambda: console.approval(approval)["status"] == "approved")


def test_leaving_tells_what_could_not_be_sent(console: Console) -> None:
    console.expect_trouble("Failed to load resource")
    approvals = [console.hold(payload={"amount": amount}) for amount in (1, 2)]
    with line_to(console.address) as line:
        page = console.page(line.address)
        console.log_in(page, "reviewer", link(approvals[0]))
        expect(page.locator("#subject")).to_have_text("Pay 1")
        hold_time(page)
        undecided(page, "Reject")
        line.cut()
        page.get_by_role("link", name="Runs", exact=True).click()
        told = page.get_by_role("log")
        expect(told).to_contain_text("1 of 1 were not decided: payments.send of clerk: no answer came")
        line.mend()
        page.get_by_role("link", name="Approvals", exact=True).click()
        page.locator(".room").wait_for()
        page.clock.run_for(5000)  # it looks what waits
        expect(page.locator("#subject")).to_have_text("Pay 1")
        undecided(page, "Approve")
        console.resolve(approvals[0], "reject", "Not today")
        page.get_by_role("link", name="Runs", exact=True).click()
        expect(told).to_contain_text(re.compile("already settled: Rejected by", re.I))
    assert [console.approval(each)["status"] for each in approvals] == ["rejected", "pending"]


def test_messages_cover_neither_rows_nor_hints_nor_buttons(console: Console) -> None:
    console.hold(agent="first")
    console.hold(agent="second")
    page = console.reviewer()
    decide(page, "Reject")
    box = page.locator(".notice.rejected").bounding_box()
    assert box is not None
    for place in (".items", ".keys", ".decide form .buttons", ".views"):
        other = page.locator(place).bounding_box()
        assert other is not None
        apart = box["x"] >= other["x"] + other["width"] or box["y"] + box["height"] <= other["y"]
        assert apart, place


def test_a_frame_around_a_heading_is_for_those_who_use_keys(console: Console) -> None:
    for agent in ("first", "second", "third"):
        console.hold(agent=agent)
    page = console.reviewer()
    shadow = "getComputedStyle(document.getElementById('subject')).boxShadow"
    hold_time(page)
    undecided(page, "Reject")
    page.get_by_role("button", name="Send now").click()
    expect(pane(page)).to_contain_text("run-of-second")
    expect(page.locator("#subject")).to_be_focused()
    assert page.evaluate(shadow) == "none"
    page.clock.run_for(1000)
    page.keyboard.press("r")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(pane(page)).to_contain_text("run-of-third")
    expect(page.locator("#subject")).to_be_focused()
    assert page.evaluate(shadow) != "none"


def test_the_title_stays_in_sight_beside_the_buttons(console: Console) -> None:
    page = console.reviewer(console.hold(payload={"lines": list(range(300))}))
    page.get_by_role("button", name=re.compile("^Show all")).click()
    page.mouse.move(800, 400)
    page.mouse.wheel(0, 2000)
    expect(page.locator("#subject")).not_to_be_in_viewport()
    expect(page.locator(".deciding")).to_be_in_viewport()
    expect(page.locator(".deciding")).to_have_text("Use payments.send")


def test_the_reviewer_s_link_finds_its_row_in_a_group(console: Console) -> None:
    console.hold()
    linked = console.hold()
    page = console.reviewer(linked)
    expect(page.locator(".items li")).to_have_count(1)
    expect(page.locator(".items [aria-current=true]")).to_contain_text("from your link")
    assert page.url.endswith(link(linked))


def paying(number: int) -> dict[str, Any]:
    payload = {"amount": number + 1}
    return {"toolCallId": f"many-{number}", "toolName": "payments.send", "inputPayload": payload}


def hold_many(console: Console, count: int) -> None:
    """By several keys, since one may not keep so many waiting."""
    for start in range(0, count, 600):
        key = {"X-API-Key": console.service.key()["key"]}
        whose = {"runId": f"run-{start}", "agentId": f"agent-{start}"}
        events = [
            event(f"many-{number}", "tool.called", "2026-01-31T09:30:00Z", whose | paying(number))
            for number in range(start, min(start + 600, count))
        ]
        answer = console.service.call(key, "POST", "/v1/events/batch", {"events": events})
        assert {each["answer"]["toolCallStatus"] for each in answer.json()["results"]} == {
            "awaiting_approval"
        }


def test_beyond_a_thousand_the_list_is_turned_over(console: Console) -> None:
    hold_many(console, 1150)
    page = console.reviewer()
    rows, more = page.locator(".items li"), page.locator(".list .foot button")
    for count in range(100, 1000, 100):
        expect(rows).to_have_count(count)
        more.click()
    expect(rows).to_have_count(1000)
    expect(more).to_have_text("Show more (1,000 of 1,150)")
    more.click()
    expect(rows).to_have_count(100)
    expect(rows.first.locator(".sentence")).to_have_text("Pay 1,001")
    expect(more).to_have_text(["Back to the first", "Show more (1,100 of 1,150)"])
    page.keyboard.press("j")
    expect(page.locator("#subject")).to_have_text("Pay 1,001")
    decide(page, "Approve")
    expect(page.locator("#subject")).to_have_text("Pay 1,002")
    page.get_by_label("Search").fill("1150")
    expect(rows).to_have_count(1)
    page.get_by_label("Search").fill("")
    expect(rows.first.locator(".sentence")).to_have_text("Pay 1")
