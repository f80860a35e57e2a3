"""The presets room: packs and presets for every role; parameters, settings, activation, upgrades."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.support import Console, entered
from tests.browser.test_looks import readable
from tests.browser.test_policies import MARKUP, SOON
from tests.harness.application import write_files

pytestmark = pytest.mark.browser
LIVE = True

BULK: dict[str, Any] = {
    "apiVersion": "governance/v1",
    "kind": "Preset",
    "presetId": "bulk",
    "category": "mail",
    "name": "Block mail to very many",
    "description": "Stops mail with more recipients than {{most}}.",
    "action": "block",
    "parameters": {"most": {"type": "integer", "description": "recipients that may be", "default": 20}},
    "matchConditions": [
        {"field": "toolName", "operator": "equals", "value": "send_email"},
        {"field": "inputPayload.count", "operator": "greater_than", "value": "{{most}}"},
    ],
    "examples": [{"match": True, "toolName": "send_email", "inputPayload": {"count": 100}}],
}
OUTSIDE: dict[str, Any] = {
    "apiVersion": "governance/v1",
    "kind": "Preset",
    "presetId": "outside",
    "category": "mail",
    "name": "Hold <b>mail</b> to outside",
    "description": MARKUP,
    "action": "require_approval",
    "matchConditions": [
        {"field": "derived.recipientDomains", "operator": "not_in", "value": "{{companyDomains}}"}
    ],
    "examples": [{"match": True, "toolName": "send_email", "inputPayload": {"to": "x@evil.example"}}],
}
PACK = {
    "apiVersion": "governance/v1",
    "kind": "Pack",
    "packId": "mails",
    "name": "Mail and more",
    "description": "All that is about mail.",
    "presets": ["bulk", "outside"],
}


@pytest.fixture(autouse=True)
def _presets(console: Console) -> None:
    put(console, presets=[BULK, OUTSIDE], packs=[PACK])
    console.until(lambda: len(presets(console)) == 2)


def put(console: Console, presets: list[dict[str, Any]], packs: list[dict[str, Any]]) -> None:
    files = {f"presets/mail/{each['presetId']}.yaml": json.dumps(each) for each in presets}
    files |= {f"packs/{each['packId']}.yaml": json.dumps(each) for each in packs}
    write_files(console.service.settings.policies_dir, files)


def presets(console: Console) -> list[dict[str, Any]]:
    groups = console.service.call("viewer", "GET", "/v1/policy-presets").json()
    packs = console.service.call("viewer", "GET", "/v1/policy-presets/packs").json()
    return [each for group in groups for each in group["presets"]] if packs else []


def policy(console: Console, policy_id: str) -> dict[str, Any]:
    found: dict[str, Any] = console.service.call("viewer", "GET", f"/v1/policies/{policy_id}").json()
    return found


def test_a_viewer_sees_what_presets_do_and_changes_nothing(console: Console) -> None:
    page = entered(console, "/presets")
    expect(page.get_by_role("list", name="Packs").get_by_role("listitem")).to_contain_text("0 of 2 active")
    expect(page.get_by_role("list", name="mail").get_by_role("listitem")).to_have_count(2)
    readable(page)
    page.get_by_label("Search").fill("VERY MANY")
    expect(page.get_by_role("list", name="Packs")).to_have_count(0)
    assert page.url.endswith("/presets?search=VERY+MANY")
    page.get_by_role("link", name="Block mail to very many").click()
    expect(page.get_by_role("heading", level=1, name="Block mail to very many")).to_be_focused()
    expect(page.get_by_text("inputPayload.count is more than 20")).to_be_visible()
    expect(page.get_by_role("list", name="Examples")).to_contain_text("send_email")
    expect(page.get_by_role("main").get_by_role("button")).to_have_count(0)
    readable(page)
    page.go_back()
    expect(page.get_by_label("Search")).to_have_value("VERY MANY")
    page.goto("/presets/outside")
    expect(page.locator(".missing")).to_contain_text("inactive until the organisation has “companyDomains”.")
    expect(page.get_by_role("heading", level=1)).to_have_text("Hold <b>mail</b> to outside")
    expect(page.locator(".description .hidden-character")).to_be_visible()
    readable(page)


def test_a_preset_is_activated_with_parameters(console: Console) -> None:
    console.expect_trouble("422")
    page = entered(console, "/presets/bulk", "admin")
    most = page.get_by_label("most")
    most.fill("many")
    page.get_by_role("button", name="Activate").click()
    expect(page.locator(".field .wrong")).to_contain_text("`most` must be a whole number")
    most.fill("5")
    expect(page.get_by_role("list", name="Conditions")).to_contain_text("inputPayload.count is more than 5")
    page.get_by_role("button", name="Activate").click()
    expect(page.get_by_role("list", name="Policies made").get_by_role("listitem")).to_have_count(1)
    expect(page.get_by_role("button", name="Activate")).to_have_count(0)
    assert policy(console, "bulk")["presetParameters"] == {"most": 5}


def test_a_preset_shows_the_rate_and_the_terms_that_are_chosen(console: Console) -> None:
    whole = {"type": "integer", "description": "of it"}
    terms = {"approvers": "{{people}}", "expiresAfterSeconds": "{{wait}}"}
    slow = BULK | {
        "presetId": "slow",
        "action": "require_approval",
        "rateLimit": {"limit": "{{calls}}", "windowSeconds": "{{window}}"},
        "approval": terms,
        "parameters": BULK["parameters"]
        | {"calls": whole | {"default": 5}, "window": whole | {"default": 60}}
        | {"people": whole | {"default": 2}, "wait": whole | {"default": 3600}},
    }
    put(console, presets=[slow], packs=[])
    console.until(lambda: len(presets(console)) == 3)
    page = entered(console, "/presets/slow", "admin")
    known = page.locator(".preview .known")
    expect(known).to_contain_text("5 matching calls in 1 minute pass")
    expect(known).to_contain_text("needs 2 different people; never whoever asked; it waits 1 hour")
    for written, shown in (("7200", "2 hours"), ("0", "0 seconds"), ("soon", "soon"), ("", "1 minute")):
        page.get_by_label("window").fill(written)
        expect(known).to_contain_text(f"5 matching calls in {shown} pass")


def test_what_is_written_for_a_pack_is_not_lost_to_what_others_change(console: Console) -> None:
    page = console.page()
    console.log_in(page, "admin", "/presets/packs/mails")
    page.get_by_label("most").fill("7")
    put(console, presets=[BULK | {"description": "Stops what is too much."}, OUTSIDE], packs=[PACK])
    expect(page.get_by_role("status").filter(has_text="Somebody has changed this")).to_be_visible()
    expect(page.get_by_label("most")).to_have_value("7")
    readable(page)
    page.get_by_role("button", name="Activate 2 policies").click()
    expect(page.get_by_role("log")).to_contain_text("2 policies are active.")
    # The other one waits for the setting that nobody has made.
    expect(page.get_by_text("1 of 2 active")).to_be_visible()
    expect(page.get_by_role("list", name="Made, but not in force").get_by_role("listitem")).to_have_count(1)
    expect(page.get_by_text("Somebody has changed this")).to_have_count(0)
    assert policy(console, "bulk")["matchConditions"][1]["value"] == 7


def test_a_pack_is_activated_with_parameters_and_settings(console: Console) -> None:
    console.expect_trouble("422")
    page = entered(console, "/presets", "admin")
    page.get_by_role("list", name="Packs").get_by_role("link").click()
    would = page.get_by_role("list", name="Would become active").get_by_role("listitem")
    expect(would).to_have_count(2)
    expect(page.get_by_text("2 policies would become active, 1 of them once")).to_be_visible()
    readable(page)
    page.get_by_label("companyDomains").fill("not a domain")
    page.get_by_role("button", name="Store the settings").click()
    expect(page.locator(".field .wrong")).to_contain_text("domain")
    page.get_by_label("companyDomains").fill("acme.com\n\nacme.example ")
    page.get_by_role("button", name="Store the settings").click()
    expect(page.get_by_text("2 policies would become active.")).to_be_visible()
    expect(page.locator(".missing")).to_have_count(0)
    page.get_by_label("most").fill("7")
    page.get_by_role("button", name="Activate 2 policies").click()
    expect(page.get_by_role("log")).to_contain_text("2 policies are active.")
    expect(page.get_by_role("list", name="Active already").get_by_role("listitem")).to_have_count(2)
    assert policy(console, "bulk")["presetParameters"] == {"most": 7}
    assert "missingSettings" not in policy(console, "outside")
    console.service.answered("admin", "PATCH", "/v1/policies/bulk", {"enabled": False})
    rests = page.get_by_role("list", name="Made, but not in force").get_by_role("listitem")
    expect(rests).to_contain_text("Not in force")
    expect(page.get_by_text("1 of 2 active")).to_be_visible()
    settings = console.service.call("admin", "GET", "/v1/organisation/settings").json()
    assert settings["settings"] == {"companyDomains": ["acme.com", "acme.example"]}


def test_all_settings_of_the_organisation_have_a_page(console: Console) -> None:
    page = entered(console, "/presets", "admin")
    page.get_by_role("link", name="Settings of the organisation").click()
    page.get_by_label("paymentLimit").fill("250.5")
    page.get_by_label("companyDomains").fill("acme.com")
    readable(page)
    page.get_by_role("button", name="Store the settings").click()
    expect(page.get_by_role("log")).to_contain_text("The settings are stored")
    expect(page.get_by_label("paymentLimit")).to_have_value("250.5")
    settings = console.service.call("admin", "GET", "/v1/organisation/settings").json()
    assert settings["settings"] == {"companyDomains": ["acme.com"], "paymentLimit": 250.5}


def test_a_policy_follows_its_preset_when_an_admin_says_so(console: Console) -> None:
    console.service.answered("admin", "POST", "/v1/policy-presets/bulk/activate", {}, status=201)
    console.service.call("admin", "PATCH", "/v1/policies/bulk", {"name": "Ours"})
    put(console, presets=[BULK | {"action": "require_approval", "name": "Newer name"}], packs=[])
    console.until(lambda: any(each["name"] == "Newer name" for each in presets(console)))
    page = entered(console, "/policies/bulk")
    offer = page.get_by_role("region", name="Upgrade")
    expect(offer.locator(".differences").first).to_contain_text("require_approval", timeout=SOON)
    expect(offer.get_by_role("button")).to_have_count(0)
    page = entered(console, "/policies/bulk", "admin")
    offer = page.get_by_role("region", name="Upgrade")
    offer.get_by_text("Edited here, and kept").click()
    expect(offer).to_contain_text("Newer name")
    readable(page)
    offer.get_by_role("button", name="Take it over").click()
    expect(page.get_by_text("Holds for a person to decide a call")).to_be_visible()
    now = policy(console, "bulk")
    assert (now["action"], now["name"]) == ("require_approval", "Ours")


def test_what_is_no_preset_is_told(console: Console) -> None:
    for place in ("/presets/nowhere", "/presets/packs/nowhere"):
        page = entered(console, place)
        expect(page.locator(".one")).to_contain_text("There is no such preset or pack.")
