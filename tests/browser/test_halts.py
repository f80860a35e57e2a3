"""The switch that an admin finds at once, and the banner that everybody sees while a halt lasts."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.support import Console

pytestmark = pytest.mark.browser


def test_an_admin_halts_and_resumes_and_everybody_sees_it(console: Console) -> None:
    admin, reviewer = console.reviewer(role="admin"), console.reviewer()
    expect(reviewer.get_by_role("button", name="Halt…")).to_have_count(0)
    expect(admin.locator(".halted")).to_be_hidden()
    admin.get_by_role("button", name="Halt…").click()
    dialog = admin.get_by_role("dialog", name="Halt")
    dialog.get_by_label("Why").fill("<b>it</b> pays twice")
    dialog.get_by_role("button", name="Halt now").click()
    for page in (admin, reviewer):
        expect(page.locator(".halted")).to_contain_text("Halted: all agents by")
        expect(page.locator(".halted")).to_contain_text("<b>it</b> pays twice")
    expect(dialog).to_have_count(0)
    number = console.service.call("admin", "GET", "/v1/halts").json()
    assert [each["scope"] for each in number] == ["all"]
    reviewer.get_by_role("button", name="Details").click()
    details = reviewer.get_by_role("dialog", name="What is halted")
    expect(details.get_by_role("listitem")).to_contain_text("all agents")
    expect(details.get_by_role("button", name="Resume")).to_have_count(0)
    admin.get_by_role("button", name="Resume…").click()
    halted = admin.get_by_role("dialog", name="What is halted")
    halted.get_by_label("Why it may go on").fill("mended")
    halted.get_by_role("button", name="Resume", exact=True).click()
    for page in (admin, reviewer):
        expect(page.locator(".halted")).to_be_hidden()
    assert console.service.call("admin", "GET", "/v1/halts").json() == []


def test_one_agent_is_halted_by_its_name(console: Console) -> None:
    admin = console.reviewer(role="admin")
    admin.get_by_role("button", name="Halt…").click()
    dialog = admin.get_by_role("dialog", name="Halt")
    dialog.get_by_label("Whom").select_option("One agent")
    dialog.get_by_role("button", name="Halt now").click()
    expect(dialog).to_be_visible()  # which agent has to be said
    dialog.get_by_label("Which agent").fill("clerk")
    dialog.get_by_role("button", name="Halt now").click()
    expect(admin.locator(".halted")).to_contain_text("the agent clerk")
    (halt,) = console.service.call("admin", "GET", "/v1/halts").json()
    assert (halt["scope"], halt["agentId"]) == ("agent", "clerk")
    expect(admin.get_by_role("log")).to_contain_text("No run that goes on is stopped by it")
