"""Words without a blank and texts of many lines keep to their place, and nothing is cut without a sign."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.support import POLICIES, Console, hold_time
from tests.browser.test_alerts_and_agents import watch
from tests.harness.running_service import Served

pytestmark = pytest.mark.browser

CHECK = (Path(__file__).parent / "in_place.js").read_text(encoding="utf-8")
OPEN = """(all) => {
  for (const each of all) each.open = true;
  return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
}"""
AGENT = "Wideword" * 25
RUN = "R" * 200
PARAGRAPH = "A paragraph that has to be broken into lines wherever it is shown.\n\n"
TEXT = f"Dear all,\n\n{PARAGRAPH * 30}{'x' * 600}"
POLICY: dict[str, Any] = {
    "policyId": "p" * 100,
    "name": "Policyname" * 20,
    "description": "D" * 400,
    "action": "block",
    "enabled": True,
    "message": "M" * 300,
    "matchConditions": [{"field": "inputPayload.stop", "operator": "equals", "value": "v" * 300}],
    "examples": [{"match": True, "toolName": "wire", "inputPayload": {"stop": "v" * 300}}],
}
ROOMS = (
    ("/overview", "What waits"),
    ("/grants", "calls left"),
    ("/agents", "Wideword"),
    (f"/agents/{AGENT}", "Its records"),
    ("/runs", "blocked"),
    (f"/runs/{RUN}", "Labels"),
    ("/policies", "Policyname"),
    (f"/policies/{POLICY['policyId']}", "What it does"),
    (f"/policies/{POLICY['policyId']}?edit", "The policy as JSON"),
    ("/tools", "Declared tools"),
    ("/audit", "Verify the log"),
    ("/webhooks", "hooks.example"),
    ("/people", "API keys"),
)
"""Each with words that are there once it is painted."""


@pytest.fixture(scope="module")
def furnished(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """One service, in which everything is long."""
    read = {"field": "toolName", "operator": "equals", "value": "read"}
    label = {"policyId": "label", "name": "L", "action": "allow", "matchConditions": [read]}
    label |= {"labels": {"add": ["l" * 50]}}
    with (
        Served(tmp_path_factory.mktemp("long"), [*POLICIES, POLICY, label], live=True) as service,
        Console(service, browser) as console,
    ):
        calls = {"read": {"path": "q" * 500}, "wire": {"stop": "v" * 300, "f" * 150: TEXT}, "U" * 200: {}}
        for name, payload in calls.items():
            call = {"toolCallId": name[:9], "toolName": name, "inputPayload": payload, "reason": "r" * 300}
            console.post("tool.called", call, run=RUN, agent=AGENT)
        rent = console.hold(agent=AGENT, run=RUN, payload={"amount": 8, "to": "y" * 300})
        again = {"grant": {"scope": "run", "calls": 3, "minutes": 60}, "reason": "w" * 400}
        hook = {"url": f"https://hooks.example/{'h' * 400}", "description": "d" * 400}
        key = {"name": "k" * 200, "agentId": AGENT}
        made = (
            (f"/v1/approvals/{rent}/approve", again),
            ("/v1/webhooks", hook | {"events": ["tool.blocked"]}),
            ("/v1/api-keys", key),
        )
        for path, body in made:
            assert service.call("admin", "POST", path, body).status_code < 300
        watch(console)
        yield console


@pytest.mark.parametrize("width", [390, 1280])
def test_long_words_keep_to_their_place(furnished: Console, width: int) -> None:
    context = {"goal": "g" * 300, "reasoning": TEXT}
    held = furnished.hold(
        "payments.send", {"body": TEXT, "to": "t" * 300}, agent=AGENT, run=RUN, agentContext=context
    )
    hook = furnished.service.call("admin", "GET", "/v1/webhooks").json()[0]["webhookId"]
    page = furnished.reviewer(held, "admin", viewport={"width": width, "height": 740})
    expect(page.locator("#subject")).to_be_visible()
    wrong = {"/approvals": page.evaluate(CHECK)}
    for place, words in (*ROOMS, (f"/webhooks/{hook}", "Deliveries")):
        page.goto(quote(place, safe="/?"))
        expect(page.get_by_text(words).first).to_be_visible()
        page.locator(".page details").evaluate_all(OPEN)
        wrong[place] = page.evaluate(CHECK)
    assert {place: each for place, each in wrong.items() if each} == {}


def test_json_in_a_run_has_its_lines(furnished: Console) -> None:
    page = furnished.page()
    furnished.log_in(page, "viewer", f"/runs/{RUN}")
    call = page.get_by_role("list", name="Tool calls").get_by_role("listitem").first
    call.get_by_text("Details").click()
    told = call.get_by_role("region", name="Called with")
    assert told.evaluate("(box) => box.innerText.replace(/\\s+/g, ' ')") == f'{{ "path": "{"q" * 500}" }}'
    assert told.locator(".json .line").evaluate("(line) => getComputedStyle(line).display") == "block"


def test_what_is_long_opens_wherever_it_stands(furnished: Console) -> None:
    held = furnished.hold("payments.send", {"amount": 1}, agent="other", agentContext={"reasoning": TEXT})
    page = furnished.reviewer(held, viewport={"width": 390, "height": 740})
    words = page.get_by_role("region", name="In the agent’s own words")
    opens = words.get_by_role("button", name=f"Show all {len(TEXT):,} characters")
    height = words.bounding_box()
    opens.click()
    opened = words.bounding_box()
    assert height is not None and opened is not None and opened["height"] > height["height"] * 2
    assert page.evaluate(CHECK) == []
    words.get_by_role("button", name="Show less").click()
    expect(opens).to_be_visible()


def test_a_halt_of_many_words_leaves_the_buttons_in_sight(furnished: Console) -> None:
    held = furnished.hold(agent="halted-one")
    halt = {"agentId": "halted-one", "reason": f"It pays twice {'h' * 1500}"}
    made = furnished.service.call("admin", "POST", "/v1/halt", halt)
    page = furnished.reviewer(held, "admin", viewport={"width": 390, "height": 740})
    expect(page.locator(".decide .off")).to_contain_text("It pays twice")
    expect(page.get_by_role("button", name="Reject", exact=True)).to_be_in_viewport(ratio=1)
    expect(page.locator("#subject")).to_be_in_viewport(ratio=1)
    page.get_by_role("button", name="Resume…").click()
    expect(page.get_by_role("dialog")).to_contain_text("h" * 1500)
    assert page.evaluate(CHECK) == []
    ended = {"haltId": made.json()["haltId"]}
    assert furnished.service.call("admin", "POST", "/v1/resume", ended).status_code == 200


@pytest.mark.parametrize("comes", [True, False])
def test_a_page_is_seen_when_all_of_it_is_there_or_after_a_second(furnished: Console, comes: bool) -> None:
    page = furnished.page()
    furnished.log_in(page, "admin", "/people")
    expect(page.get_by_role("heading", name="API keys")).to_be_visible()
    waiting: list[Any] = []
    page.route("**/v1/alerts?*", lambda route: waiting.append(route))
    hold_time(page)
    page.get_by_role("link", name="Overview").click()
    furnished.until(lambda: page.clock.run_for(2) or bool(waiting))  # what loads, loads by timers
    first = page.locator("h2", has_text="What waits")
    first.wait_for(state="attached")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    assert not first.is_visible()
    if comes:
        waiting[0].continue_()
    else:
        page.clock.run_for(1000)
    expect(first).to_be_visible()
