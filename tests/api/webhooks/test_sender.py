"""One attempt over the network, against real servers and a resolver that the test controls."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import pytest

from api.webhooks import address
from api.webhooks.sender import MOST_BODY_BYTES, PostResult, Resolver, Sender, SystemResolver
from tests.harness.places import ROOT
from tests.harness.receiver import Answer as Reply
from tests.harness.receiver import Certificate, Receiver

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 30))


def leading_to(*addresses: str) -> Resolver:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return list(addresses)

    return resolve


async def post(url: str, resolver: Resolver, *allow: str, **options: Any) -> PostResult:
    sender = Sender(resolver, address.places(allow), **options)
    try:
        return await sender.post(url, {"content-type": "application/json"}, b'{"a":1}')
    finally:
        await sender.close()


def post_to(receiver: Receiver, **options: Any) -> PostResult:
    return run(post(receiver.url, leading_to("127.0.0.1"), receiver.place, **options))


async def post_where(
    answers: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> PostResult:
    """What comes of it where somebody answers bytes of their own."""
    server = await asyncio.start_server(answers, "127.0.0.1", 0)
    place = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        return await post(f"http://{place}/", leading_to("127.0.0.1"), place)
    finally:
        server.close()


def test_a_2xx_is_acknowledged_and_the_answer_kept() -> None:
    with Receiver([Reply(204, b"")]) as receiver:
        answer = post_to(receiver)
    assert answer.acknowledged and answer.status == 204 and answer.error is None
    assert receiver.requests[0].body == b'{"a":1}'


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_a_failure_and_is_not_followed(status: int) -> None:
    with Receiver() as elsewhere, Receiver([Reply(status, headers={"Location": elsewhere.url})]) as receiver:
        answer = post_to(receiver)
        assert elsewhere.requests == []
    assert not answer.acknowledged and answer.status == status
    assert answer.error == "redirects are not followed; register the final address"


def test_retry_after_is_handed_on() -> None:
    with Receiver([Reply(429, headers={"Retry-After": "17"})]) as receiver:
        answer = post_to(receiver)
    assert (answer.status, answer.retry_after) == (429, "17")


def test_only_the_beginning_of_a_large_body_is_read() -> None:
    with Receiver([Reply(500, b"x" * 5_000_000)]) as receiver:
        answer = post_to(receiver)
    assert answer.body == "x" * MOST_BODY_BYTES


def test_a_body_that_is_not_text_is_kept_readable() -> None:
    with Receiver([Reply(200, b"\xff\x00a")]) as receiver:
        answer = post_to(receiver)
    assert answer.body == "��a"


def test_a_receiver_that_hangs_is_given_up() -> None:
    with Receiver([Reply(delay=20)]) as receiver:
        started = time.monotonic()
        answer = post_to(receiver, seconds=0.3)
    assert answer.status is None and answer.error == "no answer within 0.3 s"
    assert 250 <= answer.duration_ms < 3000 and time.monotonic() - started < 5


def test_the_status_counts_even_if_the_body_never_ends() -> None:
    with Receiver([Reply(200, b"abcdefgh" * 100, drip=0.05)]) as receiver:
        answer = post_to(receiver, seconds=0.4)
    assert answer.acknowledged and answer.body.startswith("a") and answer.error is None


@pytest.mark.parametrize("interim", [b"HTTP/1.1 100 \r\n\r\n", b"HTTP/1.1 103 Early Hints\r\na: b\r\n\r\n"])
def test_interim_answers_without_end_are_not_taken_in(interim: bytes) -> None:
    """Each costs the event loop, on which calls are decided, and none is an answer."""

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(interim * 500)
                await writer.drain()

    assert run(post_where(babble)).error == "the answer did not begin within 32 KiB"


def test_nobody_listening_is_told_as_such() -> None:
    with Receiver() as receiver:
        url, place = receiver.url, receiver.place
    answer = run(post(url, leading_to("127.0.0.1"), place))
    assert answer.status is None and answer.error == "cannot connect: connection refused"


def test_an_answer_that_is_not_http_is_told_as_such() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
        writer.close()

    assert run(post_where(babble)).error == "the answer is not HTTP, or broke off"


def nowhere(host: str) -> str:
    """What the record says of a name without an address, and of one that leads inside."""
    return f"`{host}` leads to no address that may be called; the log of the service says why"


def test_a_name_without_address_is_told_as_such(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "governance")
    assert run(post("https://a.example/", leading_to())).error == nowhere("a.example")
    assert "`a.example` not called: the name has no address" in caplog.text
    answer = run(post("https://nowhere.invalid/", SystemResolver(1)))
    assert answer.error == nowhere("nowhere.invalid")


# Where it may go --------------------------------------------------------------------------------------


@pytest.mark.parametrize("ip", ["127.0.0.1", "10.0.0.8", "169.254.169.254", "::1", "::ffff:127.0.0.1"])
def test_a_name_that_leads_inside_is_refused_before_dialling(
    ip: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "governance")
    with Receiver() as receiver:
        answer = run(post(f"https://evil.example:{receiver.port}/", leading_to(ip)))
        assert receiver.requests == []
    assert answer.status is None
    assert answer.error == nowhere("evil.example"), "who registers webhooks learns names of the network"
    assert f"`evil.example` not called: `{ip}` is " in caplog.text


def test_odd_spellings_of_loopback_are_refused_by_what_they_mean(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "governance")
    for host in ("0x7f.1", "127.1", "2130706433", "017700000001"):
        answer = run(post(f"https://{host}:1/", SystemResolver(1)))
        assert answer.error == nowhere(host)
        assert f"`{host}` not called: `127.0.0.1` is loopback" in caplog.text


@pytest.fixture
def dialled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What sockets are asked to connect to; nobody answers."""
    import anyio

    seen: list[str] = []

    async def connect(remote_host: str, remote_port: int, **_: Any) -> Any:
        seen.append(remote_host)
        raise OSError(111, "connection refused")

    monkeypatch.setattr(anyio, "connect_tcp", connect)
    return seen


