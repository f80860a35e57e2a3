"""The console's files over HTTP: what is served, with which headers, and nothing else."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from api.server import console
from api.server.console import console_routes, room_paths
from api.server.static import POLICY
from tests.harness.places import ROOT

CONSOLE = ROOT / "api" / "console"
FILES = sorted(str(path.relative_to(CONSOLE)) for path in CONSOLE.rglob("*") if path.is_file())
TEXTS = [name for name in FILES if name.endswith((".js", ".html", ".css", ".svg"))]


class Http:
    """One request at a time to the console's routes alone."""

    def __getattr__(self, method: str) -> Callable[..., httpx.Response]:
        async def answer(path: str, **options: Any) -> httpx.Response:
            transport = httpx.ASGITransport(Starlette(routes=console_routes()))
            async with httpx.AsyncClient(transport=transport, base_url="http://console.example") as client:
                return await client.request(method.upper(), path, **options)

        return lambda path, **options: asyncio.run(answer(path, **options))


@pytest.fixture
def http() -> Http:
    return Http()


def test_the_address_alone_leads_to_the_approvals(http: Http) -> None:
    answer = http.get("/")
    assert (answer.status_code, answer.headers["location"]) == (307, "/overview")


def test_every_room_is_served_as_the_page(http: Http) -> None:
    assert "/approvals" in room_paths()
    for path in room_paths():
        answer = http.get(path, params={"approvalId": "apr_1"})
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.content == (CONSOLE / "index.html").read_bytes()


def test_every_module_in_the_rooms_folder_is_listed_under_its_path() -> None:
    listed = re.findall(r'path: "(.*?)".*import\("\./rooms(.*?)\.js"\)', (CONSOLE / "rooms.js").read_text())
    assert all(path == module for path, module in listed)
    assert sorted(path for path, _ in listed) == sorted(room_paths())


LARGEST_PAGE = 150_000
"""Bytes of what is loaded before a room is painted."""


def test_no_room_is_large() -> None:
    """The shell, and of each room all modules that it imports, and what pages are styled by."""

    def loaded(name: str, seen: set[str]) -> set[str]:
        if name not in seen:
            seen.add(name)
            folder = (CONSOLE / name).parent
            for module in re.findall(
                r'^(?:import|export) .*from "(.*?)";', (CONSOLE / name).read_text(), re.M
            ):
                loaded((folder / module).resolve().relative_to(CONSOLE.resolve()).as_posix(), seen)
        return seen

    shell = loaded("app.js", {"index.html", "style.css", "icon.svg"})
    for path in room_paths():
        files = loaded(f"rooms{path}.js", set(shell))
        if path != "/approvals":
            files.add("pages.css")
        size = sum((CONSOLE / name).stat().st_size for name in files)
        assert size < LARGEST_PAGE, f"{path} loads {size} bytes: {sorted(files)}"


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_served_with_its_type_and_the_strict_policy(http: Http, name: str) -> None:
    answer = http.get(f"/console/{name}")
    assert answer.status_code == 200
    assert answer.content == (CONSOLE / name).read_bytes()
    kinds = {"js": "text/javascript", "css": "text/css", "html": "text/html", "svg": "image/svg+xml"}
    assert answer.headers["content-type"].startswith(kinds[name.rpartition(".")[2]])
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["cache-control"] == "no-cache"


def test_the_policy_allows_this_service_only_and_nothing_inline() -> None:
    directives = dict(part.strip().partition(" ")[::2] for part in POLICY.split(";"))
    assert directives["default-src"] == "'none'"
    assert {value for name, value in directives.items() if name.endswith("-src")} == {"'none'", "'self'"}
    for name in ("base-uri", "form-action", "frame-ancestors", "trusted-types"):
        assert directives[name] == "'none'"
    assert directives["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in POLICY
    assert "http" not in POLICY


@pytest.mark.parametrize("name", TEXTS)
def test_no_file_names_another_host_or_turns_text_into_markup(name: str) -> None:
    text = (CONSOLE / name).read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|@import|url\(", text)
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|DOMParser", text
    )
    if name.endswith(".html"):
        assert not re.search(r"\son\w+=|\sstyle=|<style|<script(?![^>]*\ssrc=)|javascript:", text)


@pytest.mark.parametrize("name", TEXTS)
def test_what_a_file_imports_exists(name: str) -> None:
    text = (CONSOLE / name).read_text(encoding="utf-8")
    here = (CONSOLE / name).parent
    for target in re.findall(r'^import .*? ?"(\.[^"]+)";$', text, re.MULTILINE):
        assert (here / target).is_file(), target
    for target in re.findall(r'(?:src|href)="/console/([^"]+)"', text):
        assert (CONSOLE / target).is_file(), target


@pytest.mark.parametrize(
    "path",
    [
        "",
        "nothing.js",
        "rooms",
        "rooms/",
        "../app.py",
        "..%2fapp.py",
        "%2e%2e/app.py",
        "rooms/..%2f..%2fapp.py",
        "..%5capp.py",
        "%00",
        "app.js%00.svg",
        "/etc/passwd",
        "//app.js",
        "APP.JS",
        "app.js/",
        "x" * 5000 + ".js",
    ],
)
def test_nothing_else_is_served(http: Http, path: str) -> None:
    assert http.get(f"/console/{path}").status_code == 404


def test_names_that_do_not_exist_leave_nothing_behind(http: Http) -> None:
    before = set(console._files())
    for number in range(50):
        http.get(f"/console/{number}.js")
    assert set(console._files()) == before == set(FILES)


def test_a_known_file_is_not_sent_again(http: Http) -> None:
    first = http.get("/console/app.js")
    tag = first.headers["etag"]
    for sent in (tag, f"W/{tag}", f'"other", {tag}'):
        again = http.get("/console/app.js", headers={"If-None-Match": sent})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    for sent in ('"other"', "", "nonsense"):
        assert http.get("/console/app.js", headers={"If-None-Match": sent}).status_code == 200


def test_only_reading_is_possible(http: Http) -> None:
    assert http.head("/approvals").status_code == 200
    assert http.post("/approvals").status_code == 405
    assert http.delete("/console/app.js").status_code == 405
