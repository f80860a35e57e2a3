"""The API document as it is served."""

from __future__ import annotations

import asyncio
from typing import Any

from api.caller import NOBODY
from api.server.openapi import error_codes
from api.server.routes import ROUTES


def test_it_is_written_once_for_all_who_ask() -> None:
    """Anybody may ask for it, on many connections, and read nothing of it."""
    (route,) = (each for each in ROUTES if each.path == "/api/openapi.json")
    nothing: Any = None
    answers = [asyncio.run(route.handler(NOBODY, nothing, nothing)) for _ in range(2)]
    assert isinstance(answers[0].body, bytes) and answers[0].body is answers[1].body


def test_what_is_changed_in_turns_may_be_asked_for_too_often() -> None:
    asked = {("POST", "/v1/policies"), ("PUT", "/v1/organisation/settings"), ("PATCH", "/v1/users/:id")}
    found = [route for route in ROUTES if (route.method, route.path) in asked]
    assert len(found) == len(asked) and all("rate_limited" in error_codes(route) for route in found)