def test_a_name_that_changes_its_mind_gains_nothing(dialled: list[str]) -> None:
    """DNS rebinding: public at the first look, loopback at every later one."""
    looks: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        looks.append(host)
        return ["8.8.8.8" if len(looks) == 1 else "127.0.0.1"]

    first = run(post("https://rebind.example/", resolve))
    # One look for one attempt, and the socket got the address of that look: there is no second question
    # whose answer could differ.
    assert (looks, dialled) == (["rebind.example"], ["8.8.8.8"])
    assert first.error == "cannot connect: connection refused"
    second = run(post("https://rebind.example/", resolve))
    assert (len(looks), dialled) == (2, ["8.8.8.8"])
    assert second.error == nowhere("rebind.example")


def test_what_nobody_foresaw_stays_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import anyio

    async def connect(*_: Any, **__: Any) -> Any:
        raise RuntimeError("proxy.corp.internal is down")

    monkeypatch.setattr(anyio, "connect_tcp", connect)
    answer = run(post("https://a.example/", leading_to("8.8.8.8")))
    assert answer.error == "the attempt failed; the log of the service says why"
    assert "proxy.corp.internal is down" in caplog.text


def test_of_mixed_addresses_only_public_ones_are_dialled(dialled: list[str]) -> None:
    run(post("https://a.example/", leading_to("10.0.0.1", "8.8.8.8", "::1", "2606:4700:4700::1111")))
    assert dialled == ["8.8.8.8", "2606:4700:4700::1111"]


