"""Fixtures of the browser tests: one Chromium for all of them, a fresh service for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.support import POLICIES, Console, find_chromium, launch
from tests.harness.running_service import Served


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    # Ended with the package: while it lasts, nothing else can run an event loop on this thread.
    find_chromium()
    with sync_playwright() as playwright:
        chromium = launch(playwright)
        yield chromium
        chromium.close()


@pytest.fixture
def console(browser: Browser, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Console]:
    """A service with agents and reviewers; whatever a page complained of fails the test. Policies are files
    that can be changed where the tests of a module are `LIVE`."""
    live = getattr(request.module, "LIVE", False)
    with Served(tmp_path, POLICIES, live=live) as service, Console(service, browser) as console:
        yield console
