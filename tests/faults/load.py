"""Agents and reviewers at work against a service that dies, or whose database does: who is told what.

They write each answer into the ledger, and what got none too. Nothing here judges, beyond this: an answer is
200, or - only where that is expected - a 503 that says when to come back.
"""

from __future__ import annotations

import http.client
import itertools
import json
import random
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from tests.faults.ledger import AGENT, Ledger, called, completed, run_completed

AGENTS = 8
REVIEWERS = 2
PATIENCE = 4.0
"""Seconds after which a balancer tries another node."""
STAYS = 25
"""Pieces of work done at one node before the next."""
TOOLS = ("read", "read", "wire", "mail", "mail", "pay", "pay")

Work = Callable[["Client"], None]


class Client:
    """One kept-alive connection; the standard library's client costs a fraction of httpx."""

    def __init__(self, port: int, seconds: float = 30) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)

    def post(self, path: str, body: Any, headers: dict[str, str]) -> tuple[int, dict[str, Any], bytes]:
        """Raises OSError or HTTPException when no answer came."""
        headers = {"Content-Type": "application/json", **headers}
        self._connection.request("POST", path, json.dumps(body), headers)
        answer = self._connection.getresponse()
        content = answer.read()
        told = json.loads(content)
        if answer.status == 503:
            assert told["code"] == "unavailable" and answer.headers["Retry-After"], told
        return answer.status, told, content

    def close(self) -> None:
        self._connection.close()


class Load:
    """One round of load on a port, or on several as behind a balancer: who gets no answer from one of them
    within `PATIENCE` goes to the next. With `unavailable`, 503 is an answer that may come."""

    def __init__(self, *ports: int, admin: dict[str, str], ledger: Ledger, unavailable: bool) -> None:
        self.problems: list[str] = []
        self.refused = self.broken = 0
        self._ports = ports
        self._admin = admin
        self._ledger = ledger
        self._unavailable = unavailable
        self._pending: list[str] = []
        self._numbers = itertools.count()
        self._stop = threading.Event()
        work = [self._agent] * AGENTS + [self._reviewer] * REVIEWERS
        self._threads = [threading.Thread(target=self._until_stopped, args=(each,)) for each in work]
        for thread in self._threads:
            thread.start()

    def wait_for(self, events: int, seconds: float = 30) -> None:
        """Until so many more events are acknowledged."""
        enough, deadline = len(self._ledger.events) + events, time.monotonic() + seconds
        while len(self._ledger.events) < enough and time.monotonic() < deadline and not self.problems:
            time.sleep(0.005)

    def must_go_on(self, events: int, seconds: float) -> None:
        enough = len(self._ledger.events) + events
        self.wait_for(events, seconds)
        assert not self.problems, "\n".join(self.problems)
        assert len(self._ledger.events) >= enough, f"no {events} events in {seconds} seconds"

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        assert not self.problems, "\n".join(self.problems)

    def _until_stopped(self, work: Work) -> None:
        if len(self._ports) > 1:
            self._go_round(work)
            return
        client = Client(self._ports[0])
        try:
            while not self._stop.is_set():
                work(client)
        except (OSError, http.client.HTTPException) as error:
            # It was killed under us. One that lives must answer everybody.
            if self._unavailable:
                self.problems.append(f"the connection broke: {error!r}")
        except Exception:
            self.problems.append(traceback.format_exc())
        finally:
            client.close()

    def _go_round(self, work: Work) -> None:
        for port in itertools.cycle(random.sample(self._ports, len(self._ports))):
            client = Client(port, PATIENCE)
            try:
                for _ in range(STAYS):
                    if self._stop.is_set():
                        return
                    work(client)
            except (OSError, http.client.HTTPException):
                self.broken += 1
                time.sleep(0.05)
            except Exception:
                self.problems.append(traceback.format_exc())
                return
            finally:
                client.close()

    # Agents -----------------------------------------------------------------------------------------

    def _agent(self, client: Client) -> None:
        chance = random.random()
        if chance < 0.1:
            self._batch(client)
        elif chance < 0.15:
            self._whole_run(client)
        elif chance < 0.25:
            self._repeat(client)
        else:
            call = self._call()
            if self._report(client, call) and call["metadata"]["toolName"] == "read":
                self._report(client, completed(call))

    def _call(self) -> dict[str, Any]:
        number, round_ = next(self._numbers), self._ledger.round
        tool = random.choice(TOOLS)
        if tool == "mail":
            tool = f"mail-{round_}"
        return called(round_, f"{round_}-{number}", tool, str(number % 7))

    def _report(self, client: Client, event: dict[str, Any]) -> bool:
        self._ledger.send([event])
        status, answer, content = client.post("/v1/events", event, AGENT)
        if self._away(status):
            return False
        assert status == 200, content
        self._note(event, answer, content)
        return True

    def _note(self, event: dict[str, Any], answer: dict[str, Any], content: bytes | None) -> None:
        if self._ledger.note(event, answer, content) and "approvalId" in answer:
            self._pending.append(answer["approvalId"])

    def _batch(self, client: Client) -> None:
        events = [self._call() for _ in range(random.randint(2, 40))]
        self._ledger.send(events)
        status, answer, content = client.post("/v1/events/batch", {"events": events}, AGENT)
        if self._away(status):
            return
        assert status == 200, content
        for event, result in zip(events, answer["results"], strict=True):
            if not self._away(result["status"]):
                assert result["status"] == 200, result
                self._note(event, result["answer"], None)

    def _whole_run(self, client: Client) -> None:
        run = f"short{next(self._numbers)}"
        round_ = self._ledger.round
        if self._report(client, called(round_, f"{round_}-{run}", "read", run)):
            self._report(client, run_completed(round_, run))

    def _repeat(self, client: Client) -> None:
        """The same event again, as agents do that lost the answer: the same answer, under load too."""
        latest = self._ledger.latest
        if random.random() < 0.5 and (due := self._ledger.due()):
            self._report(client, random.choice(due))
        elif latest is not None:
            self._report(client, latest)

    def _away(self, status: int) -> bool:
        if status != 503 or not self._unavailable:
            return False
        self.refused += 1
        time.sleep(0.2)
        return True

    # Reviewers --------------------------------------------------------------------------------------

    def _reviewer(self, client: Client) -> None:
        try:
            approval_id = self._pending.pop(0)
        except IndexError:
            time.sleep(0.01)
            return
        way = random.choice(["approve", "reject"])
        self._ledger.undecided[approval_id] = None
        status, answer, _ = client.post(f"/v1/approvals/{approval_id}/{way}", {"reason": way}, self._admin)
        if self._away(status):
            return
        assert status == 200, answer
        self._ledger.resolutions[approval_id] = answer
        del self._ledger.undecided[approval_id]
