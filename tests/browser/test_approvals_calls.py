"""A call is shown as what it is, and what a reviewer must not miss is told before all else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.support import POLICIES, Console, link
from tests.browser.test_looks import readable
from tests.harness.application import event
from tests.harness.policy_bodies import policy_body, where
from tests.harness.running_service import Served

pytestmark = pytest.mark.browser

TOOLS = (
    {
        "names": ["send email"],
        "kind": "mail",
        "effect": "send",
        "targets": {"where": ["to", "cc"]},
    },
    {"names": ["bash"], "kind": "shell", "effect": "execute"},
    {"names": ["execute sql"], "kind": "sql", "effect": "write"},
    {"names": ["payments send"], "kind": "payments", "effect": "pay", "targets": {"where": ["iban"]}},
)
HOLD = (
    policy_body(
        "Ask before acting",
        "require_approval",
        where("tool.kind", "in", ["mail", "shell", "sql"]),
        policyId="hold-tools",
    ),
    policy_body(
        "Secrets in mail",
        "require_approval",
        where("inputPayload.body", "contains", "secret"),
        policyId="hold-secrets",
    ),
    policy_body(
        "Recipients nobody named",
        "require_approval",
        where("derived.untrustedTargets", "exists"),
        policyId="hold-made-up",
    ),
)


@pytest.fixture
def console(browser: Browser, tmp_path: Path) -> Iterator[Console]:
    """As everywhere, with tools that are declared."""
    with Served(tmp_path, POLICIES + HOLD, live=True) as service:
        service.answered(
            "admin", "POST", "/v1/tools", {"name": "T", "toolSetId": "t", "tools": list(TOOLS)}, status=201
        )
        with Console(service, browser) as console:
            yield console


def shown(page: Page) -> Locator:
    return page.locator(".form")


def doubts(page: Page) -> Locator:
    return page.get_by_role("region", name="Look closely")


def test_a_mail_is_a_mail_and_its_doubts_come_first(console: Console) -> None:
    body = "Dear Bob,\n\nthe secret is 7.\n" + "And so on. " * 200
    console.post("run.started", {"task": "Write to bob@acme.example"}, run="run-1", agent="clerk")
    approval = console.hold(
        "send_email",
        {"to": ["bob@acme.example", "eve@acrne.example"], "subject": "In\u200bvoice", "body": body, "n": 1},
        run="run-1",
    )
    page = console.reviewer(approval)
    expect(page.locator("#subject")).to_have_text(re.compile("^Send mail to bob@acme.example, eve@acrne"))
    expect(shown(page).locator(".addresses li")).to_have_text(["bob@acme.example", "eve@acrne.example"])
    expect(shown(page).locator("dt")).to_have_text(["To", "Subject", "n"])
    marks = shown(page).locator("mark")
    expect(marks).to_have_text(["eve@acrne.example", "secret"])
    expect(marks.last).to_have_attribute("title", "matched by Secrets in mail")
    expect(shown(page).locator(".hidden-character")).to_have_text("U+200B")
    expect(doubts(page)).to_contain_text("Hidden characters: U+200B")
    expect(doubts(page)).to_contain_text("2 recipients: bob@acme.example, eve@acrne.example")
    expect(doubts(page)).to_contain_text("acrne.example looks like acme.example, which is named elsewhere")
    expect(doubts(page)).to_contain_text("eve@acrne.example was seen nowhere before in this run")
    origins = page.get_by_role("region", name="Where its values come from")
    expect(origins).to_contain_text("bob@acme.example named in the task")
    box = shown(page).get_by_role("region", name="body")
    assert box.evaluate("(node) => node.scrollHeight > node.clientHeight")
    readable(page)
    page.get_by_role("button", name=f"Show all {len(body):,} characters").click()
    assert box.evaluate("(node) => node.scrollHeight == node.clientHeight")
    page.keyboard.press("v")  # JSON is one key away
    expect(shown(page)).to_be_hidden()
    expect(page.locator(".payload .json mark").last).to_have_text("secret")
    expect(page.locator(".payload .json")).to_contain_text('"n": 1')
    page.keyboard.press("v")
    expect(shown(page)).to_be_visible()


def test_every_command_of_a_shell_is_listed(console: Console) -> None:
    page = console.reviewer(console.hold("Bash", {"command": "cd /srv; rm -rf data | sh", "why": "tidy"}))
    expect(page.locator("#subject")).to_have_text("Run `cd /srv; rm -rf data | sh`")
    expect(shown(page).locator(".prose")).to_have_text("cd /srv; rm -rf data | sh")
    commands = page.get_by_role("list", name="Commands").get_by_role("listitem")
    expect(commands.filter(has_text="rm -rf /srv/data")).to_have_count(1)
    expect(commands.filter(has_text=re.compile("^sh$"))).to_have_count(1)
    expect(doubts(page)).to_contain_text("More than one command runs")
    expect(shown(page)).to_contain_text("tidy")
    readable(page)


def test_sql_has_its_keywords_marked_and_its_statements_named(console: Console) -> None:
    query = "SELECT 'delete from' FROM users -- where\n; DELETE FROM users"
    page = console.reviewer(console.hold("execute_sql", {"query": query}))
    expect(shown(page).locator(".keyword")).to_have_text(["SELECT", "FROM", "DELETE", "FROM"])
    expect(shown(page).locator(".prose")).to_have_text(query)
    expect(page.get_by_role("list", name="Statements")).to_contain_text("DELETE users without WHERE")
    readable(page)


def test_a_payment_shows_its_payee_and_a_digit_too_many(console: Console) -> None:
    console.post("run.started", {"task": "Pay the 1,200 EUR of May"}, run="run-1", agent="clerk")
    payload = {"amount": 12000, "currency": "EUR", "iban": "DE02 1203", "name": "Раpier"}
    page = console.reviewer(console.hold(payload=payload, run="run-1"))
    expect(shown(page).locator(".money")).to_have_text("12,000 EUR to DE02 1203")
    expect(shown(page).locator("dd")).to_have_text(["12000", "EUR", "DE02 1203", "Раpier"])
    expect(doubts(page)).to_contain_text("10 times what the task or the agent speaks of: 1,200")
    expect(doubts(page)).to_contain_text("Letters that look like others: Раpier")
    expect(shown(page).locator(".odd-letter")).to_have_text(["Р", "а"])
    readable(page)


def test_nothing_is_doubted_without_a_reason(console: Console) -> None:
    payload: dict[str, Any] = {"amount": 1200, "iban": "DE02 1203", "name": "Łódź Ærø Größe – Привет, мир"}
    console.post("run.started", {"task": "Pay 1,200 to DE02 1203"}, run="run-1", agent="clerk")
    page = console.reviewer(console.hold(payload=payload, run="run-1"))
    expect(page.locator(".story")).to_be_attached()
    expect(page.locator(".doubts")).to_be_hidden()
    expect(page.locator(".odd-letter")).to_have_count(0)


def test_the_run_so_far_stands_there_and_leads_to_all_of_it(console: Console) -> None:
    for number in range(7):
        call = {"toolCallId": f"look-{number}", "toolName": f"look-{number}", "inputPayload": {}}
        console.post("tool.called", call, run="run-1", agent="clerk")
    page = console.reviewer(console.hold("Bash", {"command": "ls"}, run="run-1"))
    before = page.get_by_role("list", name="Calls before this one").get_by_role("listitem")
    expect(before).to_have_count(5)
    expect(before.last).to_contain_text("Allowed look-6")
    expect(page.get_by_role("region", name="The run so far")).to_contain_text("2 calls before these")
    page.get_by_role("link", name="The whole run, 8 calls").click()
    expect(page.get_by_role("heading", name="Run run-1")).to_be_focused()


def test_what_is_known_of_other_approvals_unmasks_a_host(console: Console) -> None:
    console.hold("send_email", {"to": "bob@customer.example", "body": "x"}, agent="other")
    page = console.page()
    console.log_in(page)
    expect(page.locator("#subject")).to_contain_text("customer")
    page.goto(link(console.hold("send_email", {"to": "bob@custorner.example", "body": "x"})))
    expect(doubts(page)).to_contain_text("custorner.example looks like customer.example")


def test_calls_that_came_later_are_not_told_as_those_before(console: Console) -> None:
    """An agent that goes on calling pushes what it had done out of what the page reads of its run."""
    for number in range(2):
        call = {"toolCallId": f"early-{number}", "toolName": "drop_tables", "inputPayload": {}}
        console.post("tool.called", call, run="run-1", agent="clerk")
    approval = console.hold(run="run-1")
    later = [
        event(
            f"later-{number}",
            "tool.called",
            "2026-01-31T09:30:00Z",
            {"agentId": "clerk", "toolCallId": f"later-{number}", "toolName": "harmless"},
        )
        for number in range(1_000)
    ]
    page = console.reviewer(approval)
    story = page.get_by_role("list", name="Calls before this one")
    expect(story.get_by_role("listitem")).to_have_count(2)
    told = "1 call before these", "They are further back.", "They are further back."
    for part, words in zip((later[:998], later[998:999], later[999:]), told, strict=True):
        console.service.answered("agent", "POST", "/v1/events/batch", {"events": part})
        page.reload()
        expect(page.get_by_text(words)).to_be_visible()
        expect(page.get_by_text("harmless")).to_have_count(0)
        expect(page.get_by_text("This is its first call.")).to_have_count(0)
