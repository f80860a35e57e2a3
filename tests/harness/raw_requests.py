"""Requests as no well-behaved client sends them: straight to the application, as the web server would.

What a web server refuses by itself (no HTTP at all, two lengths) is tested over a socket in
`api/hostile/test_wire.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from api.http import bodies
from api.http.problems import CODES
from api.server.endpoint import PROBLEM

Headers = Sequence[tuple[str | bytes, str | bytes]]


@dataclass
class Answer:
    """What came back. `headers` are in lower case, each once or more."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes = b""
    _parts: list[bytes] = field(default_factory=list, repr=False)

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def said(self) -> str:
        return f"{self.status} {self.body[:600].decode(errors='replace')}"


def _bytes(text: str | bytes) -> bytes:
    return text.encode("latin-1") if isinstance(text, str) else text


async def send(
    app: Any,
    method: str,
    target: str | bytes,
    body: bytes | Iterable[bytes] = b"",
    headers: Headers = (),
    *,
    client: tuple[str, int] | None = ("192.0.2.7", 4_000),
    with_length: bool = True,
) -> Answer:
    """One request. `target` is path and query as they stand on the request line."""
    raw_path, _, query = _bytes(target).partition(b"?")
    parts = [body] if isinstance(body, bytes) else list(body)
    sent = [(_bytes(name).lower(), _bytes(value)) for name, value in headers]
    names = {name for name, _ in sent}
    if with_length and isinstance(body, bytes) and body and b"content-length" not in names:
        sent.append((b"content-length", b"%d" % len(body)))
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(raw_path.decode("ascii")),
        "raw_path": raw_path,
        "query_string": query,
        "root_path": "",
        "headers": sent,
        "client": client,
        "server": ("127.0.0.1", 8_700),
        "state": {},
    }
    messages = [
        {"type": "http.request", "body": part, "more_body": number < len(parts)}
        for number, part in enumerate(parts, 1)
    ]
    answer = Answer(0, [])

    async def receive() -> dict[str, Any]:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def collect(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in message["headers"]]
        else:
            answer.body += message.get("body", b"")

    await app(scope, receive, collect)
    return answer


def problem(answer: Answer, *codes: str) -> dict[str, Any]:
    """The problem document of an answer, complete and consistent; of one of these codes, if any are given."""
    assert 400 <= answer.status < 500, answer.said
    assert answer.header("content-type") == PROBLEM, answer.said
    assert answer.header("cache-control") == "no-store"
    assert answer.header("x-content-type-options") == "nosniff"
    document: dict[str, Any] = answer.json()
    bodies.validate("problem", document)
    code = document["code"]
    assert document["status"] == answer.status == CODES[code][0], answer.said
    assert document["type"] == f"urn:governance:problem:{code}"
    assert document["title"] == CODES[code][1]
    assert document["detail"] and document["requestId"] == answer.header("x-request-id")
    assert len(answer.body) < 200_000, "a problem repeats what was sent"
    for word in ("Traceback", "msgspec", "peewee", "jsonschema", "sqlite", "psycopg", "object at 0x"):
        assert word not in document["detail"], answer.said
    for error in document["errors"]:
        assert not error["pointer"] or error["pointer"].startswith("/")
    if answer.status == 401:
        assert answer.header("www-authenticate")
    if answer.status == 405:
        assert answer.header("allow")
    if codes:
        assert code in codes, answer.said
    return document
