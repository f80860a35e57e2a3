"""Forms of admins undo nothing that they do not show, and nothing that others have changed meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from api.store.notifications import channels
from api.store.webhooks.webhooks import EVENTS
from tests.browser.support import Console, entered

pytestmark = pytest.mark.browser
LIVE = True

SETTINGS = "/v1/organisation/settings"
ON_CALL = {"type": "slack", "events": sorted(channels.EVENTS), "secret": "chat"}


def webhook(console: Console, **body: Any) -> str:
    told = {"url": "https://hooks.example/in", "events": sorted(EVENTS)} | body
    made = console.service.answered("admin", "POST", "/v1/webhooks", told, status=201)
    return f"/webhooks/{made['webhookId']}"


def save(page: Page) -> None:
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.locator("dialog")).to_have_count(0)


def test_a_webhook_stays_told_of_all_that_it_was(console: Console) -> None:
    place = webhook(console, description="for the pager")
    page = entered(console, place, "admin")
    page.get_by_role("button", name="Change").click()
    page.get_by_role("dialog").get_by_label("Description").fill("")
    # Somebody else moves the receiver meanwhile.
    moved = {"url": "https://hooks.example/new"}
    assert console.service.call("admin", "PATCH", f"/v1{place}", moved).status_code == 200
    save(page)
    expect(page.get_by_text("for the pager")).to_have_count(0)
    now = console.service.call("admin", "GET", f"/v1{place}").json()
    assert sorted(now["events"]) == sorted(EVENTS)
    assert now["url"] == moved["url"]


def test_a_webhook_can_be_told_of_alerts(console: Console) -> None:
    page = entered(console, webhook(console, events=["run.failed"]), "admin")
    page.get_by_role("button", name="Change").click()
    page.get_by_role("dialog").get_by_label("alert.raised").check()
    save(page)
    expect(page.get_by_text("Told of")).to_contain_text("alert.raised")


def stored(console: Console) -> dict[str, Any]:
    found: dict[str, Any] = console.service.call("admin", "GET", SETTINGS).json()["settings"]["notifications"]
    return found


def store(console: Console, **wanted: Any) -> None:
    console.service.answered("admin", "PUT", SETTINGS, {"settings": {"notifications": wanted}})


def test_a_channel_stays_told_of_all_that_it_was(console: Console) -> None:
    store(console, **{"on-call": ON_CALL})
    page = entered(console, "/channels/on-call", "admin")
    page.get_by_role("button", name="Change").click()
    page.get_by_role("dialog").get_by_label("tool.blocked").uncheck()
    save(page)
    expect(page.locator(".known")).not_to_contain_text("tool.blocked")
    assert sorted(stored(console)["on-call"]["events"]) == sorted({*channels.EVENTS} - {"tool.blocked"})


def test_a_channel_that_others_changed_meanwhile_is_not_undone(console: Console) -> None:
    console.expect_trouble("Failed to load resource")
    store(console, **{"on-call": ON_CALL})
    page = entered(console, "/channels/on-call", "admin")
    page.get_by_role("button", name="Change").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("tool.blocked").uncheck()
    dialog.get_by_label("Address of its incoming webhook").fill("https://hooks.example/mine")
    store(console, **{"on-call": ON_CALL | {"events": ["alert.raised", "tool.blocked"]}})
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text(
        "Somebody has changed this channel since you opened it"
    )
    assert stored(console)["on-call"]["events"] == ["alert.raised", "tool.blocked"]
    assert console.service.call("admin", "GET", "/v1/notifications/secrets").json() == []


@pytest.mark.parametrize(
    ("name", "told"), [("on-call", "a channel of this name"), ("chat", "a secret of this name")]
)
def test_a_new_channel_replaces_no_other_one(console: Console, name: str, told: str) -> None:
    store(console, **{"on-call": ON_CALL})
    secret = {"name": "chat", "value": "https://hooks.example/theirs"}
    before = console.service.call("admin", "POST", "/v1/notifications/secrets", secret).json()
    page = entered(console, "/channels", "admin")
    page.get_by_role("button", name="Add a channel").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill(name)
    dialog.get_by_label("Kind").select_option("mattermost")
    dialog.get_by_label("Address of its incoming webhook").fill("https://hooks.example/mine")
    console.service.clock.advance(5)
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(dialog.locator(".wrong")).to_contain_text(told)
    assert stored(console) == {"on-call": ON_CALL}
    assert console.service.call("admin", "GET", "/v1/notifications/secrets").json() == [before]
    dialog.get_by_label("Name", exact=True).fill("second")
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("list", name="Channels").get_by_role("listitem")).to_have_count(2)
