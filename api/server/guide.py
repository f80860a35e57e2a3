"""Serves the guide at `/docs`: its Markdown pages as HTML, its pictures, and the index of its search box.

The contents page, `guide/index.md`, decides which pages there are: its headings and links are the navigation
of every page. The pages of the reference were generated from the code and lie beside the others; nothing here
knows how. Rendering takes a moment, so the routes are plain functions, which run beside the event loop.
"""

from __future__ import annotations

import posixpath
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from markdown_it import MarkdownIt
from markdown_it.token import Token
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from api.server.static import File, answer, files_below

HOME: Final = "/docs"
CONTENTS: Final = "index"


_rendering: Final = threading.Lock()
"""INVARIANT: nothing is rendered twice, however many ask for it first: `cache` lets all of them begin."""


@dataclass(frozen=True, slots=True)
class Section:
    """What stands below one heading; what the search box finds."""

    level: int
    anchor: str
    heading: str
    text: str


@dataclass(frozen=True, slots=True)
class Page:
    name: str
    """Its path below `guide/`, without `.md`."""
    body: str
    sections: tuple[Section, ...]

    @property
    def title(self) -> str:
        return self.sections[0].heading

    @property
    def path(self) -> str:
        return HOME if self.name == CONTENTS else f"{HOME}/{self.name}"


def _nothing(*_: object) -> str:
    return ""


def _table_open(*_: object) -> str:
    return '<div class="table" role="region" aria-label="Table" tabindex="0"><table>\n'


def _table_close(*_: object) -> str:
    return "</table></div>\n"


def _fence(_: object, tokens: Sequence[Token], index: int, *__: object) -> str:
    language = tokens[index].info.split(" ")[0] or "text"
    code = escape(tokens[index].content, quote=False)
    return f'<pre tabindex="0" data-language="{escape(language)}"><code>{code}</code></pre>\n'


@cache
def _markdown() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable("table")
    # INVARIANT: no markup of a page gets through; the only kind that pages hold are comments for tests.
    parser.add_render_rule("html_block", _nothing)
    parser.add_render_rule("html_inline", _nothing)
    parser.add_render_rule("table_open", _table_open)
    parser.add_render_rule("table_close", _table_close)
    parser.add_render_rule("fence", _fence)
    return parser


def _plain(token: Token) -> str:
    """The text of a heading or a paragraph, without its marks."""
    return "".join(
        each.content if each.content else " " * each.type.endswith("break") for each in token.children or ()
    )


