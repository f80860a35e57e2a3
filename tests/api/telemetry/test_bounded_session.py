"""A receiver of spans that answers as none does: without end, packed many times, from another place."""

from __future__ import annotations

import gzip
import os
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from api.telemetry import tracing
from api.telemetry.bounded_session import MOST_ANSWER_BYTES, bounded_session

LONGEST = 64 << 20


@contextmanager
def receiver(head: bytes, body: bytes, times: int) -> Iterator[tuple[str, list[int]]]:
    """Its address, and how often it could send the body to each who asked."""
    sent: list[int] = []

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            sent.append(0)
            with suppress(OSError):
                self.request.sendall(b"HTTP/1.1 " + head + b"\r\n\r\n")
                while sent[-1] < times:
                    self.request.sendall(body)
                    sent[-1] += 1

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1/traces", sent
        server.shutdown()


def test_an_answer_without_an_end_is_read_to_a_bound() -> None:
    with receiver(b"200 OK", b"x" * 65536, LONGEST >> 16) as (url, sent):
        answer = bounded_session().post(url, data=b"spans", timeout=10)
        assert (answer.status_code, len(answer.content)) == (200, MOST_ANSWER_BYTES)
    assert sent[0] < LONGEST >> 16, "most of it was taken by nobody"


def test_a_packed_answer_stays_packed() -> None:
    packed = gzip.compress(gzip.compress(bytes(LONGEST)))
    head = b"400 No\r\nContent-Encoding: gzip, gzip\r\nContent-Length: %d" % len(packed)
    with receiver(head, packed, 1) as (url, _):
        assert bounded_session().post(url, data=b"spans", timeout=10).content == packed


def test_no_secret_goes_where_an_answer_points_to() -> None:
    with receiver(b"200 OK\r\nContent-Length: 0", b"", 0) as (other, asked):
        head = b"307 Elsewhere\r\nContent-Length: 0\r\nLocation: " + other.encode()
        with receiver(head, b"", 0) as (url, _):
            answer = bounded_session().post(url, data=b"spans", headers={"api-key": "secret"}, timeout=10)
        assert answer.status_code == 307 and not asked


def test_the_service_sends_its_spans_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver(b"200 OK", b"x" * 65536, LONGEST >> 16) as (url, sent):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", url)
        tracing.start(os.environ)
        with tracing.step("decide"):
            pass
        tracing.stop()
        assert len(sent) == 1
    assert sent[0] < LONGEST >> 16
