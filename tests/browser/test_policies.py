"""The policies room: the list for every role, one policy in words, its history and going back."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.support import Console, entered
from tests.browser.test_looks import readable

pytestmark = pytest.mark.browser
LIVE = True

SOON = 10_000
MARKUP = "<img src=x onerror=alert(1)>\u202e"
PATH = "/v1/policies/hold-payments"


def change(console: Console, **members: Any) -> None:
    console.service.answered("admin", "PATCH", PATH, members)


def test_a_viewer_finds_a_policy_and_reads_it(console: Console) -> None:
    page = entered(console, "/policies")
    rows = page.get_by_role("list", name="Policies").get_by_role("listitem")
    expect(rows).to_have_count(4)
    page.get_by_label("What it does").select_option("require_approval")
    expect(rows).to_have_count(3)
    page.get_by_label("Search").fill("PAYING")
    expect(rows).to_have_count(1)
    assert page.url.endswith("/policies?search=PAYING&action=require_approval")
    change(console, mode="shadow")
    expect(rows.first).to_contain_text("Shadow", timeout=SOON)
    page.get_by_label("Status").select_option("enforced")
    expect(page.get_by_text("No policy is like that.")).to_be_visible()
    page.get_by_label("Status").select_option("shadow")
    rows.first.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1, name="Ask before paying")).to_be_focused()
    expect(page.get_by_text("Holds for a person to decide a call when this holds:")).to_be_visible()
    expect(page.get_by_role("list", name="Conditions")).to_have_text("toolName starts with payments.")
    expect(page.locator(".missing")).to_contain_text("in shadow")
    expect(page.get_by_role("list", name="Versions").get_by_role("listitem")).to_have_count(2)
    expect(page.get_by_role("main").get_by_role("button")).to_have_count(0)
    change(console, message="money leaves")
    expect(page.locator(".known")).to_contain_text("money leaves", timeout=SOON)


def test_the_history_tells_who_changed_what_and_leads_back(console: Console) -> None:
    change(console, action="block", description=None)
    change(
        console,
        matchConditions=[{"field": "toolName", "operator": "in", "value": ["a", 9007199254740993]}],
        examples=[{"match": False, "toolName": "x", "inputPayload": {"id": 9007199254740993}}],
    )
    page = entered(console, "/policies/hold-payments", "admin")
    versions = page.get_by_role("list", name="Versions").locator("> li")
    expect(versions).to_have_count(3)
    expect(page.get_by_role("list", name="Examples")).to_contain_text("9007199254740993")
    expect(versions.nth(0)).to_contain_text("Version 3")
    expect(versions.nth(0)).to_contain_text("by admin@acme.example")
    expect(versions.nth(2)).to_contain_text("an edit of its file")
    versions.nth(1).get_by_text("changed").click()
    expect(versions.nth(1).locator("del")).to_have_text(
        ['Removed: - "require_approval"\n', 'Removed: - "Money leaves only when a person has looked."\n']
    )
    expect(versions.nth(1).locator("ins")).to_have_text(['Added: + "block"\n'])
    versions.nth(0).get_by_text("changed").click()
    expect(versions.nth(0)).to_contain_text("9007199254740993")
    readable(page)
    page.get_by_role("button", name="Go back to version 1").click()
    expect(page.get_by_role("dialog")).to_contain_text("require_approval")
    readable(page)
    page.get_by_role("button", name="Go back", exact=True).click()
    expect(versions).to_have_count(4)
    expect(page.get_by_role("log")).to_contain_text("Version 1 is in force again, as version 4.")
    now = console.service.call("viewer", "GET", PATH).json()
    assert (now["version"], now["action"]) == (4, "require_approval")


def test_going_back_is_refused_when_the_policy_changed_meanwhile(console: Console) -> None:
    console.expect_trouble("412")
    change(console, action="block")
    page = entered(console, "/policies/hold-payments", "admin")
    page.get_by_role("button", name="Go back to version 1").click()
    change(console, name="Changed meanwhile")
    page.get_by_role("button", name="Go back", exact=True).click()
    expect(page.get_by_role("dialog").locator(".problem")).to_contain_text("at version 3 now")
    assert console.service.call("viewer", "GET", PATH).json()["version"] == 3


def test_what_policies_say_stays_text(console: Console) -> None:
    change(
        console,
        name="<img src=x onerror=alert(1)>",
        description=MARKUP,
        message=MARKUP,
        matchConditions=[{"field": "toolName", "operator": "equals", "value": MARKUP}],
        examples=[{"match": True, "toolName": MARKUP, "inputPayload": {MARKUP: MARKUP}}],
    )
    page = entered(console, "/policies")
    page.get_by_role("link", name="<img").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("<img src=x onerror=alert(1)>")
    for part in (".description", ".conditions", ".known", ".examples"):
        expect(page.locator(part)).to_contain_text("<img src=x onerror=alert(1)>")
        expect(page.locator(part).locator(".hidden-character").first).to_be_visible()


def test_a_policy_that_is_gone_keeps_its_history(console: Console) -> None:
    console.expect_trouble("404")
    page = entered(console, "/policies/nowhere")
    expect(page.locator(".one")).to_contain_text("There is no such policy.")
    assert console.service.call("admin", "DELETE", PATH).status_code == 204
    page = entered(console, "/policies/hold-payments", "admin")
    expect(page.locator(".one")).to_contain_text("This policy was deleted.")
    page.get_by_role("button", name="Go back to version 1").click()
    page.get_by_role("button", name="Go back", exact=True).click()
    expect(page.get_by_role("list", name="Conditions")).to_be_visible()


def test_who_brought_a_policy_back_is_told_not_who_deleted_it(console: Console) -> None:
    assert console.service.call("second admin", "DELETE", PATH).status_code == 204
    console.service.answered("admin", "POST", f"{PATH}/rollback", {"version": 1})
    page = entered(console, "/policies/hold-payments")
    newest = page.get_by_role("list", name="Versions").locator("> li").first
    expect(newest).to_contain_text("by admin@acme.example")
