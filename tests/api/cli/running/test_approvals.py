"""Approvals on a terminal: shown whole, decided as shown, and nothing an agent wrote steers the terminal."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from typing import Any

from tests.api.cli.running.conftest import Operator
from tests.harness.places import ROOT

STEERING = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
HOSTILE = {
    "to": "bob\x1b[2K\x1b[1A\x9b2J\r\x08\x07",
    "a\u202eb": "\u2066x\u2069\u200b\ufeff\u2028y\u2029z\U000e0041",
    "note": "рaypal \u0007\x1b]0;title\x07 \x1b]52;c;cm0=\x07",
    "long": "x" * 50_000,
    "lines": "one\ntwo\r\nthree\tfour",
}


def test_a_held_call_is_shown_whole_and_steers_no_terminal(operator: Operator) -> None:
    approval = operator.held(1, **HOSTILE)
    for words in (("show", approval), ("show", approval, "--json"), ("list",), ("list", "--json")):
        said = operator.done("approvals", *words)
        assert not STEERING.search(said), words
    shown = operator.done("approvals", "show", approval)
    payload = shown[shown.index("\n{\n") : shown.rindex("\n}\n") + 3]
    assert json.loads(payload[payload.rindex("\n{\n") :]) == HOSTILE
    assert operator.json("approvals", "show", approval)["inputPayload"] == HOSTILE
    assert "beware: it holds \\u202e, right-to-left override, which is not seen or steers" in shown
    assert "beware: `рaypal` looks like `paypal`, and has letters of another alphabet" in shown
    assert shown.startswith("pending: ")
    operator.types("n\n")
    assert "nothing was done" in operator.refused("approvals", "approve", approval)
    operator.types("n\n")
    error = operator.refused("approvals", "approve", approval, "--json")
    assert "\\u202e" in error and not STEERING.search(error)
    code, output, error = operator.run("approvals", "reject", approval, "--yes", "--reason", "\x1b[31m")
    assert code == 0 and not STEERING.search(output + error)


def test_a_plain_call_warns_of_nothing(operator: Operator) -> None:
    assert "beware" not in operator.done(
        "approvals", "show", operator.held(2, to="bob", note="Grüße, 日本\n")
    )


def test_what_waits_is_listed_and_decided(operator: Operator) -> None:
    one, other = operator.held(11, amount=1), operator.held(12, amount=2)
    assert {one, other} <= {each["approvalId"] for each in operator.json("approvals", "list")}
    assert "wire" in operator.done("approvals", "list")
    code, output, error = operator.run("approvals", "list", "--limit", "1")
    assert code == 0 and re.search(r"these are 1 of \d+; --limit \d+ shows all", error), output
    operator.types("y\n")
    said = operator.done("approvals", "approve", one, "--reason", "agreed")
    assert '"amount": 1' in said and said.splitlines()[-1].startswith("approved: ")
    assert operator.json("approvals", "reject", other, "--yes", "--reason", "no")["decisionReason"] == "no"
    error = operator.refused("approvals", "approve", one, "--yes")
    assert "the service refuses (409)" in error and "already approved by" in error
    assert one in {each["approvalId"] for each in operator.json("approvals", "list", "--status", "approved")}
    assert "the service refuses (404)" in operator.refused("approvals", "show", "apr_unknown")
    assert "the service refuses (404)" in operator.refused("approvals", "show", "../halts?x=%2e%2e/")


def test_a_list_of_many_pages_is_read_to_its_end(operator: Operator, monkeypatch: Any) -> None:
    from api.cli import api_client

    monkeypatch.setattr(api_client, "MOST_A_PAGE", 2)
    made = [operator.held(number, amount=number) for number in range(20, 25)]
    found = [each["approvalId"] for each in operator.json("approvals", "list", "--limit", "5")]
    assert found == made[::-1]


def test_another_payload_than_the_one_named_is_not_released(operator: Operator) -> None:
    approval = operator.held(30, amount=1)
    error = operator.refused("approvals", "approve", approval, "--yes", "--digest", "0" * 64)
    assert "has another payload; `show` it again" in error
    assert operator.json("approvals", "show", approval)["status"] == "pending"


def test_a_call_that_needs_two_people_says_who_has_approved(operator: Operator) -> None:
    approval = operator.held(50, people=2)
    said = operator.done("approvals", "approve", approval, "--yes")
    assert "approvers: 0 of 2, of the roles " in said
    assert said.splitlines()[-2].startswith("pending: ")
    assert re.fullmatch(r"it needs others too; approved by 1 of 2 \(.+@.+\)", said.splitlines()[-1])
    operator.become("reviewer")
    assert "you may not approve it: " in operator.done("approvals", "show", approval)
    assert "the service refuses (403)" in operator.refused("approvals", "approve", approval, "--yes")
    operator.become("second admin")
    assert operator.json("approvals", "approve", approval, "--yes")["status"] == "approved"


def test_who_approved_under_another_name_is_told_by_their_own(operator: Operator) -> None:
    approval = operator.held(51, people=2)
    body = {"resolvedBy": "boss@acme.example"}
    done = operator.service.call("admin", "POST", f"/v1/approvals/{approval}/approve", body)
    actor = done.json()["approvedBy"][0]["actor"]
    operator.become("second admin")
    said = operator.done("approvals", "show", approval)
    assert f"approvers: 1 of 2 ({actor} as `boss@acme.example`), of the roles admin" in said


def test_watching_tells_what_waits_what_comes_and_what_is_decided(operator: Operator) -> None:
    waits = operator.held(40, amount=1)
    command = [sys.executable, "-m", "api.cli", "approvals", "watch", "--json"]
    watching = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
        # Whatever a shell starts behind `&` ignores it, and so does all that this starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert watching.stdout is not None
    try:
        _until(watching.stdout, waits, "pending")
        comes = operator.held(41, amount=2)
        _until(watching.stdout, comes, "pending")
        operator.done("approvals", "reject", waits, "--yes")
        _until(watching.stdout, waits, "rejected")
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 130
    finally:
        watching.kill()
        watching.stdout.close()


def _until(lines: Any, approval_id: str, status: str) -> None:
    for line in lines:
        told = json.loads(line)
        if (told["approvalId"], told["status"]) == (approval_id, status):
            return
    raise AssertionError(f"{approval_id} was never told to be {status}")


def test_watching_needs_a_reviewer_and_a_service(operator: Operator) -> None:
    operator.become("viewer")
    assert "the service refuses (403)" in operator.refused("approvals", "watch")
    assert "does not answer" in operator.refused("approvals", "watch", "--url", "http://127.0.0.1:9", code=3)
