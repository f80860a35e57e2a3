"""Plays a conversation of `cases/conversations`: who calls what, and what must come back.

Every answer, whatever a case says of it, must also have the shape that the route table and the schemas
promise, and at the end the audit chain must hold.

In expectations a mapping names some members of many and a list all of its items. Besides plain values:

    <any>             something is there, and not null
    <absent>          the member is not there
    <contains: text>  a text with this in it
    <save: name>      a text; from then on `<name>` stands for it
    <next: name>      a `Link` to the next page, whose address is saved under the name
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from typing import Any

import httpx
import jsonschema
import msgspec

import schemas
from api.audit.checkpoints import Checkpointer
from api.audit.verification import verify
from api.http import bodies
from api.http.route import Route
from api.server.endpoint import PROBLEM
from api.server.openapi import error_codes
from api.server.routes import ROUTES
from tests.harness.application import Service, event, write_files
from tests.harness.watching import look

_SAVED = re.compile(r"<([a-z][a-z0-9 ]*)>")
_LOOK = 0.005


class Conversation:
    """One run of one case against one service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.saved: dict[str, str] = {}
        self.events = 0
        self.database_was_changed = False
        self.checkpointer = Checkpointer(service.context.audit_key)

    async def play(self, steps: list[dict[str, Any]]) -> None:
        for number, step in enumerate(steps, 1):
            try:
                await self.step(step)
            except AssertionError as error:
                raise AssertionError(f"step {number}: {error}") from None
        self._check_notices()
        if not self.database_was_changed:
            for organisation_id in ("default", "other"):
                found = await self.service.context.store.read(
                    verify, self.service.context.store, organisation_id
                )
                assert found["valid"], f"the audit chain is broken at {found['firstBroken']}"

    async def step(self, step: dict[str, Any]) -> None:
        if "after" in step:
            self.service.clock.advance(step["after"])
            if step.get("housekeeping", True):
                await self.service.housekeeping()
        if step.get("watch"):
            await look(self.service)
        if step.get("sign"):
            context = self.service.context
            await context.writer.write(self.checkpointer.sign)
        if "change the database" in step:
            self.database_was_changed = True
            statement = self._filled(step["change the database"])
            await self.service.context.writer.write(
                lambda transaction: transaction.store.rows_changed(statement)
            )
        if "files" in step:
            write_files(self.service.settings.policies_dir, step["files"])
            await asyncio.to_thread(self.service.context.live.reload)
        if "at once" in step:
            answers = await asyncio.gather(*(self._send(each) for each in step["at once"]))
            statuses = sorted(answer.status_code for answer in answers)
            assert statuses == step["statuses"], f"answered {statuses}, not {step['statuses']}"
        if "as" in step:
            await self._call(step)
        for name, text in step.get("disk", {}).items():
            found = (self.service.settings.policies_dir / name).read_text(encoding="utf-8")
            assert found == text, f"`{name}` holds:\n{found}"
        if "told" in step:
            told = [name for name, _ in self.service.notices]
            assert told == step["told"], f"subscribers were told {told}, not {step['told']}"
            self._check_notices()

    def _check_notices(self) -> None:
        """What subscribers are told has the shape that `schemas/events` promises."""
        for name, data in self.service.notices:
            jsonschema.Draft202012Validator(schemas.load(f"events/{name}")).validate(data)
        self.service.notices.clear()

    async def _call(self, step: dict[str, Any]) -> None:
        began = time.monotonic()
        if "meanwhile" in step:
            waiting = asyncio.create_task(self._send(step))
            while not _waits(waiting):
                assert not waiting.done(), "it did not wait"
                await asyncio.sleep(_LOOK)
            for each in step["meanwhile"]:
                await self.step(each)
            answer = await waiting
        else:
            answer = await self._send(step)
        expected = step.get("expect", 200)
        if isinstance(expected, int):
            expected = {"status": expected}
        said = answer.text[:1_000]
        assert answer.status_code == expected["status"], f"answered {answer.status_code}: {said}"
        if "body" in expected:
            self._match(expected["body"], answer.json(), "")
        if "lines" in expected:
            lines = [msgspec.json.decode(line) for line in answer.text.splitlines()]
            self._match(expected["lines"], lines, "")
        for name, value in expected.get("headers", {}).items():
            self._match(value, answer.headers.get(name, _ABSENT), f"header {name}")
        if "text" in expected:
            assert expected["text"] in answer.text, f"{expected['text']!r} is not in {said!r}"
        if "within" in expected:
            took = time.monotonic() - began
            assert took <= expected["within"], f"took {took:.1f} s"

    async def _send(self, step: Mapping[str, Any]) -> httpx.Response:
        if "event" in step:
            fields = dict(self._filled(step["event"]))
            self.events += 1
            number, kind = fields.pop("id", self.events), fields.pop("type", "tool.called")
            method, path = "POST", "/v1/events"
            body: Any = event(number, kind, self.service.clock.text, fields)
        else:
            method, path = self._filled(step["call"]).split(" ", 1)
            body = self._filled(step["body"]) if "body" in step else None
        answer = await self.service.call(
            step["as"],
            method,
            path,
            body,
            raw=step.get("raw"),
            headers=self._filled(step.get("headers", {})),
        )
        check_shape(method, path, answer)
        return answer

    def _filled(self, value: Any) -> Any:
        """The value with every `<name>` replaced by what was saved under it."""
        if isinstance(value, str):
            return _SAVED.sub(lambda found: self.saved.get(found[1], found[0]), value)
        if isinstance(value, dict):
            return {name: self._filled(item) for name, item in value.items()}
        return [self._filled(item) for item in value] if isinstance(value, list) else value

    def _match(self, expected: Any, found: Any, where: str) -> None:
        place = where or "the body"
        if isinstance(expected, str):
            self._match_text(self._filled(expected), found, place)
        elif isinstance(expected, dict):
            assert isinstance(found, dict), f"{place} is {found!r}, not an object"
            for name, value in expected.items():
                self._match(value, found.get(name, _ABSENT), f"{where}/{name}")
        elif isinstance(expected, list):
            assert isinstance(found, list), f"{place} is {found!r}, not a list"
            assert len(found) == len(expected), f"{place} has {len(found)} items: {found!r}"
            for index, (value, item) in enumerate(zip(expected, found, strict=True)):
                self._match(value, item, f"{where}/{index}")
        else:
            same = found == expected and isinstance(found, bool) == isinstance(expected, bool)
            assert same, f"{place} is {found!r}, not {expected!r}"

    def _match_text(self, expected: str, found: Any, place: str) -> None:
        _kind, _, rest = expected.removeprefix("<").removesuffix(">").partition(": ")
        if expected == "<absent>":
            assert found is _ABSENT, f"{place} is {found!r}, but should not be there"
        elif expected == "<any>":
            assert found is not _ABSENT and found is not None, f"{place} is not there"
        elif expected.startswith("<save: "):
            assert isinstance(found, str), f"{place} is {found!r}, not a text to save"
            self.saved[rest] = found
        elif expected.startswith("<next: "):
            link = re.fullmatch(r'<(.+)>; rel="next"', str(found))
            assert link is not None, f"{place} is {found!r}, no link to a next page"
            self.saved[rest] = link[1]
        elif expected.startswith("<contains: "):
            assert isinstance(found, str) and rest in found, f"{place} is {found!r}, without {rest!r}"
        else:
            assert found == expected, f"{place} is {found!r}, not {expected!r}"


