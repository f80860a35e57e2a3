"""Smoke."""

import pytest
from playwright.sync_api import expect
from tests.browser.support import Console

pytestmark = pytest.mark.browser


def test_smoke(console: Console) -> None:
    one = console.hold(payload={"amount": 120})
    page = console.reviewer(one)
    expect(page.get_by_role("heading", name="payments.send")).to_be_visible()
    page.screenshot(path="/tmp/shots/smoke.png")
