"""A service that dies within its answer: nothing runs in `closed`, and nothing unrecorded in `open`."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from api.hosts.table import NAMES, host
from tests.api.hosts.conftest import Agent

Make = Callable[..., Agent]


class Dying:
    """Answers every connection with the first bytes of an answer, and closes it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.answer = b""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                head = b""
                while b"\r\n\r\n" not in head and (more := connection.recv(65_536)):
                    head += more
                connection.sendall(self.answer)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def dying() -> Iterator[Dying]:
    made = Dying()
    yield made
    made.close()


def whole(name: str, denial: str = "") -> bytes:
    found = host(name)
    event = found.read(found.probe).event
    body = json.dumps(found.deny(event, denial) if denial else found.allow(event)).encode()
    head = f"HTTP/1.1 200 OK\r\ngovernance-outcome: {'blocked' if denial else 'allowed'}\r\n"
    return f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def no_pause(seconds: float) -> None:
    """Instead of sleeping."""


@pytest.mark.parametrize("name", NAMES)
def test_closed_lets_nothing_through(agent: Make, dying: Dying, name: str) -> None:
    made = agent(name, url=dying.url)
    for cut in range(0, len(whole(name)), 3):
        dying.answer = whole(name)[:cut]
        assert not made.call(sleep=no_pause).goes_ahead, dying.answer
    dying.answer = whole(name)[:-1]
    assert not made.call(sleep=no_pause).goes_ahead
    dying.answer = whole(name)
    assert made.call(sleep=no_pause).goes_ahead


@pytest.mark.parametrize("name", NAMES)
def test_half_a_denial_lets_nothing_through(agent: Make, dying: Dying, name: str) -> None:
    """It may end as JSON does, and a host goes ahead where its hook says what is none."""
    made, answer = agent(name, url=dying.url), whole(name, "no {payments}")
    for cut in range(len(answer) - 80, len(answer)):
        dying.answer = answer[:cut]
        assert not made.call(sleep=no_pause).goes_ahead, dying.answer


@pytest.mark.parametrize("name", NAMES)
def test_open_lets_nothing_through_that_it_has_not_written_down(agent: Make, dying: Dying, name: str) -> None:
    made = agent(name, url=dying.url, fail_mode="open")
    journal = made.folder / "journal" / "hooks" / "waiting.jsonl"
    ahead = 0
    for cut in range(0, len(whole(name)), 3):
        dying.answer = whole(name)[:cut]
        ahead += made.call(f"step {cut}", sleep=no_pause).goes_ahead
        assert lines(journal) == ahead
    assert ahead
    made.url = ""
    assert made.call("last").goes_ahead
    assert lines(journal) == 0
    assert len(made.run["toolCalls"]) == ahead + 1


def lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0
