"""Approvals that need several people, or certain ones, as people meet them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.support import POLICIES, Console
from tests.browser.test_looks import readable
from tests.harness.policy_bodies import on_tool
from tests.harness.running_service import Served

pytestmark = pytest.mark.browser

OF_SEVERAL = (
    on_tool(
        "Two people pay", "require_approval", "pair.pay", policyId="hold-for-two", approval={"approvers": 2}
    ),
    on_tool(
        "Admins pay",
        "require_approval",
        "admin.pay",
        policyId="hold-for-admins",
        approval={"roles": ["admin"]},
    ),
)


@pytest.fixture
def console(browser: Browser, tmp_path: Path) -> Iterator[Console]:
    with Served(tmp_path, (*POLICIES, *OF_SEVERAL)) as service, Console(service, browser) as console:
        yield console


def decide(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()
    page.get_by_role("button", name="Send now").click()


def approved(console: Console, role: str, approval: str) -> dict[str, object]:
    found: dict[str, object] = console.service.answered(role, "POST", f"/v1/approvals/{approval}/approve", {})
    return found


def test_of_two_who_must_approve_one_is_shown_and_the_other_asked_for(console: Console) -> None:
    approval = console.hold("pair.pay", {"amount": 7})
    page = console.reviewer(approval)
    expect(page.locator(".standing")).to_have_text("0 of 2 have approved.")
    decide(page, "Approve")
    expect(page.get_by_role("log")).to_contain_text("One more person must approve.")
    assert console.approval(approval)["status"] == "pending"
    # Whoever has approved sees who did, and why that is all they can do.
    page.goto(f"{console.address}/approvals?approvalId={approval}")
    expect(page.locator(".standing")).to_contain_text("1 of 2 have approved: you")
    expect(page.locator("#decide-off")).to_contain_text("you have approved it already")
    expect(page.get_by_role("button", name="Approve", exact=True)).to_have_attribute("aria-disabled", "true")
    expect(page.locator(".items")).to_contain_text("1 of 2 approved")
    assert approved(console, "admin", approval)["status"] == "approved"
    expect(page.locator(".ending")).to_contain_text("Approved by")
    expect(page.locator(".standing")).to_contain_text("2 of 2 have approved")
    readable(page)


def test_what_is_sent_names_the_payload_that_was_shown(console: Console) -> None:
    approval = console.hold(payload={"amount": 7})
    digest = console.approval(approval)["payloadDigest"]
    page = console.reviewer(approval)
    with page.expect_request(lambda each: each.url.endswith("/approve")) as sent:
        decide(page, "Approve")
    assert sent.value.post_data_json == {"payloadDigest": digest}
    expect(page.get_by_role("log")).to_contain_text("Approved")


def test_only_an_admin_approves_what_is_for_admins(console: Console) -> None:
    approval = console.hold("admin.pay", {"amount": 7})
    page = console.reviewer(approval)
    expect(page.locator(".standing")).to_have_text("Only admins may approve it.")
    expect(page.locator("#decide-off")).to_contain_text("needs the role admin")
    decide(page, "Reject")
    expect(page.get_by_role("log")).to_contain_text("Rejected")


def test_who_gives_a_reason_goes_on_while_the_approval_changes(console: Console) -> None:
    approval = console.hold("pair.pay", {"amount": 7})
    page = console.reviewer(approval)
    expect(page.locator(".standing")).to_have_text("0 of 2 have approved.")
    page.keyboard.press("r")
    page.keyboard.type("no ")
    approved(console, "admin", approval)
    expect(page.locator(".standing")).to_contain_text("1 of 2 have approved")
    # Were the field not in the focus any more, these would be keys: `a` approves.
    page.keyboard.type("way, a thief")
    expect(page.get_by_label("Reason")).to_have_value("no way, a thief")
    expect(page.locator(".armed")).to_contain_text("Reject")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    console.until(lambda: console.approval(approval)["status"] == "rejected")