def test_the_certificate_must_fit_the_name_although_an_address_is_dialled() -> None:
    right, wrong = Certificate("hook.example"), Certificate("other.example")
    for certificate, fits in ((right, True), (wrong, False)):
        with Receiver(tls=certificate) as receiver:
            url = f"https://hook.example:{receiver.port}/hook"
            allow = f"hook.example:{receiver.port}"
            answer = run(post(url, leading_to("127.0.0.1"), allow, tls=certificate.trusting))
            assert answer.acknowledged is fits
            assert len(receiver.requests) == int(fits)
            if not fits:
                assert "the certificate is not accepted" in (answer.error or "")


def test_an_unknown_authority_is_refused() -> None:
    with Receiver(tls=Certificate("127.0.0.1")) as receiver:
        answer = post_to(receiver)
        assert receiver.requests == []
    assert "the certificate is not accepted" in (answer.error or "")


def test_only_what_is_listed_may_be_private_and_only_on_its_port() -> None:
    with Receiver() as receiver, Receiver() as other:
        assert post_to(receiver).acknowledged
        answer = run(post(other.url, leading_to("127.0.0.1"), receiver.place))
        assert not answer.acknowledged and other.requests == []


def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver() as proxy, Receiver() as receiver:
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://{proxy.place}")
        assert post_to(receiver).acknowledged
        assert proxy.requests == []


def test_no_cookie_is_kept_between_attempts() -> None:
    async def work(receiver: Receiver) -> None:
        sender = Sender(leading_to("127.0.0.1"), address.places([receiver.place]))
        for _ in range(2):
            await sender.post(receiver.url, {}, b"{}")
        await sender.close()

    with Receiver([Reply(headers={"Set-Cookie": "a=b"})]) as receiver:
        run(work(receiver))
        assert all("cookie" not in request.headers for request in receiver.requests)
        assert len(receiver.requests) == 2


def test_a_slow_name_server_does_not_hold_up_the_loop() -> None:
    async def work() -> float:
        resolver = SystemResolver(2)
        longest = 0.0

        async def tick() -> None:
            nonlocal longest
            while True:
                before = time.monotonic()
                await asyncio.sleep(0.01)
                longest = max(longest, time.monotonic() - before)

        real = socket.getaddrinfo

        def slow(*arguments: Any, **options: Any) -> Any:
            time.sleep(0.5)
            return real(*arguments, **options)

        socket.getaddrinfo = slow
        ticking = asyncio.create_task(tick())
        try:
            await post("https://localhost:1/", resolver)
        finally:
            socket.getaddrinfo = real
            ticking.cancel()
        return longest

    assert run(work()) < 0.3


SILENT = """
import asyncio, contextlib, socket, time
from api.webhooks.sender import SystemResolver

socket.getaddrinfo = lambda *arguments, **options: time.sleep(600)

async def ask():
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(SystemResolver(1)("a.example", 443), 0.1)

asyncio.run(ask())
"""


def test_a_silent_name_server_does_not_hold_up_the_end_of_the_process() -> None:
    subprocess.run([sys.executable, "-c", SILENT], check=True, timeout=120, cwd=ROOT)


async def test_so_many_names_are_asked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answer = [], threading.Event()

    def answered(host: str, *more: Any, **told: Any) -> Any:
        asked.append(host)
        answer.wait(60)
        if host == "gone":
            raise socket.gaierror(socket.EAI_NONAME, "nobody")
        return [(0, 0, 0, "", ("192.0.2.7", 443))] * 2

    monkeypatch.setattr(socket, "getaddrinfo", answered)
    resolver = SystemResolver(2)
    tasks = [asyncio.create_task(resolver(host, 443)) for host in ("gone", "left", "third")]
    while len(asked) < 2:
        await asyncio.sleep(0.001)
    tasks[1].cancel()
    await asyncio.sleep(0.01)
    assert sorted(asked) == ["gone", "left"], "who has gone keeps its place until the name server answers"
    answer.set()
    assert await tasks[2] == ["192.0.2.7"]
    with pytest.raises(socket.gaierror):
        await tasks[0]
