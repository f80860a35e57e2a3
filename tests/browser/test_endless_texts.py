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
    "recipients": {
        "tool": "send_email",
        "payload": {"hold": 1, "to": "a@b.example, " * 70_000, "subject": "s", "body": "x"},
    },
    "keywords": {"tool": "payments.query", "payload": {"sql": f"DROP TABLE users; {'select ' * 130_000}"}},
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


def test_a_run_of_much_is_written_out_where_it_is_opened(console: Console) -> None:
    payload = {"numbers": list(range(19_000)), "last": "END"}
    for number in range(12):
        call = {"toolCallId": f"large-{number}", "toolName": "look", "inputPayload": payload}
        console.post("tool.called", call, run="large", agent="clerk")
    page = console.reviewer()
    page.goto("/runs/large")
    details = page.locator(".calls details")
    expect(details).to_have_count(12)
    expect(page.locator(".calls .payload")).to_have_count(0)
    details.nth(3).locator("summary").click()
    expect(details.nth(3).locator(".payload")).to_contain_text('"END"')
    expect(page.locator(".calls .payload")).to_have_count(1)


def test_the_host_that_looks_like_one_of_very_many_is_told(console: Console) -> None:
    hosts = " ".join(f"h{number:x}.example.org" for number in range(30_000))
    for number in range(4):
        call = {"toolCallId": f"read-{number}", "toolName": "look", "inputPayload": {}}
        console.post("tool.called", call, run="hosts", agent="clerk")
        output = {"toolCallId": f"read-{number}", "outputPayload": {"text": f"{hosts} bank.example.com"}}
        console.post("tool.completed", output, run="hosts", agent="clerk")
    to = ["a@bank.examp1e.com", *(f"a@h{number:x}.example.net" for number in range(15))]
    approval = console.hold("send_email", {"hold": 1, "to": to, "body": "x"}, run="hosts")
    page = console.reviewer(approval)
    expect(page.locator(".doubts")).to_contain_text("looks like bank.example.com")
    decide(page, "Reject")
    expect(page.locator(".notice")).to_contain_text("Rejected")
