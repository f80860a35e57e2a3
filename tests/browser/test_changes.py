"""A change that needs a second admin, as the two of them meet it."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import expect

from tests.browser.support import Console, entered
from tests.browser.test_looks import readable

pytestmark = pytest.mark.browser
LIVE = True


def test_a_change_waits_for_the_other_admin_who_sees_what_it_does(console: Console) -> None:
    console.expect_trouble("Failed to load resource")
    two = {"settings": {"changes": {"approvers": 2}}}
    assert console.service.call("admin", "PUT", "/v1/organisation/settings", two).status_code == 200
    page = entered(console, "/policies/hold-payments?edit", "admin")
    page.get_by_label("What it does").select_option("block")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("log")).to_contain_text("This waits for another admin, under Changes.")
    page.get_by_role("link", name="Changes", exact=True).click()
    page.get_by_role("list", name="Changes").get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Change a policy: hold-payments")
    expect(page.locator(".differences ins").first).to_be_visible()
    expect(page.locator(".off")).to_contain_text("you asked for this change")
    expect(page.get_by_role("button", name="Agree and apply")).to_have_count(0)
    expect(page.get_by_role("button", name="Withdraw")).to_be_visible()
    for nothing in ("null", "undefined", "false"):
        expect(page.locator(".change")).not_to_contain_text(re.compile(rf"\b{nothing}\b"))
    readable(page)
    other = entered(console, page.url.removeprefix(console.address), "admin")
    other.get_by_label("Reason").fill("seen it")
    other.get_by_role("button", name="Agree and apply").click()
    expect(other.get_by_role("log")).to_contain_text("Applied: hold-payments.")
    expect(other.locator(".change blockquote")).to_have_text("seen it")
    readable(other)
    # Whoever asked sees it too.
    expect(page.locator(".change")).to_contain_text("applied")
    assert console.service.call("admin", "GET", "/v1/policies/hold-payments").json()["action"] == "block"


def test_how_many_must_approve_is_chosen_in_the_form(console: Console) -> None:
    page = entered(console, "/policies/hold-payments?edit", "admin")
    text = page.get_by_label("The policy as JSON")
    page.get_by_label("Who must approve what it holds").select_option("Two people")
    assert json.loads(text.input_value())["approval"] == {"approvers": 2}
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".known")).to_contain_text("needs 2 different people; never whoever asked")
    found = console.service.call("admin", "GET", "/v1/policies/hold-payments").json()
    assert found["approval"] == {"approvers": 2}
    page.goto(f"{console.address}/policies/hold-payments?edit")
    expect(page.get_by_label("Who must approve what it holds")).to_have_value("2")
    page.get_by_label("Who must approve what it holds").select_option("One person")
    assert "approval" not in json.loads(text.input_value())
