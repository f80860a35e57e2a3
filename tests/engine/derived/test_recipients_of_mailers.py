"""Mailers take addresses out of texts in ways of their own (`email.utils` of Python, nodemailer): where one
would send to is among the recipients."""

from __future__ import annotations

import pytest

from tests.engine.derived.declared import shown

MALLORY = "m@evil.example"


@pytest.mark.parametrize(
    "to",
    [
        'a@acme.com, "m@evil.example" (x)',
        '"m@evil.example"(x',
        '"m@evil.example"("a@acme.com>x',
        '"m@evil.example" @acme.com',
        '"m@evil.example"@',
        '<"m@evil.example"<a@acme.com>',
        '<@acme.com:"m@evil.example" <a@acme.com>',
        '"m@evil.example"<@acme.com:',
        '"m@evil.example"<<a@acme.com>',
        "m@@evil.example",
        "m＠@evil.example",
    ],
)
def test_an_address_is_seen_wherever_a_mailer_finds_it(to: str) -> None:
    assert MALLORY in shown("send_email", {"to": to}, "recipients")
    assert "evil.example" in shown("send_email", {"to": to}, "recipientDomains")


@pytest.mark.parametrize("local", ["\u200b", "＠", "\u2060\u200b"])
def test_an_address_whose_beginning_is_not_seen_counts(local: str) -> None:
    assert shown("send_email", {"to": f"a@acme.com, {local}@evil.example"}, "recipients") == [
        "a@acme.com",
        "_@evil.example",
    ]


@pytest.mark.parametrize(
    ("to", "found"),
    [
        ('"ann@home.example" <ann@acme.com>', ["ann@acme.com"]),
        ('Bob <b@acme.com>;\t"Doe, Ann (ann@home.example)" < ann@acme.com >', ["b@acme.com", "ann@acme.com"]),
        ("用户@acme.com", ["用户@acme.com"]),
        ("@ann", []),
    ],
)
def test_a_name_before_an_address_is_none(to: str, found: list[str]) -> None:
    assert shown("send_email", {"to": to}, "recipients") == found