def _slug(heading: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")


def _address(href: str, name: str) -> str:
    """Where a link of the page `name` leads when it is served: pages without `.md`, all below `/docs`."""
    parts = urlsplit(href)
    if parts.scheme or not parts.path or parts.path.startswith("/"):
        return href
    target = posixpath.normpath(posixpath.join(posixpath.dirname(name), parts.path)).removesuffix(".md")
    fragment = f"#{parts.fragment}" if parts.fragment else ""
    return (HOME if target == CONTENTS else f"{HOME}/{target}") + fragment


def _adapt(tokens: Sequence[Token], name: str) -> None:
    """Links lead to what is served; columns of numbers get a class, since no style may stand in a page."""
    for token in tokens:
        if str(token.attrs.pop("style", "")).endswith("right"):
            token.attrs["class"] = "number"
        for child in token.children or ():
            for attribute in ("href", "src"):
                if isinstance(value := child.attrs.get(attribute), str):
                    child.attrs[attribute] = _address(value, name)


def _sections(tokens: Sequence[Token]) -> Iterator[Section]:
    """Splits a page at its headings, and gives each heading its anchor."""
    level, anchor, heading = 1, "", ""
    texts: list[str] = []
    for index, token in enumerate(tokens):
        if token.type == "heading_open":
            if heading:
                yield Section(level, anchor, heading, " ".join(texts))
            level, heading, texts = int(token.tag[1:]), _plain(tokens[index + 1]), []
            anchor = "" if level == 1 else _slug(heading)
            if anchor:
                token.attrs["id"] = anchor
        elif token.type == "inline" and tokens[index - 1].type != "heading_open":
            texts.append(_plain(token))
        elif token.type == "fence":
            texts.append(token.content)
    yield Section(level, anchor, heading, " ".join(texts))


@cache
def page(name: str) -> Page:
    """The rendered page of this name, which exists."""
    text = files("api").joinpath("guide", f"{name}.md").read_text(encoding="utf-8")
    tokens = _markdown().parse(text)
    _adapt(tokens, name)
    sections = tuple(_sections(tokens))
    return Page(name, _markdown().renderer.render(tokens, _markdown().options, {}), sections)


@cache
def navigation() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Heading -> names of the pages below it, as the contents page lists them."""
    text = files("api").joinpath("guide", f"{CONTENTS}.md").read_text(encoding="utf-8")
    found: list[tuple[str, list[str]]] = []
    for before, token in zip(tokens := _markdown().parse(text), tokens[1:], strict=False):
        if before.type == "heading_open" and before.tag == "h2":
            found.append((_plain(token), []))
        for child in (token.children or ()) if found else ():
            if str(href := child.attrs.get("href", "")).endswith(".md"):
                found[-1][1].append(str(href).removesuffix(".md"))
    return tuple((heading, tuple(names)) for heading, names in found)


def names() -> tuple[str, ...]:
    """Every page, in reading order."""
    return (CONTENTS, *(name for _, below in navigation() for name in below))


@cache
def _assets() -> dict[str, File]:
    found = files_below(files("api").joinpath("guide"))
    return {name: file for name, file in found.items() if not name.endswith(".html")}


def _links(current: str) -> str:
    parts = []
    for heading, below in navigation():
        parts.append(f"<h2>{escape(heading)}</h2>\n<ul>")
        for name in below:
            here = ' aria-current="page"' if name == current else ""
            parts.append(f'<li><a href="{HOME}/{name}"{here}>{escape(page(name).title)}</a></li>')
        parts.append("</ul>")
    return "\n".join(parts)


def _outline(shown: Page) -> str:
    """The links to the sections of a long page."""
    below = [section for section in shown.sections if section.level == 2]
    if len(below) < 3:
        return ""
    links = [f'<li><a href="#{each.anchor}">{escape(each.heading)}</a></li>' for each in below]
    return (
        f'<nav class="outline" aria-label="On this page"><h2>On this page</h2><ul>{"".join(links)}</ul></nav>'
    )


@cache
def _html(name: str) -> File:
    shown = page(name)
    template = Template(files("api").joinpath("guide", "look", "page.html").read_text(encoding="utf-8"))
    html = template.substitute(
        title=escape(shown.title), body=shown.body, navigation=_links(name), outline=_outline(shown)
    )
    return File(html.encode(), "text/html")


@cache
def _search_index() -> File:
    """Every section of every page: where it is, its headings, its words."""
    found: list[dict[str, Any]] = []
    for name in names():
        shown = page(name)
        for section in shown.sections:
            found.append(
                {
                    "path": shown.path + (f"#{section.anchor}" if section.anchor else ""),
                    "title": shown.title,
                    "heading": section.heading,
                    "text": re.sub(r"\s+", " ", section.text),
                }
            )
    return File(msgspec.json.encode(found), "application/json")


def _page(request: Request) -> Response:
    name = str(request.path_params.get("name", "")) or CONTENTS
    with _rendering:
        file = _html(name) if name in names() else _assets().get(name)
    return answer(request, file)


def _search(request: Request) -> Response:
    with _rendering:
        file = _search_index()
    return answer(request, file)


def guide_routes() -> list[BaseRoute]:
    """The guide's routes; they are no part of the API document."""
    return [
        Route(HOME, _page),
        Route(f"{HOME}/search.json", _search),
        Route(f"{HOME}/{{name:path}}", _page),
    ]
