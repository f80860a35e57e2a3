"""What stays so until somebody mends it is no absence: no fail mode lets anything through for a key, an
address or a proxy with which nobody can be reached, or for whoever speaks no HTTP at the address."""

from __future__ import annotations

import contextlib
import errno
import resource
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from governance_client import ClientSettings, Governance

from tests.api.client.conftest import Ask, Told

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
ELSEWHERE = "https://governance.example"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@contextlib.contextmanager
def saying(answer: bytes) -> Iterator[int]:
    """A port that says this to whatever it is told, and ends."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                with listener.accept()[0] as connection, contextlib.suppress(OSError):
                    connection.recv(65536)
                    connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def opened(told: Told, **changes: Any) -> ClientSettings:
    return told(**{"fail_mode": "open", "decide_seconds": 2.0, **changes})


@pytest.mark.parametrize("key", [" agk_one", "agk_one ", "agk_one\n", "\tagk_one"])
def test_a_key_with_blanks_is_none_and_that_of_a_file_is_read_without_them(told: Told, key: str) -> None:
    with pytest.raises(ValueError, match="GOVERNANCE_API_KEY"):
        told(api_key=key)
    assert ClientSettings.from_env({"GOVERNANCE_API_KEY": key}).api_key == "agk_one"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:87oo",
        "http://127.0.0.1:87000",
        " http://127.0.0.1",
        "http://127.0.0.1\n",
        "http://[::1",
    ],
)
def test_an_address_that_nobody_could_ask_is_refused(told: Told, url: str) -> None:
    with pytest.raises(ValueError, match="GOVERNANCE_URL"):
        told(url=url)


@pytest.mark.parametrize(
    "name, value",
    [
        ("NO_PROXY", "localhost,fd00::/8"),
        ("HTTPS_PROXY", "http://proxy.example:31z8"),
        ("ALL_PROXY", "nothing://proxy.example"),
    ],
)
def test_proxies_that_cannot_be_used_are_told_at_once(
    told: Told, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="NO_PROXY"):
        Governance(opened(told, url=ELSEWHERE))
    Governance(opened(told)).close()  # no proxy stands before what is on this machine


@pytest.mark.parametrize("status, runs", [(403, False), (407, False), (502, True), (503, True)])
def test_a_proxy_that_refuses_to_pass_it_on(
    ask: Ask, told: Told, monkeypatch: pytest.MonkeyPatch, status: int, runs: bool
) -> None:
    with saying(f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()) as port:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
        decision = ask(opened(told, url=ELSEWHERE), "list", {})
    assert decision.allowed == decision.decided_offline == runs, decision
    assert str(status) in decision.reason


@pytest.mark.parametrize(
    "answer, runs",
    [
        (b"\x15\x03\x01\x00\x02\x02\x46", False),  # TLS, asked without it
        (b"HTTP/2 200\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nno header\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", True),
        (b"", True),
    ],
)
def test_who_speaks_no_http_is_no_service_that_is_away(
    ask: Ask, told: Told, answer: bytes, runs: bool
) -> None:
    with saying(answer) as port:
        decision = ask(opened(told, port=port), "list", {})
    assert decision.allowed == decision.decided_offline == runs, decision


def test_who_may_open_no_more_files_has_seen_nobody_away(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: Any, **__: Any) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    with Governance(opened(told)) as governance:
        run = governance.run("a task")
        with monkeypatch.context() as patched:
            patched.setattr(socket, "create_connection", none_left)
            decision = run.check("list", {})
            assert not decision.allowed and "Too many open files" in decision.reason
        assert run.check("list", {}).allowed


@contextlib.contextmanager
def no_files_left() -> Iterator[None]:
    """This process has as many files open as it may."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as held:
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(1_024, *before), before[1]))
        with contextlib.suppress(OSError):
            while True:
                held.enter_context(socket.socket())
        yield


def test_nor_has_who_cannot_look_up_a_name_for_that(told: Told) -> None:
    with Governance(opened(told, url="http://localhost:1")) as governance:
        run = governance.run("a task")
        assert run.check("list", {}).allowed
        with no_files_left():
            decision = run.check("list", {})
        assert not decision.allowed and "may open no more files" in decision.reason, decision
