"""The console as the README and the guide show it; KEEP_PICTURES=1 (`make pictures`) keeps these pictures."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from api.health.history import Point, slot_of
from api.metrics import LATENCY_BOUNDS
from tests.browser.support import POLICIES, Console, link
from tests.browser.test_alerts_and_agents import watch
from tests.harness.application import write_files
from tests.harness.guide import GUIDE
from tests.harness.running_service import Served
from tests.harness.watching import files

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


def keep_approval(page: Page, name: str, folder: Path) -> None:
    expect(page.locator("#subject")).to_have_text("Pay 2,940 EUR")
    expect(page.locator(".story")).to_be_attached()
    keep(page, name, folder)


def keep(page: Page, name: str, folder: Path) -> None:
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
    keep_approval(opened(console, viewport={"width": 1240, "height": 820}), "approvals.png", tmp_path)


def test_an_approval_on_a_phone_in_the_dark(console: Console, tmp_path: Path) -> None:
    phone = {"viewport": {"width": 390, "height": 760}, "is_mobile": True, "has_touch": True}
    keep_approval(opened(console, **phone, color_scheme="dark"), "phone.png", tmp_path)


def test_the_start_page_on_a_screen(browser: Browser, tmp_path: Path) -> None:
    no_wires = POLICIES[0] | {"policyId": "no-wires", "name": "No wires", "action": "block"}
    no_wires["description"] = "Wires are sent by the treasury, never by an agent."
    no_wires |= {"matchConditions": [{"field": "toolName", "operator": "equals", "value": "wire"}]}
    with Served(tmp_path, [*POLICIES, no_wires], live=True) as service, Console(service, browser) as console:
        write_files(service.settings.policies_dir, files("repeated-refusals"))
        console.until(
            lambda: service.call("admin", "GET", "/v1/detectors/repeated-refusals").status_code == 200
        )
        watch(console)  # what was before the first look raises nothing
        waiting(console)
        for number in range(12):
            call = {"toolCallId": f"w-{number}", "toolName": "wire", "inputPayload": {"amount": 9000}}
            console.post("tool.called", call, run=f"run-{number // 6}", agent="treasury")
        watch(console)
        service.user("admin", "ada@example.com")
        page = console.page(viewport={"width": 1240, "height": 860})
        page.goto("/overview")
        console.fill_login(page, "ada@example.com")
        for title in ("What waits", "What is unusual", "Stopped lately"):
            expect(page.get_by_role("list", name=title).get_by_role("link").first).to_be_visible()
        keep(page, "overview.png", tmp_path)


def day(console: Console) -> None:
    """An hour of a busy morning, with a pause of the agents in it."""
    heartbeat = console.service.context.heartbeat
    now = slot_of(console.service.clock())
    points = []
    for step in range(235):
        calls = (
            0 if 96 < step < 112 else round(2600 + 1400 * math.sin(step / 26) + 130 * math.sin(step * 2.1))
        )
        latency = (calls * 9 // 10, calls // 20, calls // 40, calls // 60, *(0,) * (len(LATENCY_BOUNDS) - 3))
        points.append(
            Point(
                slot=now - 234 + step,
                allowed=calls,
                blocked=calls // 14,
                awaiting_approval=calls // 900,
                events=calls * 2,
                latency=latency,
                writer=calls // 700,
                webhooks=calls // 400 if step > 180 else 0,
                notifications=calls // 2000,
                approvals=4 + step // 30,
            )
        )
    heartbeat.history.add(heartbeat.node_id, points, now)


def test_the_health_on_a_screen(browser: Browser, tmp_path: Path) -> None:
    with Served(tmp_path, POLICIES, live=True) as service, Console(service, browser) as console:
        day(console)
        service.user("viewer", "vera@example.com")
        page = console.page(viewport={"width": 1240, "height": 900})
        page.goto("/status")
        console.fill_login(page, "vera@example.com")
        expect(page.locator(".plot path").first).to_have_attribute("d", re.compile("L"))
        keep(page, "health.png", tmp_path)
