"""A real SMTP server on the loopback, for tests: it takes mail as told and remembers what came.

    with MailServer() as server:
        ...
        server.wait_for(1)

`tls=` offers STARTTLS, and with `implicit` speaks TLS from the first byte; `password=` asks for one;
`answers` are given to messages in turn, the last one for ever. Mail to `nobody@` is refused.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Sequence
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

from tests.harness.receiver import Certificate


class MailServer:
    """One server; mail is kept in the order it came."""

    def __init__(
        self,
        *,
        tls: Certificate | None = None,
        implicit: bool = False,
        password: str | None = None,
        answers: Sequence[str] = ("250 kept",),
    ) -> None:
        self.mails: list[EmailMessage] = []
        self.recipients: list[list[str]] = []
        self.encrypted: list[bool] = []
        self._answers = answers
        self._changed = threading.Condition()
        context = None
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls.file)
        options: dict[str, Any] = {}
        if context is not None and not implicit:
            options |= {"tls_context": context}
        if password is not None:

            def authenticated(
                _server: Any, _session: Any, _envelope: Any, _how: str, data: Any
            ) -> AuthResult:
                right = isinstance(data, LoginPassword) and data.password == password.encode()
                return AuthResult(success=right, handled=False)

            options |= {"authenticator": authenticated, "auth_required": True}
            options |= {"auth_require_tls": not implicit}
        self._protocol = lambda: SMTP(self, hostname="mail.example", **options)
        self._tls = context if implicit else None
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    async def handle_RCPT(
        self, _server: Any, _session: Any, envelope: Any, address: str, options: list[str]
    ) -> str:
        if address.startswith("nobody@"):
            return "550 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        with self._changed:
            answer = self._answers[min(len(self.mails), len(self._answers) - 1)]
            self.mails.append(BytesParser(policy=default).parsebytes(envelope.content))
            self.recipients.append(list(envelope.rcpt_tos))
            self.encrypted.append(session.ssl is not None)
            self._changed.notify_all()
        return answer

    @property
    def place(self) -> str:
        """`host:port`, for `GOVERNANCE_WEBHOOK_ALLOW`."""
        return f"127.0.0.1:{self.port}"

    def wait_for(self, count: int, timeout: float = 60.0) -> list[EmailMessage]:
        """The mails, once there are so many; blocks this thread."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.mails) >= count, timeout):
                raise AssertionError(f"{len(self.mails)} mails came, {count} were expected")
            return list(self.mails)

    def __enter__(self) -> MailServer:
        self._thread.start()
        serving = self._loop.create_server(self._protocol, sock=self._socket, ssl=self._tls)
        self._server = asyncio.run_coroutine_threadsafe(serving, self._loop).result(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
