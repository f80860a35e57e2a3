"""What a route is: a row of the table that routing, the API document and the tests read.

Each module of `api/handlers` ends with its rows; `api/server/routes.py` collects them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from api.caller import Caller
from api.http.exchange import Reply, Values
from api.http.problems import ApiError

Handler = Callable[[Caller, Values, Any], Awaitable[Reply]]
"""The last argument is the `Context` of the process, which this room does not know."""

ANYONE = frozenset({"anyone"})
AGENT = frozenset({"agent"})
VIEWER = frozenset({"viewer", "reviewer", "admin"})
REVIEWER = frozenset({"reviewer", "admin"})
ADMIN = frozenset({"admin"})

PAGE_HEADERS = ("X-Total-Count", "Link")


@dataclass(frozen=True, slots=True)
class Query:
    """One query parameter: a JSON Schema for its value, which is parsed by the schema's `type`."""

    name: str
    schema: Mapping[str, Any]
    description: str = ""


@dataclass(frozen=True, slots=True)
class Route:
    """One row of the table.

    `who` holds `anyone`, or roles and `agent` (an API key). `body` and `reply` name schemas under
    `schemas/bodies`; `errors` are the codes of `api.http.problems.CODES` that the route itself adds to
    those which follow from its shape.
    """

    method: str
    path: str
    who: frozenset[str]
    handler: Handler
    summary: str
    tag: str
    reply: str | None = None
    reply_is_array: bool = False
    status: int = 200
    body: str | None = None
    body_optional: bool = False
    body_as_sent: bool = False
    """The handler gets the bytes and reads them itself, by the same schema."""
    second_admin: bool = False
    """Where the organisation asks for that, another admin must agree; see `api/handlers/changes.py`. The
    handler then writes by `context.write_policies` and `context.write` alone."""
    state: Callable[[Caller, Values], Any] | None = None
    """Of such a route, what it was asked about as the database has it (JSON); read inside the transaction."""
    checks_key: bool = False
    """What the handler commits looks at the API key once more, so the key table in memory will do before."""
    counts: bool = False
    """What an API key sends is counted against its quota by the handler, event by event; else each request
    is, before it is looked at."""
    query: tuple[Query, ...] = ()
    errors: tuple[str, ...] = ()
    description: str = ""
    media_type: str = "application/json"
    headers: tuple[str, ...] = ()
    """Of success; what takes a `cursor` also has those of pages."""
    also_media_types: tuple[str, ...] = ()
    """Other forms of the success answer, that a query parameter asks for."""
    instead: Callable[[Mapping[str, str], Mapping[str, str], ApiError], Reply | None] | None = None
    """What a caller who is known is told instead of a problem, by path and query; None: the problem."""
    also_statuses: tuple[int, ...] = ()
    """Other statuses that come with the same body, such as the 503 of `/health`."""

    def __post_init__(self) -> None:
        if any(query.name == "cursor" for query in self.query):
            object.__setattr__(self, "headers", (*PAGE_HEADERS, *self.headers))

    @property
    def operation_id(self) -> str:
        return getattr(self.handler, "__name__", "handler")


def cursor(most: int) -> Query:
    """The parameter that says where a page begins. INVARIANT: none that the service gives is longer."""
    return Query(
        "cursor", {"type": "string", "maxLength": most}, "From the `Link` header of the page before."
    )


CURSOR = cursor(2_000)
"""An id of 200 characters, with escapes, in base64."""
ORDER = Query(
    "order",
    {"type": "string", "enum": ["asc", "desc"], "default": "desc"},
    "Newest first, or oldest first with `asc`.",
)
WAIT = Query(
    "wait",
    {"type": "integer", "minimum": 0, "maximum": 240, "default": 0},
    "Seconds to wait for news at most.",
)


def page_query(default: int, most: int) -> tuple[Query, Query]:
    """The parameters of a list that comes in pages."""
    schema = {"type": "integer", "minimum": 1, "maximum": most, "default": default}
    return Query("limit", schema, "How many at most."), CURSOR
