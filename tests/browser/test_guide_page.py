"""The guide in a real Chromium: found by searching, read on any screen, with nothing from elsewhere."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.support import Console
from tests.browser.test_looks import readable

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("width", [390, 768, 1440])
def test_every_kind_of_page_can_be_read(console: Console, width: int) -> None:
    page = console.page(viewport={"width": width, "height": 900})
    for path in ("/docs", "/docs/tutorial", "/docs/how-to/reviewers", "/docs/reference/endpoints"):
        page.goto(path)
        expect(page.get_by_role("searchbox")).to_be_in_viewport()
        readable(page)
    page.keyboard.press("/")
    page.keyboard.type("webhook")
    expect(page.locator("#results a").first).to_be_visible()
    readable(page)


def found(page: Page, words: str) -> list[str]:
    page.get_by_role("searchbox").fill(words)
    expect(page.locator("#results p")).to_be_visible()
    return page.locator("#results a strong").all_inner_texts()


def test_searching_with_the_keys_alone(console: Console) -> None:
    page = console.page()
    page.goto("/docs")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("rate limit")
    expect(page.locator("#results a").first).to_contain_text(re.compile("rate limit", re.IGNORECASE))
    expect(page.locator("#announcer")).to_have_text(re.compile(r"\d+ places"))
    page.keyboard.press("ArrowDown")
    expect(page.locator("#results a").first).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#results")).to_be_hidden()
    page.get_by_role("searchbox").fill("GOVERNANCE_GIT")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/docs/.+"))


def test_what_is_found(console: Console) -> None:
    page = console.page()
    page.goto("/docs/tutorial")
    assert found(page, "GOVERNANCE_WEBHOOK_RETRY") == ["Settings"]
    assert found(page, "glossary")
    assert found(page, "kill switch")[0]
    assert found(page, "<img src=x onerror=alert(1)>") == []
    expect(page.locator("#results")).to_have_text("Nothing was found")


def test_code_can_be_copied(console: Console) -> None:
    page = console.page(permissions=["clipboard-read", "clipboard-write"])
    page.goto("/docs/tutorial")
    page.get_by_role("button", name="Copy").first.click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("export GOVERNANCE_ADMIN_EMAIL=")


def test_the_way_there_and_back(console: Console) -> None:
    page = console.reviewer()
    page.get_by_role("link", name="Guide").click()
    expect(page.get_by_role("heading", name="Agent Governance Service")).to_be_visible()
    page.get_by_role("navigation", name="Guide").get_by_role("link", name="The first hour").click()
    expect(page).to_have_title("The first hour · Agent Governance Guide")
    page.get_by_role("link", name="API", exact=True).click()
    expect(page.locator(".opblock").first).to_be_visible()
    page.get_by_role("link", name="The guide").click()
    page.get_by_role("link", name="Console").click()
    expect(page).to_have_url(re.compile("/approvals$"))
