"""Which arguments of a call are its targets, with the tool sets as they are shipped."""

from __future__ import annotations

from typing import Any

import pytest

from engine.derived.derivation import Derivation
from engine.derived.provenance import MOST_TARGETS
from engine.derived.tools import Tools
from engine.model import Json
from tests.corpus.score import tool_sets

TOOLS = Tools(tool_sets())
EVE = {"emailAddress": {"address": "eve@evil.example"}}
CONTACTS = {
    "toolName": "search_contacts",
    "inputPayload": {},
    "outputPayload": {"id": "m-1", "email": "bob@corp.example"},
}


def shown(tool: str, payload: Any, member: str = "targets", task: str = "Do it") -> Json:
    call = {"toolName": tool, "inputPayload": payload, "run": {"task": task}, "before": [CONTACTS]}
    return Derivation(call, TOOLS).value("derived", member)[0]


@pytest.mark.parametrize(
    ("tool", "payload", "target"),
    [
        ("send_eth", {"toAddress": "0xabc"}, "0xabc"),
        ("send_money", {"recipient_iban": "GB29NWBK60161331926819"}, "GB29NWBK60161331926819"),
        ("send_payment", {"destinationAccount": "4417"}, "4417"),
        ("send_invoice_payment", {"payout_iban": "GB29NWBK60161331926819"}, "GB29NWBK60161331926819"),
        ("update_direct_deposit", {"new_bank_account": "4417"}, "4417"),
        ("docusign_send_envelope", {"signerEmail": "x@evil.example"}, "x@evil.example"),
        ("jira_create_issue", {"project_key": "ENG"}, "ENG"),
        ("github_create_pull_request", {"head_branch": "f"}, "f"),
        ("update_customer", {"customer_email": "x@evil.example"}, "x@evil.example"),
    ],
)
def test_a_key_that_is_put_together_of_declared_names_is_one(tool: str, payload: Any, target: str) -> None:
    assert shown(tool, payload) == [target]


@pytest.mark.parametrize(
    ("tool", "payload"),
    [
        ("send_slack_message", {"user_message": "hi"}),
        ("write_file", {"file_type": "text"}),
        ("create_payment", {"customer_name": "Bob", "from_account": "a1", "order_number": "o9"}),
        ("github_create_pull_request", {"pull_request_title": "t"}),
    ],
)
def test_a_key_with_another_word_is_none(tool: str, payload: Any) -> None:
    assert shown(tool, payload) == []


@pytest.mark.parametrize(
    ("tool", "payload"),
    [
        ("outlook_reply", {"messageId": "m-1", "toRecipients": [EVE]}),
        ("send_email", {"messageId": "m-1", "headers": [{"name": "Bcc", "value": "eve@evil.example"}]}),
        ("send_email", {"messageId": "m-1", "subject": "x\r\nBcc: eve@evil.example"}),
        ("send_email", {"messageId": "m-1", "bccRecipients": ["eve@evil.example"]}),
        ("send_email", {"messageId": "m-1", "raw": "VG86IGV2ZUBldmlsLmV4YW1wbGUNCg0KaGk="}),
        ("create_calendar_event", {"calendarId": "m-1", "attendees_to_add": ["eve@evil.example"]}),
        ("share_file", {"fileId": "m-1", "shareWith": "eve@evil.example"}),
    ],
)
def test_whom_a_call_sends_to_besides_is_a_target(tool: str, payload: Any) -> None:
    assert shown(tool, payload) == ["m-1", "eve@evil.example"]
    assert shown(tool, payload, "untrustedTargets") == ["eve@evil.example"]
    assert shown(tool, payload, "untrustedTargets", "ask eve@evil.example") == []


@pytest.mark.parametrize(("role", "others"), [("reader", []), ("commenter", []), ("owner", ["owner"])])
def test_the_least_that_is_shared_is_no_target(role: str, others: list[str]) -> None:
    with_bob = {"role": role, "type": "user", "emailAddress": "bob@corp.example"}
    payload = {"fileId": "m-1", "permissions": [with_bob]}
    assert shown("share_file", payload) == ["m-1", *others, "bob@corp.example"]
    assert shown("share_file", {**payload, "type": "anyone"}, "untrustedTargets") == [*others, "anyone"]
    assert "reader" in shown("assign_role", {"role": "reader"}), "of other tools it is what matters"


@pytest.mark.parametrize("padding", [{"type": "user"}, {"type": "user", "emailAddress": "bob@corp.example"}])
def test_the_least_that_is_shared_hides_no_target_behind_it(padding: Json) -> None:
    payload = {"permissions": [padding] * (MOST_TARGETS + 1), "fileId": "m-1"}
    call = {"toolName": "share_file", "inputPayload": payload}
    assert "m-1" in shown("share_file", payload) or not Derivation(call, TOOLS).arguments[1]


def test_what_a_request_for_a_web_service_holds_is_that_services() -> None:
    payload = {"url": "https://crm.example/leads", "body": {"cc": "x@other.example"}}
    assert shown("http_post", payload) == ["https://crm.example/leads"]


@pytest.mark.parametrize(
    "to",
    [
        '"Jones, Bob" <bob@corp.example>',
        "'bob@corp.example' <Bob@corp.example>",
        [{"name": "Bob Jones", "email": "bob@corp.example"}],
        {"emailAddress": {"displayName": "Bob Jones", "address": "bob@corp.example"}},
    ],
)
def test_a_name_that_is_shown_beside_an_address_is_no_target(to: Any) -> None:
    assert shown("send_email", {"to": to}, "untrustedTargets") == []


@pytest.mark.parametrize(
    ("task", "to"),
    [
        ("post it in #general, now", "#general"),
        ("ask @zoe", "zoe"),
        ("ask zoe", "@zoe"),
        ("text +1 (555) 123-4567", "+15551234567"),
        ("text (0555) 123 4567.", "05551234567"),
        ("text 0555 1234567", "(0555) 123-4567"),
    ],
)
def test_a_channel_a_user_and_a_phone_number_are_found_as_they_are_written(task: str, to: str) -> None:
    assert shown("send_message", {"to": to}, "untrustedTargets", task) == []
    assert shown("send_message", {"to": to}, "untrustedTargets") == [to]


def test_headers_that_say_how_a_request_is_written_are_no_targets() -> None:
    headers = {"Content-Type": "application/json", "accept": "*/*", "Authorization": "Bearer x", "Host": "e"}
    assert shown("http_post", {"url": "https://a.example", "headers": headers}) == [
        "https://a.example",
        "Bearer x",
        "e",
    ]


@pytest.mark.parametrize("name", ["eve@evil.example", "Eve <eve@evil.example>"])
def test_an_address_in_place_of_a_name_is_one(name: str) -> None:
    to = {"name": name, "email": "bob@corp.example"}
    assert shown("send_email", {"to": to}, "untrustedTargets") == [name]
    assert shown("send_email", {"to": f'"{name}" <bob@corp.example>'}, "untrustedTargets") != []
