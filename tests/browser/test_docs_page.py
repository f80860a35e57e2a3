"""The interactive API documentation in a real Chromium: complete, usable, and with nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from api.server.routes import ROUTES
from api.store.webhooks.webhooks import EVENTS
from tests.browser.support import POLICIES, Console
from tests.harness.running_service import Served

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def console(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """One service for all of these: nothing else takes the browser as long as to draw this page."""
    with Served(tmp_path_factory.mktemp("docs"), POLICIES) as service, Console(service, browser) as console:
        yield console


@pytest.fixture(scope="module")
def page(console: Console) -> Page:
    page = console.page()
    page.goto("/api/docs")
    expect(page.locator(".opblock")).to_have_count(len(ROUTES) + len(EVENTS))
    return page


def operation(page: Page, method: str, path: str) -> str:
    """The selector of an operation's block, opened."""
    wanted = page.locator(".opblock").filter(
        has=page.locator(f'.opblock-summary-path[data-path="{path}"]'),
        has_text=re.compile(rf"^{method}"),
    )
    expect(wanted).to_have_count(1)
    wanted.locator(".opblock-summary-control").click()
    expect(wanted).to_have_class(re.compile("is-open"))
    return f"#{wanted.get_attribute('id')}"


def try_out(page: Page, block: str) -> None:
    page.locator(block).get_by_role("button", name="Try it out").click()
    page.locator(block).get_by_role("button", name="Execute").click()


def test_every_operation_is_listed_under_its_tag(page: Page) -> None:
    expect(page).to_have_title("API - Agent Governance Service")
    expect(page.get_by_role("heading", name="Agent Governance Service")).to_be_visible()
    shown = {
        (
            block.locator(".opblock-summary-method").inner_text(),
            block.locator("[data-path]").get_attribute("data-path"),
        )
        for block in page.locator(".opblock").all()
    }
    served = {(route.method, re.sub(r":([A-Za-z]+)", r"{\1}", route.path)) for route in ROUTES}
    assert shown == served | {("POST", event) for event in EVENTS}
    headings = page.locator("h3.opblock-tag").all()
    assert {heading.get_attribute("data-tag") for heading in headings} == {route.tag for route in ROUTES}


def test_get_health_can_be_tried_out(page: Page) -> None:
    block = operation(page, "GET", "/health")
    try_out(page, block)
    answer = page.locator(block).locator(".live-responses-table")
    expect(answer.locator(".response-col_status").last).to_contain_text("200")
    expect(answer).to_contain_text('"database": "connected"')


def test_an_agent_can_be_played_with_a_key(console: Console, page: Page) -> None:
    page.get_by_role("button", name="Authorize").click()
    dialog = page.locator(".modal-ux")
    field = dialog.locator(".auth-container").filter(has_text="X-API-Key").locator("input")
    field.fill(console.service.api_key)
    dialog.locator(".auth-container").filter(has_text="X-API-Key").get_by_role("button", name="Apply").click()
    dialog.get_by_role("button", name="Close").first.click()
    block = operation(page, "GET", "/v1/runs")
    console.hold(agent="first")
    try_out(page, block)
    expect(page.locator(block).locator(".live-responses-table")).to_contain_text('"runId": "run-of-first"')


def test_the_models_of_a_body_are_shown(page: Page) -> None:
    block = operation(page, "POST", "/v1/events")
    expect(page.locator(block)).to_contain_text("eventType")
    expect(page.locator(block).locator(".errors-wrapper")).to_have_count(0)
    expect(page.locator(".errors-wrapper")).to_have_count(0)