class _Absent:
    def __repr__(self) -> str:
        return "absent"


_ABSENT = _Absent()


def _waits(request: asyncio.Task[httpx.Response]) -> bool:
    """Whether it has read how things are and sleeps until they change: no sooner does what happens count as
    news. Outside, nothing tells."""
    step: Any = request.get_coro()
    while (deeper := getattr(step, "cr_await", None) or getattr(step, "ag_await", None)) is not None:
        if getattr(deeper, "cr_code", None) is asyncio.wait.__code__:
            return True
        step = deeper
    return False


def check_shape(method: str, path: str, answer: httpx.Response) -> None:
    """The answer is one that the route table documents."""
    route = route_of(method, path)
    if route is None:
        assert answer.status_code in (404, 405), f"no route, but {answer.status_code}"
        return
    if answer.status_code == 202 and route.second_admin:
        bodies.validate("change", answer.json())
        return
    if answer.status_code in (route.status, *route.also_statuses):
        media = answer.headers.get("content-type", "").partition(";")[0]
        known = (route.media_type.partition(";")[0], *route.also_media_types)
        assert answer.status_code == 204 or media in known, f"unexpected content type {media}"
        if route.reply is not None and media == "application/json":
            value = answer.json()
            for item in value if route.reply_is_array else [value]:
                bodies.validate(route.reply, item)
        return
    assert answer.headers["content-type"] == PROBLEM, f"{answer.status_code} is no problem document"
    problem = answer.json()
    bodies.validate("problem", problem)
    assert problem["status"] == answer.status_code
    assert problem["code"] in error_codes(route), f"{route.path} does not document `{problem['code']}`"
    if answer.status_code == 401:
        assert "www-authenticate" in answer.headers


def route_of(method: str, path: str) -> Route | None:
    parts = path.partition("?")[0].split("/")
    for fixed in (True, False):
        for route in ROUTES:
            wanted = route.path.split("/")
            if route.method != method or len(wanted) != len(parts) or fixed == (":" in route.path):
                continue
            if all(a == b or a.startswith(":") for a, b in zip(wanted, parts, strict=True)):
                return route
    return None
