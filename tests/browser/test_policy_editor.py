"""Writing a policy in the console: errors at their line, calls to try, backtest, saving, lost updates."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.support import Console, entered
from tests.browser.test_looks import readable
from tests.browser.test_policies import MARKUP, PATH, SOON, change

pytestmark = pytest.mark.browser
LIVE = True


def editing(console: Console, **options: Any) -> Page:
    page = entered(console, "/policies/hold-payments?edit", "admin", **options)
    page.get_by_label("The policy as JSON").wait_for()
    return page


def stored(console: Console) -> dict[str, Any]:
    found: dict[str, Any] = console.service.call("viewer", "GET", PATH).json()
    return found


def written(page: Page) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(page.get_by_label("The policy as JSON").input_value())
    return found


def write(page: Page, shape: dict[str, Any]) -> None:
    page.get_by_label("The policy as JSON").fill(json.dumps(shape, indent=2))


def test_an_error_stands_at_its_line_and_the_form_follows_the_text(console: Console) -> None:
    console.expect_trouble("422")
    page = editing(console)
    text = page.get_by_label("The policy as JSON")
    wrongs = page.get_by_role("alert", name="What is wrong")
    expect(page.get_by_text("Nothing is wrong with it.")).to_be_visible(timeout=SOON)
    shape = written(page)
    shape["matchConditions"][0]["operator"] = "equalz"
    write(page, shape)
    line = 1 + text.input_value().split("\n").index('      "operator": "equalz",')
    expect(wrongs).to_contain_text(f"Line {line} /matchConditions/0/operator", timeout=SOON)
    expect(wrongs).to_contain_text("did you mean `equals`?")
    expect(page.locator(".wrong-line")).to_have_text(str(line))
    readable(page)
    wrongs.get_by_role("button").click()
    chosen = "(node) => node.value.slice(node.selectionStart, node.selectionEnd)"
    assert text.evaluate(chosen) == '      "operator": "equalz",'
    page.get_by_role("button", name="Save").click()
    expect(wrongs).to_contain_text("did you mean `equals`?")
    assert stored(console)["version"] == 1
    text.fill('{\n  "name": "x",\n  "action" "block"\n}')
    expect(wrongs).to_contain_text("Line 3 `:` is expected here", timeout=SOON)
    expect(page.get_by_role("button", name="Save")).to_be_disabled()
    shape["matchConditions"][0]["operator"] = "equals"
    write(page, shape | {"action": "warn"})
    expect(wrongs).to_be_empty()
    expect(page.get_by_label("What it does")).to_have_value("warn")
    page.get_by_label("What it does").select_option("block")
    page.get_by_label("The reason given").fill("no money")
    page.get_by_label("What it is for").fill("")
    page.get_by_label("Name").fill("Never pay")
    page.get_by_text("What you have changed").click()
    assert (written(page)["action"], written(page)["message"]) == ("block", "no money")
    expect(page.locator(".differences")).to_contain_text("Never pay")
    readable(page)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", level=1, name="Never pay")).to_be_focused()
    now = stored(console)
    assert (now["version"], now["action"], now["message"]) == (2, "block", "no money")
    assert "description" not in now


def test_a_call_is_tried_with_what_is_written(console: Console) -> None:
    page = editing(console)
    write(page, written(page) | {"action": "block", "enabled": False})
    page.get_by_label("The call, as JSON").fill(
        '{"toolName": "payments.send", "inputPayload": {"amount": 1}}'
    )
    page.get_by_role("button", name="Try it").click()
    result = page.locator(".trial .result")
    expect(result).to_contain_text("Blocked")
    expect(page.get_by_role("list", name="Conditions of this policy")).to_contain_text("holds")
    expect(result).to_contain_text("To turn it over: set `toolName` to")
    page.get_by_label("The call, as JSON").fill('{"toolName": 1}')
    console.expect_trouble("422")
    page.get_by_role("button", name="Try it").click()
    expect(page.locator(".trial .wrong")).to_contain_text("toolName")
    page.get_by_label("The call, as JSON").fill("{")
    page.get_by_role("button", name="Try it").click()
    expect(page.locator(".trial .wrong")).to_contain_text("line 1: the text ends too early")


def test_a_reviewer_tries_a_call_and_changes_nothing(console: Console) -> None:
    change(console, examples=[{"match": True, "toolName": "payments.send", "inputPayload": {"amount": 5}}])
    page = entered(console, "/policies/hold-payments?edit", "reviewer")
    page.get_by_role("button", name="Try it").click()
    expect(page.locator(".trial .result")).to_contain_text("Held for a person")
    change(console, description="Changed while it was tried.")
    expect(page.locator(".description")).to_contain_text("Changed while", timeout=SOON)
    expect(page.locator(".trial .result")).to_contain_text("Held for a person")
    for name in ("Edit", "Save", "Switch off", "Delete…", "Go back to version 1"):
        expect(page.get_by_text(name, exact=True)).to_have_count(0)


def test_what_would_have_changed_is_seen_before_saving(console: Console) -> None:
    for number in range(3):
        console.hold(payload={"amount": number, "text": MARKUP}, agent="clerk")
    call = {"toolCallId": "c-9", "toolName": "look", "inputPayload": {}}
    console.post("tool.called", call, run="run-9", agent="clerk")
    page = editing(console)
    write(page, written(page) | {"action": "block"})
    page.get_by_role("button", name="What would have changed").click()
    result = page.locator(".page .result").first
    expect(result).to_contain_text("3 calls of 4 would have been decided differently.")
    group = result.locator(".group").first
    expect(group.locator("summary").first).to_have_text("Held for a person → Blocked 3 calls")
    group.locator("summary").first.click()
    expect(group.get_by_role("link", name="payments.send")).to_have_count(3)
    group.get_by_text("Called with").first.click()
    expect(group.locator(".hidden-character").first).to_be_visible()
    readable(page)
    assert stored(console)["version"] == 1
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".links")).to_contain_text("Switch off")
    assert stored(console)["action"] == "block"


def test_two_who_edit_at_once_do_not_lose_an_edit(console: Console) -> None:
    console.expect_trouble("412")
    page = editing(console)
    page.get_by_label("Name").fill("Mine")
    change(console, name="Theirs")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".result .problem")).to_contain_text("Somebody has changed this policy")
    assert written(page)["name"] == "Mine"
    page.get_by_role("button", name="See the policy as it is now").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Theirs")


def test_switches_work_in_one_step_and_shadow_shows_what_it_would_change(console: Console) -> None:
    change(console, mode="shadow", action="block")
    call = {"toolCallId": "c-1", "toolName": "payments.send", "inputPayload": {}}
    console.post("tool.called", call, run="r", agent="a")
    page = entered(console, "/policies/hold-payments", "admin")
    page.get_by_role("button", name="Enforce…").click()
    expect(page.get_by_role("dialog")).to_contain_text("1 call of 1 would have been decided differently.")
    readable(page)
    page.get_by_role("button", name="Enforce now").click()
    expect(page.get_by_role("button", name="Only watch (shadow)")).to_be_visible()
    assert stored(console)["mode"] == "enforce"
    page.get_by_role("button", name="Switch off").click()
    expect(page.locator(".missing")).to_contain_text("switched off")
    page.get_by_role("button", name="Switch on").click()
    expect(page.locator(".missing")).to_have_count(0)
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Delete it").click()
    expect(page.get_by_role("list", name="Policies").get_by_role("listitem")).to_have_count(3)


def test_a_new_policy_is_made(console: Console) -> None:
    console.expect_trouble("422")
    page = entered(console, "/policies", "admin")
    page.get_by_role("link", name="New policy").click()
    expect(page.get_by_role("alert", name="What is wrong")).to_contain_text("/name", timeout=SOON)
    page.get_by_label("Name").fill("No wires")
    shape = written(page)
    shape["matchConditions"] = [{"expression": "toolName == 'wire'"}]
    shape["examples"] = [{"match": True, "toolName": "write"}]
    del shape["description"]
    write(page, shape)
    expect(page.get_by_role("alert", name="What is wrong")).to_contain_text("/examples/0", timeout=SOON)
    shape["examples"][0]["toolName"] = "wire"
    write(page, shape)
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", level=1, name="No wires")).to_be_visible()
    assert page.url.endswith("/policies/no-wires")


def test_what_was_written_is_there_again_after_another_room(console: Console) -> None:
    page = editing(console)
    text = page.get_by_label("The policy as JSON")
    shape = written(page)
    write(page, shape | {"name": "Half a thought"})
    page.get_by_role("link", name="Runs").click()
    expect(page.get_by_role("heading", name="Runs")).to_be_focused()
    page.go_back()
    expect(page.get_by_text("it is not stored")).to_be_visible()
    assert written(page)["name"] == "Half a thought"
    readable(page)
    page.get_by_role("button", name="Begin again").click()
    expect(page.get_by_text("it is not stored")).to_have_count(0)
    assert written(page)["name"] == shape["name"]
    write(page, shape | {"name": "Another"})
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("link", name="Edit").click()
    expect(text).to_be_visible()
    assert written(page)["name"] == shape["name"]
    assert stored(console)["version"] == 1


def test_a_text_of_before_is_never_stored_over_a_newer_state(console: Console) -> None:
    console.expect_trouble("412")
    page = editing(console)
    write(page, written(page) | {"name": "Mine"})
    page.get_by_role("link", name="Runs").click()
    expect(page.get_by_role("heading", name="Runs")).to_be_focused()
    change(console, name="Theirs")
    page.go_back()
    page.get_by_label("The policy as JSON").wait_for()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Somebody has changed this policy")).to_be_visible()
    assert stored(console)["name"] == "Theirs"


def test_how_held_calls_are_approved_is_chosen_in_the_form(console: Console) -> None:
    page = editing(console)
    write(page, {key: value for key, value in written(page).items() if key != "approval"})
    page.get_by_label("Whose approval counts").select_option("Admins' alone")
    page.get_by_label("Whoever asked for the call").select_option("May approve it")
    page.get_by_label("When nobody has decided by then").select_option("escalate")
    wanted = {"roles": ["admin"], "allowSelf": True, "expiresAfterSeconds": 3600}
    wanted |= {"onExpiry": "escalate", "escalateSeconds": 3600}
    assert written(page)["approval"] == wanted
    waits = page.get_by_label("It waits at most, in minutes")
    expect(waits).to_have_value("60")
    waits.fill("1.5")
    assert written(page)["approval"] == wanted | {"expiresAfterSeconds": 90}
    expect(page.get_by_text("Nothing is wrong with it.")).to_be_visible(timeout=SOON)
    readable(page)
    waits.fill("")
    assert written(page)["approval"] == {"roles": ["admin"], "allowSelf": True}
    expect(page.get_by_label("When nobody has decided by then")).to_have_value("block")
    page.get_by_label("Whose approval counts").select_option("Reviewers' and admins'")
    page.get_by_label("Whoever asked for the call").select_option("May not approve it")
    assert "approval" not in written(page), "what says nothing new is left out"
    write(page, written(page) | {"approval": {"roles": ["reviewer", "admin"], "allowSelf": False}})
    expect(page.get_by_label("Whose approval counts")).to_have_value("")
    expect(page.get_by_label("Whoever asked for the call")).to_have_value("false")
