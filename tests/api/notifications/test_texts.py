"""What notices say, and that nothing an agent chose can do anything but be read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api.notifications import chats
from api.notifications.texts import MOST_PARAGRAPHS, MOST_TITLE, WRITERS, NoticeText, compose, harmless
from api.store.notifications import channels

FRONTEND = "https://console.example"


def payload(event: str, **data: Any) -> str:
    return json.dumps({"event": event, "timestamp": "2026-01-31T09:30:07.000000Z", "data": data})


def approval(approval_id: str = "apr_1", event: str = "approval.requested", **more: Any) -> str:
    facts = {"agentId": "mailer", "toolName": "pay", "reason": "above 5 EUR", "summary": "pay 7 EUR to Acme"}
    times = {"requestedAt": "2026-01-31T09:30:07.000000Z", "expiresAt": "2026-01-31T10:30:07.000000Z"}
    return payload(event, approvalId=approval_id, **(facts | times | more))


def test_an_approval_says_who_wants_what_since_when_and_until_when() -> None:
    assert compose([approval()], FRONTEND) == NoticeText(
        "Approval needed: pay",
        (
            "mailer wants to pay 7 EUR to Acme: above 5 EUR. Waiting since 2026-01-31 09:30 UTC. "
            "It expires at 2026-01-31 10:30 UTC.",
        ),
        f"{FRONTEND}/approvals?approvalId=apr_1",
    )


def test_an_approval_without_a_summary_names_its_tool() -> None:
    (text,) = compose([approval(summary="", reason="")], FRONTEND).paragraphs
    assert text.startswith("mailer wants to call pay. Waiting since")


def test_an_approval_that_waits_for_ever_has_no_end() -> None:
    (text,) = compose([approval(expiresAt=None)], FRONTEND).paragraphs
    assert "expires" not in text


def test_reminders_say_what_they_are() -> None:
    assert compose([approval(event="approval.unseen")], FRONTEND).title.startswith("Nobody has looked")
    assert compose([approval(event="approval.expiring")], FRONTEND).title.startswith(
        "An approval is about to"
    )


def test_notices_of_one_approval_are_one_paragraph() -> None:
    message = compose([approval(), approval(event="approval.unseen")], FRONTEND)
    assert len(message.paragraphs) == 1 and message.title.startswith("Nobody has looked")


def test_very_many_of_one_key_hide_none_of_another() -> None:
    flood = [approval(f"apr_{n}", keyId="key_of_very_many", agentId=f"agent-{n}") for n in range(400)]
    blocked = [payload("tool.blocked", agentId="a", toolName="Bash", reason="no") for _ in range(20)]
    one = approval("apr_of_another", keyId="key_of_few", agentId="clerk")
    message = compose([*blocked, *flood, one], FRONTEND)
    assert [text.partition(" ")[0] for text in message.paragraphs[:3]] == ["agent-0", "clerk", "agent-1"]
    assert message.title == "421 notices" and message.paragraphs[-1] == "… and 411 more."


def test_many_are_told_together_and_counted() -> None:
    message = compose([approval(f"apr_{number}") for number in range(30)], FRONTEND)
    assert message.title == "30 approvals wait"
    assert len(message.paragraphs) == MOST_PARAGRAPHS + 1
    assert message.paragraphs[-1] == "… and 20 more."
    assert message.link == f"{FRONTEND}/approvals"


def test_every_event_of_a_channel_has_its_words() -> None:
    assert set(WRITERS) == {*channels.EVENTS, channels.TEST}


def test_other_events() -> None:
    halt = {"haltId": "h", "createdAt": "2026-01-31T09:30:07Z", "createdBy": "admin@acme.example"}
    (text,) = compose([payload("agent.halted", scope="all", reason="loops", **halt)], FRONTEND).paragraphs
    assert text == "All agents are halted by admin@acme.example since 2026-01-31 09:30 UTC. loops"
    agent = payload("agent.halted", scope="agent", agentId="mailer", **halt)
    assert compose([agent], FRONTEND).paragraphs[0].startswith("mailer is halted")
    run = payload("agent.halted", scope="run", runId="run-1", **halt)
    assert compose([run], FRONTEND).paragraphs[0].startswith("Run run-1 is halted")
    blocked = payload("tool.blocked", agentId="mailer", toolName="shell", reason="no shell")
    assert compose([blocked], FRONTEND).paragraphs[0].endswith("at 2026-01-31 09:30 UTC: no shell")
    failed = payload(
        "policy.reload_failed", errors=[{"file": "policies/a.yaml", "line": 3, "message": "wrong"}], count=1
    )
    assert compose([failed], FRONTEND).paragraphs[0].endswith("policies/a.yaml:3: wrong")
    test = payload("notification.test", channel="ops")
    assert compose([test], FRONTEND) == NoticeText(
        "Test", ("This is a test of the channel ops; it works.",), FRONTEND
    )
    assert compose([test, approval()], FRONTEND).title == "2 notices"


def test_ids_in_links_are_quoted() -> None:
    link = compose([approval("a/b?c=d&e")], FRONTEND).link
    assert link == f"{FRONTEND}/approvals?approvalId=a%2Fb%3Fc%3Dd%26e"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("two\nlines\r\n and\ttabs", "two lines and tabs"),
        ("right‮to left​hidden", "right to left hidden"),
        ("a\u034f d\ufe0fog\u115f", "a dog"),
        ("see https://evil.example/x", "see https[:]//evil[.]example/x"),
        ("see www.evil.example", "see www[.]evil.example"),
        ("javascript:alert(1)", "javascript[:]alert(1)"),
        ("key sk_live_0123456789abcdefghijklmnopqrst", "key sk_liv…"),
        ("a" * 50, "a" * 50),
        ("x y " * 100, ("x y " * 100)[:79] + "…"),
        (f"short{' ' * 400}and long", "short …"),
        (f"short{' ' * 400}", "short"),
        ("mail.send", "mail.send"),
        ("see a/main.py:3 and README.md", "see a/main.py:3 and README.md"),
        ("approve at corp-approvals.com", "approve at corp-approvals[.]com"),
        (
            "approve at evil.zip/x?y, or MAIL.evil.museum#z",
            "approve at evil[.]zip/x?y, or MAIL.evil[.]museum#z",
        ),
        (
            "approve at login.example.de or Login.example.it.",
            "approve at login.example[.]de or Login.example[.]it.",
        ),
        ("see run.sh, a.py, lib.rs and main.pl", "see run.sh, a.py, lib.rs and main.pl"),
        ("mail to bob@evil.co.uk/x", "mail to bob@evil.co[.]uk/x"),
    ],
)
def test_what_agents_chose_is_made_harmless(text: str, read: str) -> None:
    assert harmless(text, 80) == read


HOSTILE = approval(
    agentId="<!channel> @channel @here <@U1>",
    toolName="[click](https://evil.example) **x** `y`",
    summary="",
    reason="<https://evil.example|ok> ~town-square <at>all</at> # h\n> q",
)


def test_slack_has_no_markup_but_the_link() -> None:
    body = chats.slack(compose([HOSTILE], FRONTEND))
    marked = [block["text"] for block in body["blocks"] if block["text"]["type"] == "mrkdwn"]
    assert marked == [
        {
            "type": "mrkdwn",
            "text": f"<{FRONTEND}/approvals?approvalId=apr_1|Open in the console>",
            "verbatim": True,
        }
    ]
    assert "<" not in body["text"]
    assert "://evil" not in json.dumps(body)


def test_teams_has_no_text_that_reads_markdown() -> None:
    card = chats.teams(compose([HOSTILE], FRONTEND))["attachments"][0]["content"]
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
    assert {inline["type"] for block in card["body"] for inline in block["inlines"]} == {"TextRun"}
    assert card["actions"] == [
        {
            "type": "Action.OpenUrl",
            "title": "Open in the console",
            "url": f"{FRONTEND}/approvals?approvalId=apr_1",
        }
    ]


def test_mattermost_mentions_nobody_and_escapes_markdown() -> None:
    text = chats.mattermost(compose([HOSTILE], FRONTEND))["text"]
    assert "@" not in text
    assert r"\[click\]\(https\[\:\]//evil\.example\)" in text
    assert r"\~town\-square" in text
    assert text.endswith(f"[Open in the console]({FRONTEND}/approvals?approvalId=apr_1)")


def test_messages_stay_below_the_limits_of_chats() -> None:
    """Slack: 3000 characters a text, 150 a header, 50 blocks; Teams: 28 KB; Mattermost: 16383 characters."""
    worst = [
        approval(
            f"apr_{number}", agentId="*&" * 500, toolName="<>" * 500, reason="_<" * 5000, summary="*<" * 500
        )
        for number in range(200)
    ]
    message = compose(worst, FRONTEND)
    slack = chats.slack(message)
    assert len(slack["blocks"]) <= 50
    assert all(len(block["text"]["text"]) <= 3000 for block in slack["blocks"])
    assert len(slack["blocks"][0]["text"]["text"]) <= 150
    assert len(json.dumps(chats.teams(message)).encode()) <= 28 * 1024
    assert len(chats.mattermost(message)["text"]) <= 16383
    (one,) = [compose(worst[:1], FRONTEND)]
    assert len(one.title) <= MOST_TITLE
