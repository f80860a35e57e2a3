"""What people of the console wait for: `python -m tests.bench.console [--rate 1000] [--write]`.

A real Chromium against `governance serve` as people start it, on one machine.
Rooms: from the navigation, with the files in the browser's cache, until the first paint, and until the room
shows what it is for; the median of five.
Scrolling: ten thousand approvals wait, a thousand of them are in the list, which is scrolled to its end and
back, a screen each frame; the longest frame is what one sees as a stutter.
Storm: so many events a second are recorded while a room is open.

A machine that is busy with other things makes all of it slower; the load is noted beside each row.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Page, sync_playwright

from tests.bench.served import KEY, Server, service
from tests.browser.support import POLICIES, launch
from tests.harness.application import write_policies

RESULTS = Path(__file__).parent / "RESULTS-console.md"
PASSWORD = "of the benchmark only"
ROOMS = {
    "/overview": ".rows",
    "/approvals": "#subject",
    "/alerts": ".empty:not([hidden])",
    "/agents": ".rows li",
    "/runs": ".rows li",
    "/policies": ".rows li",
    "/presets": ".empty:not([hidden])",
    "/tools": ".page h2",
    "/audit": ".rows li",
    "/webhooks": ".empty:not([hidden])",
    "/channels": ".empty:not([hidden])",
    "/people": ".rows li",
    "/status": ".sound",
}
"""Each with what is there once it shows what it is for."""
TIMES = 5
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
FRAMES = """
async (selector) => {
  const box = document.querySelector(selector) ?? document.scrollingElement;
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  const gaps = [];
  let before = await frame();
  for (const step of [1, -1]) {
    for (let at = box.scrollTop, left = 400; left > 0; left -= 1) {
      box.scrollTop += step * box.clientHeight;
      const now = await frame();
      gaps.push(now - before);
      before = now;
      if (box.scrollTop === at) break;
      at = box.scrollTop;
    }
  }
  return gaps;
}
"""
WATCH = """
(seconds) => new Promise((resolve) => {
  const gaps = [];
  const end = performance.now() + seconds * 1000;
  let before = performance.now();
  const frame = (now) => {
    gaps.push(now - before);
    before = now;
    if (now < end) requestAnimationFrame(frame); else resolve(gaps);
  };
  requestAnimationFrame(frame);
})
"""


def load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def event(number: int, tool: str) -> dict[str, Any]:
    return {
        "eventId": f"event-{number}",
        "runId": f"run-{number // 100}",
        "agentId": f"agent-{number // 100 % 50}",
        "timestamp": "2026-01-31T09:30:00Z",
        "eventType": "tool.called",
        "metadata": {
            "toolCallId": f"call-{number}",
            "toolName": tool,
            "inputPayload": {"amount": number % 900 + 1, "currency": "EUR", "note": f"invoice {number}"},
        },
    }


class Agents:
    """Posts events by batches."""

    def __init__(self, server: Server) -> None:
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=60, trust_env=False)
        self._number = 0

    def post(self, count: int, tool: str) -> None:
        while count > 0:
            batch = min(count, 500)
            events = [event(self._number + each, tool) for each in range(batch)]
            answer = self._http.post("/v1/events/batch", json={"events": events}, headers={"X-API-Key": KEY})
            assert {each["status"] for each in answer.json()["results"]} == {200}, answer.text[:300]
            self._number += batch
            count -= batch

    @contextmanager
    def storm(self, rate: int) -> Iterator[list[int]]:
        """So many events a second meanwhile; how many were recorded."""
        over, recorded = threading.Event(), [0]

        def send() -> None:
            begun = time.monotonic()
            while not over.is_set():
                self.post(rate // 10, "look")
                recorded[0] += rate // 10
                over.wait(max(0.0, begun + recorded[0] / rate - time.monotonic()))

        thread = threading.Thread(target=send)
        thread.start()
        try:
            yield recorded
        finally:
            over.set()
            thread.join()


def log_in(page: Page, address: str) -> None:
    page.goto(f"{address}/status")
    page.get_by_label("E-mail").fill("admin@localhost")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.locator(".sound").wait_for()


def rooms(page: Page, address: str) -> Iterator[str]:
    yield "| room | first paint | shows what it is for | load |"
    yield "|---|---:|---:|---:|"
    for place, sign in ROOMS.items():
        paints, shows = [], []
        for _ in range(TIMES):
            page.goto(f"{address}{place}", wait_until="commit")
            page.locator(sign).first.wait_for()
            shows.append(page.evaluate("performance.now()"))
            page.wait_for_timeout(100)
            paints.append(
                page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
            )
        paint, shown = statistics.median(paints), statistics.median(shows)
        yield f"| {place} | {paint:.0f} ms | {shown:.0f} ms | {load()} |"


def gaps_of(gaps: list[float]) -> str:
    gaps = sorted(gaps)
    late = sum(gap > 50 for gap in gaps)
    return f"{len(gaps)} | {gaps[int(len(gaps) * 0.99) - 1]:.0f} ms | {gaps[-1]:.0f} ms | {late}"


def scrolling(page: Page, address: str, waiting: int) -> Iterator[str]:
    page.goto(f"{address}/approvals")
    page.locator("#subject").wait_for()
    more = page.get_by_text("Show more")
    rows = page.locator(".items li")
    for count in range(200, min(waiting, 1000) + 1, 100):
        more.click()
        page.locator(f".items li:nth-child({count})").wait_for(state="attached")
    yield ""
    yield "| list | rows | frames | 99 of 100 within | longest | over 50 ms | load |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    gaps = page.evaluate(FRAMES, ".list")
    yield f"| approvals, {waiting:,} wait | {rows.count():,} | {gaps_of(gaps)} | {load()} |"


def storm(page: Page, address: str, agents: Agents, rate: int, seconds: int) -> Iterator[str]:
    yield ""
    yield "| room during the storm | events/s | frames | 99 of 100 within | longest | over 50 ms | load |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for place in ("/overview", "/approvals", "/runs", "/audit"):
        page.goto(f"{address}{place}")
        page.locator(ROOMS[place]).first.wait_for()
        with agents.storm(rate) as recorded:
            begun = time.monotonic()
            gaps = page.evaluate(WATCH, seconds)
            reached = recorded[0] / (time.monotonic() - begun)
        yield f"| {place} | {reached:,.0f} | {gaps_of(gaps)} | {load()} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--approvals", type=int, default=10_000, metavar="N", help="approvals that wait")
    parser.add_argument("--rate", type=int, default=1_000, metavar="N", help="events a second of the storm")
    parser.add_argument("--seconds", type=int, default=10, metavar="N", help="of the storm in each room")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    arguments = parser.parse_args()
    lines = [line for line in (__doc__ or "").split("\n")[2:] if line is not None]
    with tempfile.TemporaryDirectory(prefix="governance-bench-") as home:
        policies = Path(home) / "policies.d"
        write_policies(policies, POLICIES)
        server = service(Path(home) / "data", policies)
        try:
            agents = Agents(server)
            agents.post(arguments.approvals, "payments.send")
            agents.post(1_000, "look")
            address = f"http://127.0.0.1:{server.port}"
            with sync_playwright() as playwright:
                browser = launch(playwright)
                page = browser.new_page(viewport={"width": 1280, "height": 860})
                log_in(page, address)
                for part in (
                    rooms(page, address),
                    scrolling(page, address, arguments.approvals),
                    storm(page, address, agents, arguments.rate, arguments.seconds),
                ):
                    for line in part:
                        print(line, flush=True)
                        lines.append(line)
                browser.close()
        finally:
            server.stop()
    if arguments.write:
        RESULTS.write_text("\n".join(["# The console", "", *lines]).strip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
