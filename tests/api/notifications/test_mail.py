"""Mail by a real SMTP server: encryption, passwords, refusals, addresses that must not be dialled."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from typing import Any

import pytest

from api.notifications.mail import Mailer
from api.notifications.texts import NoticeText
from api.webhooks.sender import Addresses, PostResult, trusted
from tests.harness.deliveries import bench, run
from tests.harness.mail_server import MailServer
from tests.harness.receiver import Certificate

MESSAGE = NoticeText(
    "Approval needed: ünpay", ("mailer wants to call pay.",), "https://console.example/approvals"
)
NOW = 1_769_851_807.0


async def loopback(_host: str, _port: int) -> Sequence[str]:
    return ["127.0.0.1"]


def settings(of: MailServer, **more: Any) -> dict[str, Any]:
    common = {"server": "mail.example", "port": of.port, "security": "starttls"}
    return {"to": ["oncall@acme.example"], "from": "governance@acme.example"} | common | more


def sent(
    server: MailServer,
    *,
    password: str | None = None,
    tls: ssl.SSLContext | None = None,
    listed: bool = True,
    seconds: float = 15,
    message: NoticeText = MESSAGE,
    **more: Any,
) -> PostResult:
    allowed = frozenset({f"mail.example:{server.port}"} if listed else ())
    mailer = Mailer(Addresses(loopback, allowed), tls or trusted(), seconds=seconds)
    return run(mailer.send(settings(server, **more), password, message, "dlv_1", NOW))


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    return Certificate("mail.example")


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")
@pytest.mark.parametrize("implicit", [False, True])
def test_mail_is_encrypted_and_signed_in(certificate: Certificate, implicit: bool) -> None:
    with MailServer(tls=certificate, implicit=implicit, password="secret") as server:
        answer = sent(
            server,
            tls=certificate.trusting,
            security="tls" if implicit else "starttls",
            username="governance",
            password="secret",
            to=["oncall@acme.example", "boss@acme.example"],
        )
    assert answer.acknowledged and answer.body == "kept", answer
    (mail,) = server.mails
    assert implicit or server.encrypted == [True]
    assert server.recipients == [["oncall@acme.example", "boss@acme.example"]]
    assert mail["Subject"] == "[governance] Approval needed: ünpay"
    assert mail["From"] == "governance@acme.example"
    assert mail["To"] == "oncall@acme.example, boss@acme.example"
    assert mail["Message-ID"] == "<dlv_1@acme.example>"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail.get_content_type() == "text/plain"
    lines = mail.get_content().splitlines()
    assert lines == ["mailer wants to call pay.", "", "https://console.example/approvals"]


@pytest.mark.parametrize("begin", ["utf-8?q", "UTF-8*en?Q", "x?q", "us-ascii?b"])
def test_no_encoded_word_in_a_name_becomes_headers_or_text(begin: str) -> None:
    hidden = "x=0D=0ABcc:_x=40y.example=0D=0A=0D=0AAll_is_well"
    if begin.endswith("b"):
        hidden = "eA0KQmNjOiB4QHkuZXhhbXBsZQ0KDQpBbGwgaXMgd2VsbA=="
    title = f"Approval needed: =?{begin}?{hidden}?="
    with MailServer() as server:
        assert sent(server, security="none", message=NoticeText(title, MESSAGE.paragraphs, None)).acknowledged
    (mail,) = server.mails
    assert mail["Subject"] == f"[governance] {title.replace('=?', '= ?')}"
    assert mail["Bcc"] is None and mail["Auto-Submitted"] == "auto-generated"
    assert mail.get_content().splitlines() == ["mailer wants to call pay."]


def test_a_wrong_password_is_the_servers_answer(certificate: Certificate) -> None:
    with MailServer(tls=certificate, password="secret") as server:
        answer = sent(server, tls=certificate.trusting, username="governance", password="wrong")
    assert answer.status == 535 and not answer.acknowledged and server.mails == []
    assert "wrong" not in answer.body


def test_a_server_without_tls_gets_nothing() -> None:
    with MailServer() as server:
        answer = sent(server)
    assert answer.status is None and server.mails == []
    assert answer.error == "the server does not offer what `security` or `username` needs"


@pytest.mark.parametrize("implicit", [False, True])
def test_tls_at_another_time_than_the_servers_is_told_in_words(
    certificate: Certificate, implicit: bool
) -> None:
    """Port 465 with `starttls`, and 587 with `tls`."""
    with MailServer(tls=certificate, implicit=implicit) as server:
        security = "starttls" if implicit else "tls"
        answer = sent(server, tls=certificate.trusting, security=security, seconds=1)
    assert server.mails == [] and answer.error is not None
    assert f"write `security: {'tls' if implicit else 'starttls'}`" in answer.error


def test_a_certificate_that_is_not_trusted_gets_nothing(certificate: Certificate) -> None:
    with MailServer(tls=certificate) as server:
        answer = sent(server)
    assert server.mails == [] and answer.error is not None
    assert answer.error.startswith("the certificate is not accepted")


def test_mail_in_the_clear_is_only_for_what_is_listed() -> None:
    with MailServer() as server:
        assert sent(server, security="none").acknowledged
        answer = sent(server, security="none", listed=False)
    assert answer.error == "mail without TLS is only for what `GOVERNANCE_WEBHOOK_ALLOW` lists"
    assert len(server.mails) == 1


def test_addresses_are_checked_when_they_are_dialled() -> None:
    with MailServer() as server:
        answer = sent(server, listed=False)
    assert answer.error is not None and answer.error.startswith("`mail.example` leads to no address")


def test_a_password_that_is_not_kept_is_told() -> None:
    with MailServer() as server:
        assert sent(server, username="governance").error == "the password is not set"


@pytest.mark.parametrize(("answer", "status"), [("451 try later", 451), ("554 never", 554)])
def test_a_refusal_is_a_failure_with_the_servers_words(answer: str, status: int) -> None:
    with MailServer(answers=[answer]) as server:
        found = sent(server, security="none")
    assert (found.status, found.body, found.acknowledged) == (status, answer[4:], False)


def test_a_mailbox_that_is_not_there_is_told() -> None:
    with MailServer() as server:
        found = sent(server, security="none", to=["nobody@acme.example"])
        assert found.status == 550 and found.body == "no such mailbox"
        found = sent(server, security="none", to=["nobody@acme.example", "oncall@acme.example"])
        assert found.acknowledged and found.body == "kept; not taken: nobody@acme.example"


def unserved(port: int, seconds: float) -> PostResult:
    values = {"to": ["a@b.example"], "from": "x@b.example", "server": "mail.example", "security": "tls"}
    mailer = Mailer(Addresses(loopback, frozenset({f"mail.example:{port}"})), trusted(), seconds=seconds)
    return run(mailer.send(values | {"port": port}, None, MESSAGE, "dlv_1", NOW))


def test_a_server_that_says_nothing_ends_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert unserved(silent.getsockname()[1], 0.3).error == "no answer within 0.3 s"


def test_a_server_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
    assert unserved(port, 15).error == "no connection, or it broke"


def test_a_channel_of_mail_goes_by_the_outbox(database_url: str) -> None:
    async def work(server: MailServer) -> None:
        async with bench(database_url, allow=[server.place]) as b:
            mail = {"type": "email", "events": ["approval.requested"], "security": "none"}
            await b.channels(ops=settings(server, server="127.0.0.1") | mail)
            await b.ask("apr_1", reason="pays\r\nBcc: all@acme.example")
            await asyncio.to_thread(server.wait_for, 2)
            await b.notices("ops", lambda found: found[0]["status"] == "delivered")

    with MailServer(answers=["451 later", "250 kept"]) as server:
        run(work(server))
    first, second = server.mails
    assert first["Message-ID"] == second["Message-ID"]
    assert second["Bcc"] is None and server.recipients[1] == ["oncall@acme.example"]
    assert "pays Bcc: all@acme.example." in second.get_content()
