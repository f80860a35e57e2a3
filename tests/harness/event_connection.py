"""One connection to the event path without a socket, a service that answers each event with its body."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import msgspec
from starlette.requests import Request
from uvicorn.config import Config
from uvicorn.server import ServerState

from api.auth.credentials import key_digest, unauthenticated
from api.caller import Caller
from api.database.errors import DatabaseUnavailable
from api.ingestion.event import Answer
from api.ingestion.intake import Intake
from api.ingestion.quotas import ProcessorTime, Quotas
from api.server.connections import event_fast_path
from api.server.connections.event_fast_path import PATH, STATE, EventProtocol
from api.server.endpoint import SecurityHeaders, endpoint
from api.server.request_observer import RequestObserver
from api.server.routes import ROUTES
from api.updates.waits import Waits
from tests.harness.nodes import called

KEY = "agk_of_an_agent_that_says_the_same_again"
CALLER = Caller(kind="key", organisation_id="default", key_id="k", credential=key_digest(KEY))
LINES = ("Host: x", f"X-API-Key: {KEY}", "Content-Type: application/json")


def body(number: int, **payload: Any) -> bytes:
    return msgspec.json.encode(called(number, "read", **payload))


def request(
    body: bytes, *more: str, length: str | None = None, name: str = "Content-Length: ", key: str = KEY
) -> bytes:
    lines = [line.replace(KEY, key) for line in LINES]
    said = f"{name}{len(body) if length is None else length}"
    return "\r\n".join(["POST /v1/events HTTP/1.1", *lines, said, *more, "\r\n"]).encode() + body


FIRST = request(body(1))


class Wire:
    """The transport of a connection."""

    def __init__(self) -> None:
        self.written = b""
        self.closing = self.paused = False

    def write(self, data: bytes) -> None:
        if not self.closing:
            self.written += data

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def set_write_buffer_limits(self, high: int) -> None:
        assert high == 0

    def get_write_buffer_size(self) -> int:
        return 1

    def abort(self) -> None:
        self.closing = True

    def get_extra_info(self, name: str) -> None:
        return None


class Parser:
    """A parser that keeps what it is given to read."""

    def __init__(self, parser: Any) -> None:
        self.parser = parser
        self.read: list[bytes] = []

    def feed_data(self, data: bytes) -> None:
        self.read.append(data)
        self.parser.feed_data(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.parser, name)


class Service:
    """Stands where the service keeps its writer and its keys. An event is answered with its own body."""

    def __init__(self) -> None:
        self.keys = {CALLER.credential: CALLER}
        self.refuses = self.holds = False
        self.held: list[Callable[[], None]] = []
        self.context: Any = SimpleNamespace(
            writer=self,
            credentials=self,
            settings=SimpleNamespace(
                max_body_bytes=100_000, request_seconds=60, most_connections=100, access_log=False
            ),
            store=None,
            ids=lambda prefix: f"{prefix}_new",
            clock=lambda: 0.0,
            refusals=self,
            intake=Intake(
                None,  # type: ignore[arg-type]
                self,  # type: ignore[arg-type]
                lambda: 0.0,
                Quotas(0, 0),
                ProcessorTime(),
                SimpleNamespace(evaluate=lambda event: None),  # type: ignore[arg-type]
            ),
            reads=SimpleNamespace(
                count=lambda caller: None,
                bounded=lambda caller, reply: reply,
                coming=lambda caller: nullcontext(lambda size: None),
            ),
            waits=Waits(100),
        )
        self.context.intake.is_dear_event = lambda key_id, size: False
        self.context.intake.has_room = lambda key_id: True
        self.arrivals = SimpleNamespace(connected=lambda: None)

    def known(self, digest: str) -> Caller | None:
        return self.keys.get(digest)

    def holder(self, credential: str) -> str:
        caller = self.known(key_digest(credential))
        return "" if caller is None else f"organisation {caller.organisation_id} {caller.holder}"

    async def from_key(self, key: str, address: str, *, certain: bool = False) -> Caller:
        caller = self.known(key_digest(key))
        if caller is None:
            raise unauthenticated("the API key is not valid", "ApiKey")
        return caller

    async def note(self, caller: Caller, refusal: Any, route: str) -> None:
        """Refusals are not counted here."""

    def ingest_then(self, event: Any, loop: asyncio.AbstractEventLoop, settle: Callable[[Any], None]) -> None:
        if self.refuses:
            raise DatabaseUnavailable("the database is away")
        answer = Answer(event.raw, b"replayed" in event.raw)
        if self.holds:
            self.held.append(lambda: settle(answer))
        else:
            loop.call_soon(settle, answer)

    def ingested(self, event: Any, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = loop.create_future()
        self.ingest_then(event, loop, future.set_result)
        return future


async def elsewhere(scope: Any, receive: Any, send: Any) -> None:
    """Whatever is no event: answered with its headers and its body."""
    content = b"".join(b"%b: %b\n" % header for header in scope["headers"])
    while (message := await receive()).get("more_body"):
        content += message["body"]
    content += message.get("body", b"")
    headers = [(b"content-length", b"%d" % len(content))]
    await send({"type": "http.response.start", "status": 404, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def ordinary(context: Any) -> Any:
    """The application around the fast path: the endpoint of events, and nothing else."""
    row = next(route for route in ROUTES if (route.method, route.path) == ("POST", PATH))
    serve = endpoint(row, context)

    async def event(scope: Any, receive: Any, send: Any) -> None:
        response = await serve(Request(scope, receive, send))
        await SecurityHeaders(response)(scope, receive, send)

    observed = RequestObserver(event, lambda: context.ids, lambda: False)

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        if (scope["method"], scope["path"]) != ("POST", PATH):
            await elsewhere(scope, receive, send)
            return
        await observed(scope, receive, send)

    return answer


class Connection:
    """One connection to the service, without a socket; `app` is what answers what the fast path does not,
    which without a `state` is everything. It may be one of several of a `server`."""

    def __init__(
        self,
        service: Any,
        keep_alive: int = 5,
        *,
        app: Any = None,
        state: Any = None,
        server: ServerState | None = None,
    ) -> None:
        app = ordinary(service.context) if app is None else app
        state = {STATE: service.context} if state is None else state
        config = Config(app, http=EventProtocol, lifespan="off", access_log=False, interface="asgi3")
        config.timeout_keep_alive = keep_alive
        self.service = service
        self.state = server or ServerState()
        self.wire: Any = Wire()
        self.protocol: Any = EventProtocol(config, self.state, state, asyncio.get_running_loop())
        self.protocol.connection_made(self.wire)
        self.parser = self.protocol.parser = Parser(self.protocol.parser)

    async def send(self, *pieces: bytes, rounds: int = 30) -> bytes:
        """All that comes back for these, each read on its own."""
        before = len(self.wire.written)
        for piece in pieces:
            if piece and not self.wire.closing:
                self.protocol.data_received(piece)
            await self.rest(rounds)
        return self.wire.written[before:]

    async def rest(self, rounds: int = 30) -> None:
        while rounds > 0 or (self.wire.paused and rounds > -1_000 and not self.wire.closing):
            rounds -= 1
            await asyncio.sleep(0)

    @property
    def parsed(self) -> list[bytes]:
        """What the parser was given since somebody last asked."""
        read, self.parser.read = self.parser.read, []
        return read


def played(steps: Callable[..., Any], *arguments: Any) -> Any:
    async def play() -> Any:
        return await steps(Service(), *arguments)

    return asyncio.run(play())


async def knowing(service: Service, first: bytes = FIRST, **options: Any) -> Connection:
    """A connection that has sent this."""
    made = Connection(service, **options)
    assert (await made.send(first)).startswith(b"HTTP/1.1 200 OK\r\n")
    assert made.parsed == [first]
    return made


async def answered(service: Service, *pieces: bytes) -> bytes:
    """What a connection that knows no head is answered."""
    made = Connection(service)
    made.protocol._heads = event_fast_path.MOST_HEADS
    answer = await made.send(*pieces)
    assert made.protocol._head is None
    return answer
