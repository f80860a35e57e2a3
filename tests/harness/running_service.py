"""The service of `application` on a real server on a port of its own, in a thread: called without `await`.

    with Served(tmp_path) as service:
        answer = service.call("admin", "GET", "/v1/users")

Its time runs as real time does. One at a time in a process, since the tables have one database. Clients may
say where they are (`X-Forwarded-For`), as behind a proxy of this machine.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
import uvicorn

from api.auth.credentials import new_key
from api.server.connections.event_fast_path import EventProtocol
from api.store import accounts
from tests.harness.application import PASSWORD, Installation, Who


class Served(Installation):
    """See the module; a test makes the further users, keys and organisations that it needs."""

    def __init__(
        self, folder: Path, policies: Iterable[Mapping[str, Any]] = (), *, live: bool = False, **told: str
    ) -> None:
        own = {"GOVERNANCE_FRONTEND_URL": "", "GOVERNANCE_PORT": "0", **told}
        super().__init__(folder, policies, live=live, environment=own)
        self.clock.runs = True

    def __enter__(self) -> Served:
        config = uvicorn.Config(
            self.application,
            http=EventProtocol,
            ws="none",  # as `serve` has it, whatever else is installed
            access_log=False,
            log_level="warning",
            lifespan="on",
            timeout_graceful_shutdown=1,  # for requests of clients that have gone
        )
        self._server = uvicorn.Server(config)
        listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._server.run, args=([listener],), daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 20
        while not self._server.started:
            assert self._thread.is_alive() and time.monotonic() < deadline, "the service did not start"
            time.sleep(0.01)
        self.port: int = listener.getsockname()[1]
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}", timeout=30, trust_env=False, verify=False
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.http.close()
        self._server.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive(), "the service did not stop"

    def call(self, who: Who, method: str, path: str, body: Any = None, **told: Any) -> httpx.Response:
        """One request; with what `_request` takes besides."""
        return self.http.request(method, path, **self._request(who, body, **told))

    def answered(self, who: Who, method: str, path: str, *body: Any, status: int = 200, **told: Any) -> Any:
        """The JSON of what is answered, with this status and no other."""
        answer = self.call(who, method, path, *body, **told)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    @property
    def api_key(self) -> str:
        return self.credentials["agent"]["X-API-Key"]

    def write(self, job: Any) -> Any:
        return self.context.writer.write_here(job)

    def organisation(self, organisation_id: str) -> None:
        self.write(lambda t: accounts.add_organisation(t, organisation_id, organisation_id, "test"))

    def user(self, role: str, email: str | None = None, organisation: str = "default") -> dict[str, Any]:
        """A new user with PASSWORD; the row with `token`."""
        email = email or f"{self.ids(role)}@example.com"
        made: dict[str, Any] = self.write(lambda t: self._add_user(t, organisation, email, role))
        return made

    def key(self, organisation: str = "default", **binding: Any) -> dict[str, Any]:
        """A new API key; its record with `key`."""
        made: dict[str, Any] = self.write(
            lambda t: self._add_key(t, organisation, "test", new_key(), **binding)
        )
        return made

    def rotated(self, key: Mapping[str, Any]) -> str:
        """The API key that takes the place of another one, of which this is the record."""
        answer = self.answered("admin", "POST", f"/v1/api-keys/{key['keyId']}/rotate")
        return str(answer["key"])

    def audit(self, type: str) -> list[dict[str, Any]]:
        """The records of a type in the default organisation, oldest first."""
        rows = self.context.store.read_here(
            self.context.store.rows,
            "SELECT record FROM audit WHERE organisation_id = 'default' AND type = ? ORDER BY sequence",
            (type,),
        )
        return [json.loads(row[0]) for row in rows]

    def log_in(self, email: str, password: str = PASSWORD, address: str = "192.0.2.1") -> httpx.Response:
        body = {"email": email, "password": password}
        return self.call("nobody", "POST", "/auth/login", body, headers={"X-Forwarded-For": address})

    def me(self, token: str) -> httpx.Response:
        return self.call(bearer(token), "GET", "/v1/me")


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
