"""What the browser tests share: a service whose policies hold calls, agents, reviewers' pages, a line to cut.

Everything is real: the service on a port of its own, agents that post events over HTTP, a Chromium. Each page
watches itself: console errors, violations of the Content-Security-Policy and requests to other hosts fail
the test that it was opened for.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import selectors
import shutil
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urljoin, urlsplit
from weakref import WeakKeyDictionary

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Playwright, expect

from tests.harness.application import PASSWORD, event
from tests.harness.policy_bodies import on_tool, policy_body, where
from tests.harness.running_service import Served
from tests.harness.waiting import until

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # One process for all pages, which starts once: half of what a page costs.
    "--renderer-process-limit=1",
    "--disable-site-isolation-trials",
]
PATIENCE = 30_000
"""Milliseconds that anything on a page may take before a test fails."""
expect.set_options(timeout=PATIENCE)
LATELY = re.compile(r"(?:just now|\d+ (?:second|minute)s? ago)")
"""How the page says when something happened a moment ago; a busy machine takes its time."""

POLICIES = (
    {
        "policyId": "hold-payments",
        "name": "Ask before paying",
        "description": "Money leaves only when a person has looked.",
        "action": "require_approval",
        "enabled": True,
        "matchConditions": [{"field": "toolName", "operator": "starts_with", "value": "payments."}],
    },
    on_tool(
        "Ask, but not for long",
        "require_approval",
        "brief",
        policyId="hold-brief",
        approval={"expiresAfterSeconds": 3600},
    ),
    policy_body(
        "Hold what is marked",
        "require_approval",
        where("inputPayload.hold", "exists"),
        policyId="hold-anything-odd",
    ),
    policy_body(
        "Warn <b>of</b> payments", "warn", where("toolName", "starts_with", "payments."), policyId="warn-mail"
    ),
)


def find_chromium() -> str:
    for name in ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    why = "there is no Chromium; `apt-get install chromium-headless-shell` enables the browser tests"
    if os.environ.get("CI_REQUIRE_ALL") == "1":
        pytest.fail(why)
    pytest.skip(why)


def launch(playwright: Playwright) -> Browser:
    return playwright.chromium.launch(executable_path=find_chromium(), headless=True, args=ARGUMENTS)


_idle: WeakKeyDictionary[Browser, dict[str, list[BrowserContext]]] = WeakKeyDictionary()
"""Browsers of people, by their options: to make one anew costs as much as most tests do with it."""


class Console:
    """The service as agents and reviewers meet it; whatever a page complained of is a failure at the end."""

    def __init__(self, service: Served, browser: Browser) -> None:
        self.service = service
        self.browser = browser
        self.address = str(service.http.base_url).rstrip("/")
        self.troubles: list[str] = []
        self.expected: list[str] = []
        self._contexts: list[tuple[str, BrowserContext]] = []
        self._numbers = itertools.count(1)

    def __enter__(self) -> Console:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._close()
        troubles = self.unexpected()
        assert kind is not None or troubles == [], troubles

    # Agents

    def post(self, event_type: str, metadata: dict[str, Any], *, run: str, agent: str) -> dict[str, Any]:
        number = next(self._numbers)
        fields = {"runId": run, "agentId": agent, "metadata": metadata}
        told = event(number, event_type, "2026-01-31T09:30:00Z", fields)
        found: dict[str, Any] = self.service.answered("agent", "POST", "/v1/events", told)
        return found

    def hold(
        self,
        tool: str = "payments.send",
        payload: dict[str, Any] | None = None,
        *,
        agent: str = "clerk",
        run: str | None = None,
        **metadata: Any,
    ) -> str:
        """An agent calls a tool and has to wait; the id of its approval."""
        number = next(self._numbers)
        answer = self.post(
            "tool.called",
            {
                "toolCallId": f"call-{number}",
                "toolName": tool,
                "inputPayload": {"amount": 120} if payload is None else payload,
                **metadata,
            },
            run=run or f"run-of-{agent}",
            agent=agent,
        )
        assert answer["toolCallStatus"] == "awaiting_approval", answer
        return str(answer["approvalId"])

    # Reviewers

    def resolve(self, approval_id: str, verb: str, reason: str | None, role: str = "admin") -> None:
        """Somebody else decides, over HTTP."""
        self.service.answered(
            role,
            "POST",
            f"/v1/approvals/{approval_id}/{verb}",
            {"reason": reason} if reason else {},
        )

    def approval(self, approval_id: str) -> dict[str, Any]:
        """As the service has it now; a key stays good when sessions end."""
        answer = self.service.call("agent", "GET", f"/v1/approvals/{approval_id}")
        found: dict[str, Any] = answer.json()
        return found

    def until(self, true: Callable[[], bool]) -> None:
        """Waits for the service rather than for a page."""
        until(true, PATIENCE / 1000)

    def page(self, address: str | None = None, **options: Any) -> Page:
        """A page of a browser of its own, not logged in, that watches itself."""
        options = {"viewport": {"width": 1280, "height": 860}} | options
        kind = json.dumps(options, sort_keys=True)
        idle = _idle.setdefault(self.browser, defaultdict(list))[kind]
        context = idle.pop() if idle else _new_context(self.browser, options)
        self._contexts.append((kind, context))
        page = context.new_page()
        self.watch(page, address or self.address)
        return page

    def watch(self, page: Page, address: str) -> None:
        """Its paths are of this address, and whatever it complains of is trouble."""
        host, goto = urlsplit(address).netloc, page.goto
        page.goto = lambda path, **how: goto(urljoin(address, path), **how)  # type: ignore[method-assign]
        page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.troubles.append(f"dialog: {dialog.message}"))
        page.on(
            "console",
            lambda message: (
                message.type in ("error", "warning")
                and self.troubles.append(f"console: {message.text} {message.location.get('url', '')}")
            ),
        )
        page.on(
            "request",
            lambda request: (
                urlsplit(request.url).netloc == host or self.troubles.append(f"another host: {request.url}")
            ),
        )
        page.add_init_script(
            "addEventListener('securitypolicyviolation', (event) =>"
            " console.error('violation', event.violatedDirective, event.blockedURI));"
        )

    def expect_trouble(self, *texts: str) -> None:
        """A browser reports refused requests by itself; a test says which ones it causes."""
        self.expected += texts

    def log_in(self, page: Page, role: str = "reviewer", place: str = "/approvals") -> str:
        """Through the form, as people do; the e-mail of the new user."""
        email = str(self.service.user(role)["email"])
        page.goto(place)
        self.fill_login(page, email)
        return email

    def fill_login(self, page: Page, email: str, password: str = PASSWORD) -> None:
        page.get_by_label("E-mail").fill(email)
        page.get_by_label("Password").fill(password)
        page.get_by_role("button", name="Log in").click()

    def reviewer(self, approval_id: str | None = None, role: str = "reviewer", **options: Any) -> Page:
        """A logged-in page, opened by the link to an approval when one is given."""
        page = self.page(**options)
        page.user = self.log_in(page, role, link(approval_id))  # type: ignore[attr-defined]
        page.locator(".room").wait_for()
        return page

    def _close(self) -> None:
        for kind, context in self._contexts:
            if self.unexpected() or not _tidied(context):
                context.close()
            else:
                _idle[self.browser][kind].append(context)
        self._contexts.clear()

    def unexpected(self) -> list[str]:
        return [trouble for trouble in self.troubles if not any(text in trouble for text in self.expected)]


def _new_context(browser: Browser, options: dict[str, Any]) -> BrowserContext:
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE)
    context.new_page()  # an empty one, which stays: without any, the context would begin anew with each test
    return context


def _tidied(context: BrowserContext) -> bool:
    """Closes its pages and forgets what they kept; False where a clock was held, which nothing undoes."""
    held, keeper = False, context.pages[0]
    storage = context.new_cdp_session(keeper)
    for page in context.pages[1:]:
        held |= page.evaluate("'__pwClock' in window")
        parts = urlsplit(page.url)
        page.close()
        kept = {"origin": f"{parts.scheme}://{parts.netloc}", "storageTypes": "all"}
        storage.send("Storage.clearDataForOrigin", kept)
    storage.detach()
    context.clear_cookies()
    return not held


def link(approval_id: str | None) -> str:
    return "/approvals" if approval_id is None else f"/approvals?approvalId={approval_id}"


def decide(page: Page, verb: str) -> None:
    """By mouse; Enter sends it at once, without the five seconds in which it could be taken back."""
    page.get_by_role("button", name=verb, exact=True).click()
    page.keyboard.press("Enter")


def entered(console: Console, place: str, role: str = "viewer", **options: Any) -> Page:
    """A page of a new user, at a place whose heading has come."""
    page = console.page(**options)
    console.log_in(page, role, place)
    page.locator(".page h1").wait_for()
    return page


def hold_time(page: Page) -> None:
    """From now on time passes only by `page.clock.run_for`, so nothing is sent by itself."""
    page.clock.install()
    page.clock.pause_at(time.time() + 1)


def row(page: Page, agent: str) -> Locator:
    """The entry of the list that is about this agent."""
    return page.locator(".items button").filter(has=page.locator(".agent").get_by_text(agent, exact=True))


class Line:
    """A cable between browser and service that a test can cut, mend, or let go silent."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._up = True
        self._frozen = False
        self._open: set[socket.socket] = set()
        self._stopped = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._up = False
        for end in list(self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self._up = True
        self._frozen = False

    def freeze(self) -> None:
        """Nothing comes through any more, and nobody hangs up."""
        self._frozen = True

    def close(self) -> None:
        self._stopped.set()
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while not self._stopped.is_set():
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self._up:
                threading.Thread(target=self._carry, args=(near,), daemon=True).start()
            else:
                near.close()

    def _carry(self, near: socket.socket) -> None:
        with contextlib.suppress(OSError), near, socket.create_connection(self._target) as far:
            self._open |= {near, far}
            with selectors.DefaultSelector() as waiting:
                waiting.register(near, selectors.EVENT_READ, far)
                waiting.register(far, selectors.EVENT_READ, near)
                while True:
                    for key, _ in waiting.select():
                        data = key.fileobj.recv(65536)  # type: ignore[union-attr]
                        if not data:
                            return
                        if self._frozen:
                            continue
                        key.data.sendall(data)


@contextlib.contextmanager
def line_to(target: str) -> Iterator[Line]:
    line = Line(target)
    try:
        yield line
    finally:
        line.close()
