"""The console as the README and the guide show it; KEEP_PICTURES=1 (`make pictures`) keeps these pictures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.support import Console, link
from tests.harness.guide import GUIDE

pytestmark = pytest.mark.browser

LARGEST = 150_000
PAYMENT = {
    "amount": 2940,
    "currency": "EUR",
    "to": {"name": "Łódź Papier Sp. z o.o.", "iban": "PL61 1090 1014 0000 0712 1981 2874"},
    "reference": "invoice 2026-118",
}


def waiting(console: Console) -> str:
    """Three agents wait; the approval of the last."""
    console.hold("payments.refund", {"amount": 640, "order": "o_19001"}, agent="support")
    console.hold("brief", {"to": "press@customer.example"}, agent="newsroom")
    return console.hold(
        payload=PAYMENT,
        agent="invoices",
        reason="The invoice is due tomorrow.",
        agentContext={"goal": "Pay the open invoices of January"},
    )


def keep(page: Page, name: str, folder: Path) -> None:
    expect(page.locator("#subject")).to_have_text("Pay 2,940 EUR")
    expect(page.locator(".story")).to_be_attached()
    picture = page.screenshot(animations="disabled")
    assert len(picture) < LARGEST
    target = GUIDE / "pictures" if os.environ.get("KEEP_PICTURES") == "1" else folder
    (target / name).write_bytes(picture)


def opened(console: Console, **options: Any) -> Page:
    """The newest approval as Rita sees it."""
    approval = waiting(console)
    console.service.user("reviewer", "rita@example.com")
    page = console.page(**options)
    page.goto(link(approval))
    console.fill_login(page, "rita@example.com")
    return page


def test_the_approvals_on_a_screen(console: Console, tmp_path: Path) -> None:
    keep(opened(console, viewport={"width": 1240, "height": 820}), "approvals.png", tmp_path)


def test_an_approval_on_a_phone_in_the_dark(console: Console, tmp_path: Path) -> None:
    phone = {"viewport": {"width": 390, "height": 760}, "is_mobile": True, "has_touch": True}
    keep(opened(console, **phone, color_scheme="dark"), "phone.png", tmp_path)
