"""A message as mail: one attempt with an SMTP server, at an address that was checked.

The name is resolved and its addresses are checked as those of webhooks are; the socket goes to an accepted
one, and TLS is for the name. Plain text only, marked as sent by a machine. Knows nothing of tables.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Mapping
from email.message import EmailMessage
from email.policy import SMTP as WIRE
from email.utils import formatdate
from typing import Any, Final

import aiosmtplib

from api.notifications.texts import NoticeText
from api.webhooks.sender import SECONDS, Addresses, AddressRefused, PostResult

MOST_SAID: Final = 500
"""Characters of a server's answer that are kept."""
TLS_AT_ONCE: Final = "where TLS begins at once, as on port 465, write `security: tls`"
TLS_LATER: Final = (
    "the server does not begin with TLS; where that comes later, as on port 587, write `security: starttls`"
)


class Mailer:
    """Sends mail; one per process."""

    def __init__(self, addresses: Addresses, tls: ssl.SSLContext, *, seconds: float = SECONDS) -> None:
        self._addresses, self._tls, self._seconds = addresses, tls, seconds

    async def send(
        self,
        settings: Mapping[str, Any],
        password: str | None,
        message: NoticeText,
        message_id: str,
        now: float,
    ) -> PostResult:
        """One attempt; never raises for what a server or the network does. `status` is the server's code."""
        started = time.monotonic()
        status: int | None = None
        said, error = "", None
        if settings["security"] == "none" and not self._addresses.is_listed(
            settings["server"], settings["port"]
        ):
            error = "mail without TLS is only for what `GOVERNANCE_WEBHOOK_ALLOW` lists"
        elif settings.get("username") is not None and password is None:
            error = "the password is not set"
        else:
            try:
                async with asyncio.timeout(self._seconds):
                    status, said = await self._sent(
                        settings, password, _mail(settings, message, message_id, now)
                    )
            except aiosmtplib.SMTPResponseException as refused:
                status, said = refused.code, refused.message
            except aiosmtplib.SMTPRecipientsRefused as refused:
                status, said = refused.recipients[0].code, refused.recipients[0].message
            except Exception as caught:
                error = self._described(caught, settings["security"])
        said = "".join(each if each.isprintable() else " " for each in said[:MOST_SAID])
        return PostResult(status, said, error, None, round((time.monotonic() - started) * 1000))

    async def _sent(
        self, settings: Mapping[str, Any], password: str | None, mail: EmailMessage
    ) -> tuple[int, str]:
        client = aiosmtplib.SMTP(
            hostname=settings["server"],
            sock=await self._dialled(settings["server"], settings["port"]),
            use_tls=settings["security"] == "tls",
            start_tls=settings["security"] == "starttls",
            tls_context=self._tls if settings["security"] != "none" else None,
            username=settings.get("username"),
            password=password if settings.get("username") is not None else None,
            local_hostname=socket.gethostname() or "localhost",
            timeout=self._seconds,
        )
        try:
            await client.connect()
            refused, said = await client.send_message(mail)
            with contextlib.suppress(aiosmtplib.SMTPException):
                await client.quit()
        finally:
            client.close()
        if refused:
            said = f"{said}; not taken: {', '.join(sorted(refused))}"
        return 250, said

    async def _dialled(self, host: str, port: int) -> socket.socket:
        """A connection to an accepted address of the server. Raises AddressRefused, OSError."""
        loop = asyncio.get_running_loop()
        failed: OSError | None = None
        for address in await self._addresses.accepted(host, port):
            made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
            made.setblocking(False)
            try:
                await loop.sock_connect(made, (address, port))
            except OSError as error:
                made.close()
                failed = error
            except BaseException:
                made.close()
                raise
            else:
                return made
        raise failed or OSError("no address")

    def _described(self, error: Exception, security: str) -> str:
        """The text of the error in the record of the notice."""
        match error:
            case AddressRefused():
                return f"`{error}` leads to no address that may be called; the log of the service says why"
            case ssl.SSLCertVerificationError():
                return f"the certificate is not accepted: {error.verify_message}"
            case TimeoutError():
                silent = f"no answer within {self._seconds:g} s"
                return silent if security == "tls" else f"{silent}; {TLS_AT_ONCE}"
            case OSError():
                cause = error.__cause__
                if isinstance(cause, ssl.SSLCertVerificationError):
                    return f"the certificate is not accepted: {cause.verify_message}"
                if isinstance(cause, ssl.SSLError) and security == "tls":
                    return TLS_LATER
                return "no connection, or it broke"
            case aiosmtplib.SMTPException():
                return "the server does not offer what `security` or `username` needs"
        return "the attempt failed"


def _mail(settings: Mapping[str, Any], message: NoticeText, message_id: str, now: float) -> EmailMessage:
    mail = EmailMessage(policy=WIRE)
    mail["From"] = settings["from"]
    mail["To"] = ", ".join(settings["to"])
    # INVARIANT: no encoded word stands in it (RFC 2047): the package would decode one that an agent has put
    # into a name, line breaks too, and what stands behind those would be headers, and the text of the mail.
    mail["Subject"] = f"[governance] {message.title}".replace("=?", "= ?")
    mail["Date"] = formatdate(now)
    mail["Message-ID"] = f"<{message_id}@{settings['from'].rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    link = [] if message.link is None else [message.link]
    mail.set_content("\n\n".join([*message.paragraphs, *link]) + "\n")
    return mail
