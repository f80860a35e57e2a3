"""A real HTTP receiver of webhooks on the loopback, for tests: it answers as told and remembers what came.

    with Receiver() as receiver:
        receiver.plan = [Answer(500), Answer(200)]      # the last one goes on for ever
        ...
        receiver.wait_for(2)

`plan` may also be a function of the request. `tls=` serves https with a certificate made on the spot.
"""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec


@dataclass(frozen=True)
class Answer:
    """`delay` seconds pass before the status, `drip` seconds between bytes of the body."""

    status: int = 200
    body: bytes = b"ok"
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    drip: float = 0.0


@dataclass(frozen=True)
class Received:
    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


Plan = Sequence[Answer] | Callable[[Received], Answer]


class Receiver:
    """One server with a thread per connection; requests are kept in the order they came."""

    def __init__(self, plan: Plan = (), tls: Certificate | None = None, port: int = 0) -> None:
        self.plan: Plan = plan
        self.requests: list[Received] = []
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = self.rfile.read(length)
                if len(body) < length:
                    # The sender died in the middle of its request: nothing has arrived.
                    self.close_connection = True
                    return
                request = Received(self.path, headers, body, time.time())
                answer = receiver._answer(request)
                if answer.delay and receiver._stopping.wait(answer.delay):
                    self.close_connection = True
                    return
                try:
                    self._send(answer)
                except OSError:
                    self.close_connection = True

            do_GET = do_POST  # noqa: N815

            def _send(self, answer: Answer) -> None:
                self.send_response(answer.status)
                self.send_header("Content-Length", str(len(answer.body)))
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                if not answer.drip:
                    self.wfile.write(answer.body)
                    return
                for byte in answer.body:
                    if receiver._stopping.wait(answer.drip):
                        return
                    self.wfile.write(bytes([byte]))
                    self.wfile.flush()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256
            allow_reuse_address = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", port), Handler)
        self.scheme = "http"
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls.file)
            # Handshakes belong to the connections' threads, so that a refused one holds up nobody.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
            self.scheme = "https"
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def _answer(self, request: Received) -> Answer:
        with self._changed:
            number = len(self.requests)
            self.requests.append(request)
            self._changed.notify_all()
        if callable(self.plan):
            return self.plan(request)
        return self.plan[min(number, len(self.plan) - 1)] if self.plan else Answer()

    @property
    def place(self) -> str:
        """`host:port`, for `GOVERNANCE_WEBHOOK_ALLOW`."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.place}/hook"

    def wait_for(self, count: int, timeout: float = 60.0) -> list[Received]:
        """The requests, once there are so many; blocks this thread, so call it off the event loop."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.requests) >= count, timeout):
                raise AssertionError(f"{len(self.requests)} requests came, {count} were expected")
            return list(self.requests)

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()


class Certificate:
    """A self-signed certificate for a name, and a client context that trusts only it."""

    def __init__(self, name: str) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        try:
            alternative: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(name))
        except ValueError:
            alternative = x509.DNSName(name)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        self._folder = tempfile.TemporaryDirectory(prefix="governance-tls-")
        self.file = Path(self._folder.name) / "both.pem"
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        self.file.write_bytes(
            pem
            + key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        self.trusting = ssl.create_default_context(cadata=pem.decode())
