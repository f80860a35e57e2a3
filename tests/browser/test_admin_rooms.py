"""The rooms of admins: audit, webhooks, people and keys; and the health, which everybody may see."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.support import Console, entered
from tests.browser.test_looks import readable
from tests.harness.application import PASSWORD

pytestmark = pytest.mark.browser


def test_the_record_is_searched_read_and_verified(console: Console) -> None:
    console.hold(agent="clerk", run="run-1")
    page = entered(console, "/audit?decision=awaiting_approval", "admin")
    records = page.get_by_role("list", name="Records").get_by_role("listitem")
    expect(records).to_have_count(1)
    expect(records).to_contain_text("payments.send")
    readable(page)
    page.get_by_role("button", name="Verify the log").click()
    expect(page.locator(".verified")).to_contain_text("The log is whole")
    with page.expect_download() as exported:
        page.get_by_role("button", name="Export these records").click()
    lines = exported.value.path().read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 and '"decision":"awaiting_approval"' in lines[0]
    records.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Record aud_")
    expect(page.get_by_role("region", name="The record, as it was hashed")).to_contain_text("previousHash")
    readable(page)
    page.get_by_role("link", name="run-1").click()
    expect(page.get_by_role("heading", name="Run run-1")).to_be_focused()


def test_a_broken_log_is_told(console: Console) -> None:
    console.hold()
    console.service.write(
        lambda transaction: transaction.store.change("DELETE FROM audit WHERE sequence = 2", ())
    )
    page = entered(console, "/audit", "admin")
    page.get_by_role("button", name="Verify the log").click()
    expect(page.locator(".verified .problem")).to_contain_text("The log is broken")


def test_a_webhook_is_added_tried_changed_and_deleted(console: Console) -> None:
    console.expect_trouble("Failed to load resource")
    page = entered(console, "/webhooks", "admin")
    page.get_by_role("button", name="Add a webhook").click()
    dialog = page.get_by_role("dialog", name="Add a webhook")
    dialog.get_by_label("Address").fill("http://127.0.0.1/hook")
    dialog.get_by_label("tool.blocked").check()
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(dialog.locator(".wrong")).not_to_be_empty()  # at the address, which has to be public
    dialog.get_by_label("Address").fill("https://hooks.example/in")
    dialog.get_by_role("button", name="Add", exact=True).click()
    secret = page.get_by_role("dialog", name="The signing secret")
    expect(secret.locator("code")).to_contain_text("whsec_")
    readable(page)
    secret.get_by_role("button", name="Close").click()
    page.get_by_role("list", name="Webhooks").get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("https://hooks.example/in")
    page.get_by_role("button", name="Send a test").click()
    delivery = page.get_by_role("list", name="Deliveries").get_by_role("listitem")
    expect(delivery).to_contain_text("webhook.test")
    readable(page)
    page.get_by_role("button", name="Switch off").click()
    expect(page.get_by_role("button", name="Switch on")).to_be_visible()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("Nobody is told over HTTP yet.")).to_be_visible()


def test_somebody_is_added_and_their_role_is_changed(console: Console) -> None:
    console.expect_trouble("Failed to load resource")
    page = entered(console, "/people", "admin")
    page.get_by_role("button", name="Add somebody").click()
    dialog = page.get_by_role("dialog", name="Add somebody")
    dialog.get_by_label("E-mail").fill("nina@example.com")
    dialog.get_by_label("First password").fill("short")
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(dialog.locator(".wrong")).not_to_be_empty()
    readable(page)
    dialog.get_by_label("First password").fill(PASSWORD)
    dialog.get_by_role("button", name="Add", exact=True).click()
    nina = page.get_by_role("list", name="People").get_by_role("listitem").filter(has_text="nina@")
    expect(nina).to_contain_text("reviewer")
    nina.get_by_role("button", name="Role").click()
    page.get_by_role("dialog").get_by_label("Role", exact=True).select_option("viewer")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(nina).to_contain_text("viewer")
    nina.get_by_role("button", name="Disable").click()
    expect(nina).to_contain_text("disabled")
    readable(page)


def test_nobody_disables_themselves_by_one_click(console: Console) -> None:
    console.expect_trouble("Failed to load resource")
    page = entered(console, "/people", "admin")
    mine = page.get_by_role("list", name="People").get_by_role("listitem").filter(has_text="(you)")
    mine.get_by_role("button", name="Disable").click()
    dialog = page.get_by_role("dialog", name="Disable yourself")
    readable(page)
    dialog.get_by_role("button", name="Close").click()
    page.reload()
    expect(mine).not_to_contain_text("disabled")
    mine.get_by_role("button", name="Disable").click()
    dialog.get_by_role("button", name="Disable").click()
    expect(page.get_by_text("Your session has ended.")).to_be_visible()
    expect(dialog).to_be_hidden()


def test_a_key_is_made_shown_once_and_revoked(console: Console) -> None:
    page = entered(console, "/people", "admin")
    page.get_by_role("button", name="Add a key").click()
    dialog = page.get_by_role("dialog", name="Add a key")
    dialog.get_by_label("Name").fill("billing")
    dialog.get_by_label("Agent").fill("clerk")
    dialog.get_by_label("Ends").fill("2199-12-31")
    dialog.get_by_role("button", name="Add", exact=True).click()
    shown = page.get_by_role("dialog", name="The new API key")
    secret = str(shown.locator("code").text_content())
    assert secret.startswith("agk_")
    shown.get_by_role("button", name="Close").click()
    expect(page.locator("dialog")).to_have_count(0)  # by its tag: closed, it has no role any more
    assert secret not in page.content()
    runs = console.service.http.get("/v1/runs", headers={"X-API-Key": secret})
    assert runs.status_code == 200
    key = page.get_by_role("list", name="API keys").get_by_role("listitem").filter(has_text="billing")
    expect(key).to_contain_text("clerk")
    expect(key).to_contain_text("never used · ends in ")
    key.get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(key).to_contain_text("revoked")
    assert console.service.http.get("/v1/runs", headers={"X-API-Key": secret}).status_code == 401


def test_whom_a_dialog_is_about_stands_in_it(console: Console) -> None:
    """Rows move under the hand when others add to the list."""
    console.service.call("admin", "POST", "/v1/api-keys", {"name": "billing"})
    nina = {"email": "nina@example.com", "password": PASSWORD, "role": "viewer"}
    console.service.call("admin", "POST", "/v1/users", nina)
    page = entered(console, "/people", "admin")
    for name, title, whom in (
        ("People", "Role", "nina@example.com"),
        ("People", "Password", "nina@example.com"),
        ("API keys", "Rotate", "billing"),
        ("API keys", "Revoke", "billing"),
    ):
        row = page.get_by_role("list", name=name).get_by_role("listitem").filter(has_text=whom)
        row.get_by_role("button", name=title).click()
        expect(page.get_by_role("dialog").locator(".hint").first).to_contain_text(whom)
        page.get_by_role("dialog").get_by_role("button", name="Close").click()


def test_a_password_is_changed_by_its_owner(console: Console) -> None:
    console.expect_trouble("Failed to load resource")
    page = entered(console, "/status", "viewer")
    page.locator(".who").click()
    dialog = page.get_by_role("dialog", name="Your password")
    dialog.get_by_label("Current password").fill("wrong")
    dialog.get_by_label("New password").fill("a much longer password than before")
    dialog.get_by_role("button", name="Change").click()
    expect(dialog.locator(".problem, .wrong").filter(has_text="password")).to_be_visible()
    dialog.get_by_label("Current password").fill(PASSWORD)
    dialog.get_by_role("button", name="Change").click()
    expect(page.get_by_role("log")).to_contain_text("Your password is changed.")
    expect(page.get_by_text("The service decides and records.")).to_be_visible()


def test_the_health_tells_what_is_wrong_with_the_files(console: Console) -> None:
    page = entered(console, "/status", "viewer")
    expect(page.get_by_text("The service decides and records.")).to_be_visible()
    expect(page.get_by_role("navigation")).not_to_contain_text("Audit")
    readable(page)


@pytest.mark.parametrize("place", ["/audit", "/webhooks", "/people"])
def test_rooms_of_admins_are_for_admins(console: Console, place: str) -> None:
    page = console.page()
    console.log_in(page, "reviewer", place)
    expect(page.get_by_role("heading", name="This needs another role")).to_be_visible()
    expect(page.get_by_role("main")).to_contain_text("the role admin")


def test_the_start_page_tells_what_waits_and_leads_there(console: Console) -> None:
    approval = console.hold(agent="clerk")
    page = entered(console, "/", "reviewer")
    waiting = page.get_by_role("list", name="What waits").get_by_role("link")
    expect(waiting).to_contain_text("Pay 120")
    readable(page)
    console.hold(agent="second")
    expect(waiting).to_have_count(2, timeout=10_000)
    waiting.first.click()
    expect(page).to_have_url(f"{console.address}/approvals?approvalId={approval}")


def test_the_start_page_of_a_viewer_has_no_approvals(console: Console) -> None:
    console.hold(agent="clerk")
    page = entered(console, "/", "viewer")
    expect(page.get_by_role("list", name="Latest runs").get_by_role("listitem")).to_have_count(1)
    expect(page.get_by_role("heading", name="What waits")).to_have_count(0)
