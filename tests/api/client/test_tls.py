"""Where no TLS comes about somebody is there: no fail mode lets anything through for a wrong address, or for
a certificate that nobody vouches for."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from governance_client import ClientSettings

from tests.api.client.conftest import Ask, Told
from tests.harness.receiver import Certificate, Receiver

MODES = pytest.mark.parametrize("mode", ["closed", "open"])


def of(told: Told, port: int, mode: str, scheme: str = "https") -> ClientSettings:
    url = f"{scheme}://127.0.0.1:{port}"
    changes: dict[str, Any] = {"url": url, "fail_mode": mode, "decide_seconds": 2.0}
    return told(**changes)


@MODES
def test_https_where_plain_http_is_spoken(ask: Ask, told: Told, mode: str) -> None:
    settings = told()
    decision = ask(of(told, int(settings.url.rpartition(":")[2]), mode), "list", {})
    assert not decision.allowed and "no TLS comes about" in decision.reason
    assert "WRONG_VERSION_NUMBER" in decision.reason, decision.reason


@MODES
@pytest.mark.parametrize("scheme", ["https", "HTTPS"])
def test_a_certificate_that_nobody_vouches_for(ask: Ask, told: Told, mode: str, scheme: str) -> None:
    with Receiver(tls=Certificate("127.0.0.1")) as receiver:
        decision = ask(of(told, receiver.port, mode, scheme), "list", {})
        assert not decision.allowed and "CERTIFICATE_VERIFY_FAILED" in decision.reason
        assert receiver.requests == []


@pytest.fixture
def breaking() -> Iterator[int]:
    """A port that takes what is said first, and breaks off."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                with listener.accept()[0] as connection:
                    connection.recv(65536)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("mode, runs", [("closed", False), ("open", True)])
def test_a_handshake_that_breaks_off_is_of_a_service_that_is_away(
    ask: Ask, told: Told, breaking: int, mode: str, runs: bool
) -> None:
    decision = ask(of(told, breaking, mode), "list", {})
    assert decision.allowed == decision.decided_offline == runs, decision


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_what_an_agent_has_met_itself_is_not_taken_for_it(ask: Ask, told: Told, scheme: str) -> None:
    """It asks while it handles what its own tool has met."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    settings = told(url=f"{scheme}://127.0.0.1:{port}", fail_mode="open", decide_seconds=2.0)
    try:
        raise ssl.SSLError(1, "of another service")
    except ssl.SSLError:
        decision = ask(settings, "list", {})
    assert decision.allowed and decision.decided_offline, decision
