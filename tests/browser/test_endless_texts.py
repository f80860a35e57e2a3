"""No text of an agent, however long, keeps a reviewer from the call that waits."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.support import Console, decide

pytestmark = pytest.mark.browser

WORD = "a" * 400_000
LONG: dict[str, dict[str, Any]] = {
    "a word without end": {"payload": {"hold": f"é{WORD}", "to": f"{'é.1' * 100_000}"}},
    "a word without end that is no host": {"agentContext": {"goal": WORD, "reasoning": "1." * 100_000}},
    "a word of hyphens": {"reason": "a-" * 100_000},
    "characters that cannot be seen": {"payload": {"hold": "\u200b" * 150_000}},
    "letters of another alphabet": {"payload": {"hold": "aа" * 100_000}},
    "lines": {"payload": {"hold": "\n" * 200_000}},
    "comments that do not end": {
        "tool": "payments.query",
        "payload": {"sql": f"DROP TABLE users; {'/* ' * 150_000}"},
    },
}


@pytest.mark.parametrize("name", LONG)
def test_what_is_endless_is_shown_and_decided(console: Console, name: str) -> None:
    approval = console.hold(**LONG[name])
    page = console.reviewer(approval)
    expect(page.locator("#subject")).to_be_visible()
    expect(page.locator(".payload, .form").first).to_be_visible()
    expect(page.locator("#story-title")).to_be_visible()
    decide(page, "Reject")
    expect(page.locator(".notice")).to_contain_text(re.compile("Rejected"))
    assert console.approval(approval)["status"] == "rejected"
