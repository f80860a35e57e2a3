"""A credential that ends while the body of its request is still coming, or while it waits for its turn,
changes nothing any more."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from api.audit import records
from api.handlers import audit
from tests.harness.application import PASSWORD
from tests.harness.running_service import Served, bearer


@contextmanager
def half_sent(
    service: Served,
    monkeypatch: pytest.MonkeyPatch,
    request: str,
    credential: tuple[str, str],
    body: Any,
) -> Iterator[tuple[socket.socket, bytes]]:
    """The first half of a request, whose head was read and believed; and the rest of it."""
    seen, credentials = threading.Event(), service.context.credentials
    name = "from_token" if credential[0] == "Authorization" else "from_key"
    believe, secret = getattr(credentials, name), credential[1].removeprefix("Bearer ")

    async def believed(sent: str, *rest: Any, **more: Any) -> Any:
        caller = await believe(sent, *rest, **more)
        if sent == secret:
            seen.set()
        return caller

    monkeypatch.setattr(credentials, name, believed)
    content = json.dumps(body).encode()
    head = (
        f"{request} HTTP/1.1\r\nHost: service.example\r\n{': '.join(credential)}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", service.port), timeout=60) as wire:
        wire.sendall(head.encode() + content[:1])
        assert seen.wait(60)
        yield wire, content[1:]


def answer_of(wire: socket.socket) -> str:
    received = b""
    while piece := wire.recv(65_536):
        received += piece
    return received.decode()


ENDS: dict[str, Any] = {
    "disabled": {"enabled": False},
    "demoted": {"role": "viewer"},
    "password": {"password": "x" + PASSWORD},
}


@pytest.mark.parametrize("end", ENDS)
def test_a_person_whose_token_ended_changes_nothing(
    service: Served, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    admin, friend = service.user("admin"), f"friend-{end}@example.com"
    body = {"email": friend, "password": PASSWORD, "role": "admin"}
    token = ("Authorization", f"Bearer {admin['token']}")
    with half_sent(service, monkeypatch, "POST /v1/users", token, body) as (wire, rest):
        service.answered("admin", "PATCH", f"/v1/users/{admin['userId']}", ENDS[end])
        wire.sendall(rest)
        assert answer_of(wire).startswith("HTTP/1.1 401 ")
    assert friend not in service.call("admin", "GET", "/v1/users?limit=1000").text


WRITES: dict[str, Any] = {
    "POST /v1/users": {"email": "late@example.com", "password": PASSWORD, "role": "admin"},
    "POST /v1/api-keys": {"name": "late"},
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("end", ENDS)
def test_what_waits_for_its_turn_is_not_written_for_somebody_whose_token_ended(
    service: Served, monkeypatch: pytest.MonkeyPatch, write: str, end: str
) -> None:
    """As behind many passwords that are hashed: that takes minutes."""
    admin = service.user("admin")
    begun, go = threading.Event(), threading.Event()
    method, path = write.split()

    def wait() -> None:
        begun.set()
        assert go.wait(60)

    hasher, writer = service.context.credentials.passwords, service.context.writer
    hashed, written = hasher.hashed, writer.write

    async def late_hash(*arguments: Any) -> Any:
        await asyncio.to_thread(wait)
        return await hashed(*arguments)

    async def late_write(job: Any) -> Any:
        await asyncio.to_thread(wait)
        return await written(job)

    with ThreadPoolExecutor(1) as beside, monkeypatch.context() as patch:
        if path == "/v1/users":
            patch.setattr(hasher, "hashed", late_hash)
        else:
            patch.setattr(writer, "write", late_write)
        answer = beside.submit(service.call, bearer(admin["token"]), method, path, WRITES[write])
        assert begun.wait(60)
        patch.undo()
        service.answered("admin", "PATCH", f"/v1/users/{admin['userId']}", ENDS[end])
        go.set()
        assert answer.result(60).status_code == 401
    found = service.call("admin", "GET", f"{path}?limit=100").json()
    assert not [
        each for each in found if "late" in (each.get("name"), each.get("email", "").partition("@")[0])
    ]


def test_an_export_ends_with_the_token_that_asked_for_it(
    service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However slowly it is read; and not as if it were whole."""
    admin, lines, parts = service.user("admin"), records.export_lines, 0

    def disable_meanwhile(*arguments: Any) -> Any:
        nonlocal parts
        parts += 1
        if parts == 1:
            service.answered("admin", "PATCH", f"/v1/users/{admin['userId']}", {"enabled": False})
        return lines(*arguments)

    monkeypatch.setattr(audit, "LINES_AT_ONCE", 1)
    monkeypatch.setattr(records, "export_lines", disable_meanwhile)
    with pytest.raises(httpx.RemoteProtocolError):
        service.call(bearer(admin["token"]), "GET", "/v1/audit?format=jsonl")
    assert parts == 1


def test_a_key_that_was_revoked_proposes_no_tools(service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    key = service.key()
    body = {"server": "late", "tools": [{"name": "read", "definition": "0" * 64}]}
    secret = ("X-API-Key", key["key"])
    with half_sent(service, monkeypatch, "POST /v1/tool-proposals", secret, body) as (wire, rest):
        assert service.call("admin", "DELETE", f"/v1/api-keys/{key['keyId']}").status_code == 204
        wire.sendall(rest)
        assert answer_of(wire).startswith("HTTP/1.1 401 ")
    assert "late" not in service.call("admin", "GET", "/v1/tool-proposals").text


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("ended")) as made:
        yield made
