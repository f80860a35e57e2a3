"""The guide over HTTP: every page, links that lead somewhere, a search index, nothing from elsewhere."""

from __future__ import annotations

import asyncio
import re
from pathlib import PurePosixPath
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from api.server import guide
from api.server.guide import CONTENTS, HOME, guide_routes, names, page
from api.server.static import POLICY
from tests.harness.guide import GUIDE
from tests.harness.places import ROOT

MARKDOWN = sorted(path.relative_to(GUIDE).with_suffix("").as_posix() for path in GUIDE.rglob("*.md"))


def get(path: str, **headers: str) -> httpx.Response:
    async def answer() -> httpx.Response:
        transport = httpx.ASGITransport(Starlette(routes=guide_routes()))
        async with httpx.AsyncClient(transport=transport, base_url="http://guide.example") as client:
            return await client.get(path, headers=headers)

    return asyncio.run(answer())


def test_the_contents_page_lists_every_page_once() -> None:
    assert sorted(names()) == MARKDOWN
    assert len(set(names())) == len(names())


@pytest.mark.parametrize("name", names())
def test_every_page_is_served_with_the_strict_policy(name: str) -> None:
    answer = get(page(name).path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == POLICY
    assert f"<title>{page(name).title}".replace("'", "&#x27;") in answer.text
    assert "<!--" not in answer.text
    assert not re.search(r"\son\w+=|\sstyle=|<style|<script(?![^>]*\ssrc=\"/)|javascript:", answer.text)
    assert not re.search(r"(?:src|action)=\"https?:", answer.text)
    assert get(page(name).path, **{"If-None-Match": answer.headers["etag"]}).status_code == 304


def test_a_page_is_rendered_once_however_many_ask_for_it_first() -> None:
    """To render takes the interpreter from everybody else, so a crowd must not do it at once."""
    guide._search_index.cache_clear()
    page.cache_clear()

    async def crowd() -> None:
        transport = httpx.ASGITransport(Starlette(routes=guide_routes()))
        async with httpx.AsyncClient(transport=transport, base_url="http://guide.example") as client:
            await asyncio.gather(*(client.get(f"{HOME}/search.json") for _ in range(20)))

    asyncio.run(crowd())
    assert page.cache_info().misses == len(names())


@pytest.mark.parametrize("name", names())
def test_headings_have_anchors_of_their_own(name: str) -> None:
    sections = page(name).sections
    assert sections[0].level == 1
    anchors = [section.anchor for section in sections]
    assert len(set(anchors)) == len(anchors)
    ids = re.findall(r' id="([^"]+)"', get(page(name).path).text)
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("name", names())
def test_every_link_leads_somewhere(name: str) -> None:
    text = get(page(name).path).text
    for target in re.findall(r'(?:href|src)="([^"]+)"', text):
        path, _, anchor = target.partition("#")
        if path.startswith(HOME) or not path:
            answer = get(path) if path else get(page(name).path)
            assert answer.status_code == 200, target
            assert not anchor or f'id="{anchor}"' in answer.text, target
        else:
            assert path.startswith(("https://", "/console/", "/approvals", "/api/docs")), target


@pytest.mark.parametrize("file", [ROOT / "README.md", *sorted(GUIDE.rglob("*.md"))], ids=str)
def test_links_lead_somewhere_in_the_repository_too(file: Any) -> None:
    text = file.read_text(encoding="utf-8")
    for target in re.findall(r'\]\(([^)\s]+)\)|src="([^"]+)"', text):
        path = "".join(target).partition("#")[0]
        if path and not path.startswith("https://"):
            assert (file.parent / PurePosixPath(path)).exists(), path


def test_the_search_index_has_every_section() -> None:
    answer = get("/docs/search.json")
    assert answer.headers["content-type"].startswith("application/json")
    found = answer.json()
    assert len(found) == sum(len(page(name).sections) for name in names())
    assert {each["path"].partition("#")[0] for each in found} == {page(name).path for name in names()}
    settings = [each for each in found if "GOVERNANCE_WEBHOOK_RETRY" in each["text"]]
    assert "/docs/reference/settings" in {each["path"] for each in settings}


def test_the_contents_page_has_two_addresses() -> None:
    assert get("/docs").text == get("/docs/").text == get(f"/docs/{CONTENTS}").text


@pytest.mark.parametrize(
    "path",
    [
        "nothing",
        "tutorial.md",
        "reference.py",
        "look/page.html",
        "../app.py",
        "..%2fapp.py",
        "%2e%2e/console/app.js",
        "how-to",
        "how-to/",
        "__init__.py",
        "%00",
    ],
)
def test_nothing_else_is_served(path: str) -> None:
    assert get(f"/docs/{path}").status_code == 404


def test_markup_of_a_page_is_not_passed_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "guide").mkdir()
    (tmp_path / "guide" / "evil.md").write_text(
        "# A <b>b</b>\n\n<script>x</script>\n\nOne <img src=x> `<i>`\n"
    )
    monkeypatch.setattr("api.server.guide.files", lambda _: tmp_path)
    page.cache_clear()
    shown = page("evil").body
    page.cache_clear()
    assert "<script" not in shown
    assert "<img" not in shown
    assert "<b>" not in shown
    assert "&lt;i&gt;" in shown


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 200
