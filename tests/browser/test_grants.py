"""Grants: the same call is allowed again beside an approval, by keyboard; all are listed, revoked and end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.support import Console, entered, hold_time
from tests.harness.policy_bodies import on_tool, policy_body, where
from tests.harness.running_service import Served

pytestmark = pytest.mark.browser

SOON = 10_000
RENT = {"payee": "landlord <b>", "amount": 900}


def asked(console: Console, number: int, tool: str = "payments.send", **changes: Any) -> dict[str, Any]:
    call = {"toolCallId": f"again-{number}", "toolName": tool, "inputPayload": RENT} | changes
    return console.post("tool.called", call, run="run-of-clerk", agent="clerk")


def granted(console: Console, calls: int, number: int = 0) -> str:
    """The id of a grant for the rent, made over HTTP."""
    held = asked(console, number)
    body = {"reason": "each month", "grant": {"scope": "run", "calls": calls, "minutes": 5}}
    answer = console.service.answered("reviewer", "POST", f"/v1/approvals/{held['approvalId']}/approve", body)
    return str(answer["grant"]["grantId"])


def grants(page: Page) -> Any:
    return page.get_by_role("list", name="Grants").get_by_role("listitem")


def test_the_same_call_is_allowed_again_by_keyboard(console: Console) -> None:
    held = console.hold(payload=RENT)
    page = console.reviewer(held)
    again = page.get_by_role("checkbox", name="Approve and allow the same call again")
    expect(page.get_by_label("Calls at most")).to_be_hidden()
    again.focus()
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Approve, and again")).to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Calls at most")).to_be_focused()
    page.keyboard.type("0")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("200")
    page.get_by_role("button", name="Approve, and again").click()
    expect(page.get_by_role("button", name="Send now")).to_be_hidden()  # 200 are too many
    page.get_by_label("Calls at most").fill("2")
    page.get_by_role("button", name="Approve, and again").press("Enter")
    page.get_by_role("button", name="Send now").press("Enter")
    expect(page.locator(".notice")).to_contain_text("and the same call again")
    console.until(lambda: console.approval(held)["status"] == "approved")
    told = asked(console, 1)
    assert (told["toolCallStatus"], "1 of 2 calls used" in told["reason"]) == ("allowed", True)
    page.get_by_role("link", name="Grants").click()
    expect(grants(page)).to_have_count(1)
    expect(grants(page).first).to_contain_text(
        "1 of 2 calls left, payments.send by clerk in run run-of-clerk"
    )
    assert asked(console, 2)["toolCallStatus"] == "allowed"
    expect(grants(page)).to_have_count(0, timeout=SOON)
    page.get_by_label("Which").select_option("Ended")
    expect(grants(page).first).to_contain_text("used up")
    assert asked(console, 3)["toolCallStatus"] == "awaiting_approval"


def test_a_grant_that_was_not_made_is_not_told(console: Console) -> None:
    console.expect_trouble("409")
    first, second = (console.hold(payload=RENT, run=f"run-{number}") for number in range(2))
    page = console.reviewer(first)
    page.get_by_role("checkbox", name="Approve and allow the same call again").check()
    together = page.get_by_role("button", name="Approve all 2, and again")
    expect(together).to_be_visible()
    hold_time(page)
    together.click()
    page.clock.run_for(1000)
    console.resolve(first, "reject", None)  # the one that the grant comes with
    page.get_by_role("button", name="Send now").click()
    console.until(lambda: console.approval(second)["status"] == "approved")
    expect(page.locator(".notice.good")).to_contain_text("Approved: payments.send of clerk.")
    assert console.service.call("viewer", "GET", "/v1/grants").json() == []


def test_a_grant_is_revoked_and_another_ends_by_its_time(console: Console) -> None:
    grant_id = granted(console, 9)
    viewer, reviewer = entered(console, "/grants", "viewer"), entered(console, "/grants", "reviewer")
    for page in (viewer, reviewer):
        expect(grants(page).first).to_contain_text("9 of 9 calls left")
        expect(grants(page).first).to_contain_text("each month")
    expect(viewer.get_by_role("button", name="Revoke")).to_have_count(0)
    assert asked(console, 1)["grantIds"] == [grant_id]
    expect(grants(viewer).first).to_contain_text("8 of 9 calls left", timeout=SOON)
    reviewer.get_by_role("button", name="Revoke").click()
    dialog = reviewer.get_by_role("dialog", name="Revoke the grant")
    expect(dialog).to_contain_text("Pay 900 (run run-of-clerk): no later call is covered by it.")
    dialog.get_by_label("Why").fill("moved out")
    dialog.get_by_role("button", name="Revoke").click()
    expect(reviewer.locator("dialog")).to_have_count(0)
    for page in (viewer, reviewer):
        expect(grants(page)).to_have_count(0, timeout=SOON)
    assert asked(console, 2)["toolCallStatus"] == "awaiting_approval"
    second = granted(console, 9, 3)
    expect(grants(viewer)).to_have_count(1, timeout=SOON)
    console.service.clock.advance(301)
    assert asked(console, 4)["toolCallStatus"] == "awaiting_approval"
    viewer.goto(f"/grants/{second}")
    expect(viewer.get_by_role("article")).to_contain_text("expired")
    expect(viewer.get_by_role("article")).to_contain_text("9 of 9 calls left")


def test_the_run_names_its_grants(console: Console) -> None:
    granted(console, 1)
    asked(console, 1)
    page = console.page()
    console.log_in(page, "viewer", "/runs/run-of-clerk")
    call = page.get_by_role("list", name="Tool calls").get_by_role("listitem").last
    expect(call).to_contain_text("By a grant")
    expect(call).to_contain_text("1 of 1 call used")
    call.get_by_text("Details").click()
    call.get_by_role("link", name="Its grant").click()
    expect(page.get_by_role("article")).to_contain_text("used up")


LABELS = (
    on_tool("Label what is secret", "allow", "read", policyId="label", labels={"add": ["secret"]}),
    policy_body(
        "Ask before sending secrets",
        "require_approval",
        where("toolName", "equals", "send"),
        where("run.labels", "equals", "secret"),
        policyId="secrets",
    ),
)


def test_a_run_is_exempted_from_its_label(browser: Browser, tmp_path: Path) -> None:
    with Served(tmp_path, LABELS) as service, Console(service, browser) as console:
        asked(console, 1, "read")
        assert asked(console, 2, "send")["toolCallStatus"] == "awaiting_approval"
        page = console.page()
        console.log_in(page, "reviewer", "/runs/run-of-clerk")
        page.get_by_role("button", name="Exempt…").click()
        dialog = page.get_by_role("dialog", name="Exempt the run from labels")
        dialog.get_by_label("Why").fill("nothing secret in it")
        dialog.get_by_label("Minutes").fill("9")
        dialog.get_by_role("button", name="Exempt").click()
        expect(page.locator("dialog")).to_have_count(0)
        assert "`secret` not counted" in asked(console, 3, "send")["reason"]
        page.get_by_role("link", name="Grants").click()
        expect(grants(page).first).to_contain_text("Label secret not counted")
        expect(grants(page).first).to_contain_text("1 call decided by it")
        expect(grants(page).first).to_contain_text("nothing secret in it")
