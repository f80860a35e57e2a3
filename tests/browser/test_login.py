"""Logging in, and out; sessions that end; roles. The place of a link survives all of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from api.store import accounts
from tests.browser.support import Console, line_to, link, row
from tests.harness.application import PASSWORD

pytestmark = pytest.mark.browser

REFUSED = "Failed to load resource"


def test_a_link_leads_through_the_login_to_its_approval(console: Console) -> None:
    console.hold(agent="first")
    linked = console.hold(agent="second")
    page = console.page()
    page.goto(link(linked))
    expect(page.get_by_label("E-mail")).to_be_focused()
    expect(page).to_have_title("Log in · Agent Governance")
    page.keyboard.type(str(console.service.user("reviewer", "rita@example.com")["email"]))
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.get_by_role("article").get_by_text("run-of-second")).to_be_visible()
    expect(page).to_have_url(console.address + link(linked))
    expect(page.get_by_role("heading", name="Approvals", exact=True)).to_be_focused()
    expect(page.locator(".who")).to_have_text("rita@example.com · reviewer")


def test_a_wrong_password_is_told_and_can_be_mended(console: Console) -> None:
    console.expect_trouble(REFUSED)
    email = str(console.service.user("reviewer")["email"])
    page = console.page()
    page.goto("/approvals")
    console.fill_login(page, email, "guessed")
    expect(page.get_by_role("alert").filter(has_text="password")).to_have_text(
        "The e-mail or the password is wrong."
    )
    expect(page.get_by_label("Password")).to_be_focused()
    console.fill_login(page, email)
    expect(page.get_by_text("All clear")).to_be_visible()


def test_too_many_tries_are_told(console: Console) -> None:
    console.expect_trouble(REFUSED)
    email = str(console.service.user("reviewer")["email"])
    page = console.page()
    page.goto("/approvals")
    for _ in range(30):
        with page.expect_response("**/auth/login") as answer:
            console.fill_login(page, email, "guessed")
        expect(page.get_by_role("button", name="Log in")).to_be_enabled()
        if answer.value.status == 429:
            break
    expect(page.locator(".problem")).to_contain_text("Too many tries")


def test_a_service_that_is_away_is_told_at_the_login(console: Console) -> None:
    console.expect_trouble(REFUSED)
    with line_to(console.address) as line:
        page = console.page(line.address)
        page.goto("/approvals")
        line.cut()
        email = str(console.service.user("reviewer")["email"])
        console.fill_login(page, email)
        expect(page.locator(".problem")).to_have_text("The service cannot be reached. Try again in a moment.")
        line.mend()
        console.fill_login(page, email)
        expect(page.get_by_text("All clear")).to_be_visible()


def test_a_session_that_ends_comes_back_to_the_same_place(console: Console) -> None:
    console.expect_trouble(REFUSED)
    console.hold(agent="first")
    second = console.hold(agent="second")
    page = console.reviewer()
    user = page.user  # type: ignore[attr-defined]
    row(page, "second").click()
    expect(page.get_by_role("article").get_by_text("run-of-second")).to_be_visible()
    page.get_by_label("Reason").fill("I have asked the bank")
    console.service.clock.ahead = console.service.settings.token_seconds + 60
    page.keyboard.press("Escape")
    page.keyboard.press("k")  # the next request finds the session over
    expect(page.get_by_text("Your session has ended.")).to_be_visible()
    expect(page.get_by_role("article")).to_have_count(0)
    console.fill_login(page, user)
    expect(page.get_by_role("article").get_by_text("run-of-first")).to_be_visible()
    page.keyboard.press("j")
    expect(page.get_by_role("article").get_by_text("run-of-second")).to_be_visible()
    expect(page.get_by_label("Reason")).to_have_value("I have asked the bank")
    assert console.approval(second)["status"] == "pending"


def test_a_session_ends_by_itself_when_its_time_is_over(console: Console) -> None:
    approval = console.hold()
    page = console.page()
    page.clock.install()
    email = console.log_in(page, place=link(approval))
    expect(page.get_by_role("heading", name="Pay 120")).to_be_visible()
    page.clock.fast_forward(console.service.settings.token_seconds * 1000 + 1000)
    expect(page.get_by_text("Your session has ended.")).to_be_visible()
    expect(page.get_by_text("payments.send")).to_have_count(0)
    console.fill_login(page, email)
    expect(page.get_by_role("heading", name="Pay 120")).to_be_visible()


def approving_once_changed(console: Console, **changes: Any) -> Page:
    """A page on which somebody approves who was changed meanwhile."""
    console.expect_trouble(REFUSED)
    console.hold()
    page = console.page()
    user = console.service.user("reviewer")
    page.goto("/approvals")
    console.fill_login(page, user["email"])
    expect(page.get_by_role("heading", name="Pay 120")).to_be_visible()
    console.service.write(
        lambda transaction: accounts.change_user(transaction, "default", user["userId"], "a test", **changes)
    )
    page.keyboard.press("a")
    page.keyboard.press("Enter")
    return page


def test_a_disabled_user_is_out_at_once(console: Console) -> None:
    page = approving_once_changed(console, enabled=False)
    expect(page.get_by_text("Your session has ended.")).to_be_visible()


def test_logging_out_forgets_everything_in_every_tab(console: Console) -> None:
    console.hold()
    page = console.reviewer()
    expect(page.get_by_role("heading", name="Pay 120")).to_be_visible()
    other: Page = page.context.new_page()
    console.watch(other, console.address)
    other.goto("/approvals")
    expect(other.get_by_role("heading", name="Pay 120")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    for each in (page, other):
        expect(each.get_by_label("E-mail")).to_be_visible()
        expect(each.get_by_text("payments.send")).to_have_count(0)
    assert page.evaluate("localStorage.length + sessionStorage.length + document.cookie.length") == 0


@pytest.mark.parametrize("another", [False, True], ids=["nobody", "somebody else"])
def test_what_was_decided_is_sent_in_the_name_of_who_decided_it(console: Console, another: bool) -> None:
    approval = console.hold()
    page = console.reviewer(approval)
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.get_by_role("button", name="Send now")).to_be_visible()
    other: Page = page.context.new_page()
    console.watch(other, console.address)
    other.goto("/docs")
    if another:
        email = console.service.user("reviewer")["email"]
        login = console.service.log_in(email).json()
        kept = {"token": login["accessToken"], "user": login["user"], "until": 9e15}
        other.evaluate(f"localStorage.setItem('governance.session', {json.dumps(json.dumps(kept))})")
    else:
        other.goto("/runs")
        other.get_by_role("button", name="Log out").click()
    console.until(lambda: console.approval(approval)["status"] == "approved")
    assert console.approval(approval)["actor"] == page.user  # type: ignore[attr-defined]


def test_no_dialog_outlasts_what_it_was_opened_in(console: Console) -> None:
    page = console.reviewer(role="admin")
    other: Page = page.context.new_page()
    console.watch(other, console.address)
    other.goto("/people")
    page.get_by_role("button", name="Halt…").click()
    dialog = page.get_by_role("dialog", name="Halt")
    expect(dialog).to_be_visible()
    other.get_by_role("button", name="Log out").click()
    expect(page.locator("dialog")).to_have_count(0)
    expect(page.get_by_label("E-mail")).to_be_focused()
    console.fill_login(page, page.user)  # type: ignore[attr-defined]
    page.get_by_role("link", name="People").click()
    page.get_by_role("button", name="Add a key").click()
    page.go_back()
    expect(page.get_by_text("All clear")).to_be_visible()
    expect(page.locator("dialog")).to_have_count(0)


def test_a_viewer_is_told_kindly(console: Console) -> None:
    approval = console.hold()
    page = console.page()
    email = console.log_in(page, "viewer", link(approval))
    expect(page.get_by_role("heading", name="This needs another role")).to_be_focused()
    expect(page.get_by_role("main")).to_contain_text(f"You are logged in as {email}, with the role viewer.")
    expect(page.get_by_text("payments.send")).to_have_count(0)
    card = page.locator(".card")
    assert card.evaluate("(node) => node.scrollWidth <= node.clientWidth"), "a long address runs out of it"
    page.get_by_role("button", name="Log in as somebody else").click()
    console.fill_login(page, str(console.service.user("admin")["email"]))
    expect(page.get_by_role("heading", name="Pay 120")).to_be_visible()


def test_a_reviewer_who_becomes_a_viewer_is_told_kindly(console: Console) -> None:
    page = approving_once_changed(console, role="viewer")
    # Either the old token is refused, or the page notices the new role: never a button that does nothing.
    ended = page.get_by_text("Your session has ended.")
    told = page.get_by_role("heading", name="This needs another role")
    expect(ended.or_(told)).to_be_visible()


def test_an_admin_who_becomes_a_viewer_is_told_in_any_room(console: Console) -> None:
    console.expect_trouble(REFUSED)
    page = console.reviewer(role="admin")
    page.get_by_role("link", name="People").click()
    expect(page.get_by_role("button", name="Add somebody")).to_be_visible()
    user = next(
        each["userId"]
        for each in console.service.call("admin", "GET", "/v1/users").json()
        if each["email"] == page.user  # type: ignore[attr-defined]
    )
    assert console.service.call("admin", "PATCH", f"/v1/users/{user}", {"role": "viewer"}).status_code == 200
    page.get_by_role("link", name="Webhooks").click()
    expect(page.get_by_role("heading", name="This needs another role")).to_be_visible()
    expect(page.get_by_role("link", name="People")).to_have_count(0)


def test_a_proxy_that_refuses_everything_is_not_asked_without_end(console: Console) -> None:
    console.expect_trouble(REFUSED)
    page = console.reviewer(role="admin")
    asked: list[str] = []

    def refuse(route: Route) -> None:
        asked.append(route.request.url)
        route.fulfill(status=403, body="Forbidden")

    page.route("**/v1/**", refuse)
    page.get_by_role("link", name="Webhooks").click()
    expect(page.get_by_text("answered 403 without an explanation").first).to_be_visible()
    page.wait_for_timeout(1000)
    others = [each for each in asked if not each.endswith("/v1/me")]
    assert len(asked) <= 2 * len(others), f"{len(asked)} requests, {len(others)} of them for the room"
