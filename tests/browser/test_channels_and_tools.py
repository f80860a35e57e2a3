"""The rooms of channels and of tools: who is told by mail and chat; what tools of servers are admitted."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.support import Console, entered
from tests.browser.test_alerts_and_agents import watch
from tests.browser.test_looks import readable

pytestmark = pytest.mark.browser
LIVE = True

SECRET = "https://hooks.example.com/T0/very-secret"
READS = {"readOnlyHint": True}
HIDDEN = "Reads a file.\u200b<img src=x onerror=alert(1)>"


def propose(console: Console, second: str = "0" * 64, *more: str) -> None:
    tools = [
        *({"name": name, "definition": "3" * 64} for name in more),
        {"name": "read_file", "definition": "1" * 64, "description": HIDDEN, "annotations": READS},
        {"name": "drop_all", "definition": second, "annotations": {"destructiveHint": True}},
    ]
    console.service.answered("agent", "POST", "/v1/tool-proposals", {"server": "files", "tools": tools})


def look_again(page: Page) -> None:
    """As the page does by itself now and then, and at any news."""
    page.evaluate("dispatchEvent(new Event('online'))")


def test_a_channel_is_added_tried_changed_and_removed(console: Console) -> None:
    console.expect_trouble("Failed to load resource")
    page = entered(console, "/channels", "admin")
    page.get_by_role("button", name="Add a channel").click()
    dialog = page.get_by_role("dialog", name="Add a channel")
    dialog.get_by_label("Name", exact=True).fill("on-call")
    dialog.get_by_label("Kind").select_option("slack")
    expect(dialog.get_by_label("Server")).to_be_hidden()
    readable(page)
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(dialog.locator(".wrong, .problem").filter(has_text="secret")).to_be_visible()
    dialog.get_by_label("Address of its incoming webhook").fill(SECRET)
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("log")).to_contain_text("Added: on-call.")
    secrets = page.get_by_role("list", name="Secrets").get_by_role("listitem")
    expect(secrets).to_contain_text("nobody can read it")
    assert SECRET not in page.content()
    readable(page)
    page.get_by_role("list", name="Channels").get_by_role("link").click()
    expect(page.get_by_role("heading", name="Channel on-call")).to_be_focused()
    page.get_by_role("button", name="Send a test").click()
    sent = page.get_by_role("list", name="What was sent").get_by_role("listitem")
    expect(sent).to_contain_text("notification.test")
    readable(page)
    page.get_by_role("button", name="Change").click()
    dialog = page.get_by_role("dialog", name="Change the channel")
    dialog.get_by_label("tool.blocked").check()
    dialog.get_by_role("button", name="Save").click()
    expect(page.locator(".known")).to_contain_text("tool.blocked")
    page.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.get_by_text("Nobody is told by mail or chat yet.")).to_be_visible()
    assert SECRET not in page.content()


def test_a_channel_of_mail_says_what_is_wrong_at_its_field(console: Console) -> None:
    console.expect_trouble("Failed to load resource")
    page = entered(console, "/channels", "admin")
    page.get_by_role("button", name="Add a channel").click()
    dialog = page.get_by_role("dialog", name="Add a channel")
    dialog.get_by_label("Name", exact=True).fill("mail")
    dialog.get_by_label("To", exact=True).fill("ops@acme.com\nnobody")
    dialog.get_by_label("From", exact=True).fill("service@acme.com")
    dialog.get_by_label("Server", exact=True).fill("smtp.acme.com")
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(dialog.get_by_label("To", exact=True)).to_have_attribute("aria-invalid", "true")
    dialog.get_by_label("To", exact=True).fill("ops@acme.com")
    dialog.get_by_role("button", name="Add", exact=True).click()
    channel = page.get_by_role("list", name="Channels").get_by_role("listitem")
    expect(channel).to_contain_text("email")


def test_proposed_tools_are_admitted_and_a_change_is_seen(console: Console) -> None:
    propose(console)
    page = entered(console, "/tools", "admin")
    proposals = page.get_by_role("list", name="Proposed tools").get_by_role("link")
    expect(proposals).to_contain_text("2 new")
    readable(page)
    proposals.click()
    expect(page.get_by_role("heading", name="Tools of files")).to_be_visible()
    tools = page.get_by_role("list", name="Tools", exact=True).get_by_role("listitem")
    first = tools.filter(has_text="read_file")
    expect(first).to_contain_text("Reads a file.U+200B<img src=x onerror=alert(1)>")
    expect(first).to_contain_text("characters that cannot be seen")
    expect(first).to_contain_text("Says of itself: reads only.")
    page.get_by_label("effect of read_file").select_option("read")
    readable(page)
    page.get_by_role("button", name="Admit the chosen ones").click()
    expect(page.get_by_role("log")).to_contain_text("Admitted: 2 of 2 tools.")
    expect(first).to_contain_text("as admitted")
    page.get_by_role("link", name="All tools").click()
    expect(page.get_by_text("Nothing is proposed.")).to_be_visible()
    page.get_by_role("list", name="Tool sets").locator("summary").first.click()
    expect(page.get_by_role("table").first).to_contain_text("read_file")
    propose(console, "2" * 64)
    page.reload()
    expect(proposals).to_contain_text("changed since")
    proposals.click()
    page.get_by_role("button", name="Dismiss").click()
    page.get_by_role("dialog").get_by_role("button", name="Dismiss").click()
    expect(page.get_by_text("Nothing is proposed.")).to_be_visible()
    page.get_by_label("Which").select_option("dismissed")
    expect(proposals).to_contain_text("dismissed")


def test_what_an_admin_has_chosen_outlasts_what_is_proposed_meanwhile(console: Console) -> None:
    propose(console)
    page = entered(console, "/tools", "admin")
    page.get_by_role("list", name="Proposed tools").get_by_role("link").click()
    read_file, drop_all, added = (
        page.get_by_role("checkbox", name=name) for name in ("read_file", "drop_all", "added")
    )
    effect = page.get_by_label("effect of read_file")
    drop_all.uncheck()
    effect.select_option("read")
    propose(console, "0" * 64, "added")
    look_again(page)
    expect(added).not_to_be_checked()
    expect(drop_all).not_to_be_checked()
    expect(read_file).to_be_checked()
    expect(effect).to_have_value("read")
    expect(page.get_by_role("status").filter(has_text="Other tools are proposed")).to_be_visible()
    readable(page)
    drop_all.check()
    propose(console, "2" * 64, "added")
    look_again(page)
    expect(drop_all).not_to_be_checked()
    expect(read_file).to_be_checked()
    page.get_by_role("button", name="Admit the chosen ones").click()
    expect(page.get_by_role("log")).to_contain_text("Admitted: 1 of 3 tools.")
    expect(page.get_by_role("list", name="Tools", exact=True)).to_contain_text("as admitted")
    for each in (added, drop_all, read_file):
        expect(each).not_to_be_checked()
    (found,) = console.service.call("admin", "GET", "/v1/tool-proposals").json()
    assert found["counts"] == {"admitted": 1, "changed": 0, "new": 2}


def test_what_agents_called_and_nobody_declared_is_seen_and_declared(console: Console) -> None:
    console.expect_trouble("404")
    for number, tool in enumerate(("frobnicate<b>", "frobnicate<b>", "mcp__hr__payroll", "***")):
        call = {"toolCallId": f"call-{number}", "toolName": tool, "inputPayload": {}}
        console.post("tool.called", call, run="run-1", agent="clerk")
    watch(console)
    viewer, page = entered(console, "/tools", "viewer"), entered(console, "/tools", "admin")
    for each in (viewer, page):
        tools = each.get_by_role("list", name="Undeclared tools").get_by_role("listitem")
        expect(tools).to_have_count(3)
        expect(tools.first).to_contain_text("frobnicate<b>2 callsby clerk")
    expect(viewer.get_by_role("button", name="Declare…")).to_have_count(0)
    expect(tools.filter(has_text="***")).to_contain_text("No tool set can name it.")
    readable(page)
    for name, effect in (("frobnicate", "send"), ("payroll", "pay")):
        tools.filter(has_text=name).get_by_role("button", name="Declare…").click()
        page.get_by_label("What it does").select_option(effect)
        readable(page)
        page.get_by_role("dialog").get_by_role("button", name="Declare", exact=True).click()
        expect(page.locator("dialog")).to_have_count(0)
        expect(tools.filter(has_text=name)).to_have_count(0)
    expect(page.get_by_role("list", name="Tool sets")).to_contain_text("Tools that agents were seen to call")
    stored = console.service.call("viewer", "GET", "/v1/tools/seen-tools").json()
    assert [(each["names"], each["kind"], each["effect"]) for each in stored["tools"]] == [
        (["=frobnicate<b>"], "other", "send"),
        (["=mcp__hr__payroll"], "other", "pay"),
    ]


def test_a_viewer_reads_what_is_declared(console: Console) -> None:
    page = entered(console, "/tools", "viewer")
    expect(page.get_by_text("Nothing is declared")).to_be_visible()
    expect(page.get_by_role("heading", name="Proposed tools")).to_have_count(0)
