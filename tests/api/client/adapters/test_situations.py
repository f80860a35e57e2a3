"""Every agent SDK in every situation: what runs, what its model is told, and what the service has on
record."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

import pytest
from governance_client import AsyncGovernance

from tests.api.client.adapters.driver import DONE, MODEL, TASK, Driver, Outcome, OutOfOrder, Script, Tools
from tests.api.client.adapters.drivers import DRIVERS
from tests.api.client.adapters.place import GARBAGE, Answering, Door, Place

LOOK: Script = [[("look", {"at": "the invoices"})]]
WIRE: Script = [[("wire", {"to": "mallory"})]]
PAY: Script = [[("pay", {"to": "bob", "amount": 7})]]
RENT: Script = [[("rent", {"to": "bob", "amount": 7})]]
PAID = ("pay", {"to": "bob", "amount": 7})
SEEN = ("look", {"at": "the invoices"})


@pytest.fixture(params=DRIVERS, ids=lambda driver: driver.name)
def driver(request: pytest.FixtureRequest) -> Driver:
    found: Driver = request.param
    return found


@pytest.fixture(params=[each for each in DRIVERS if each.pauses], ids=lambda driver: driver.name)
def pausing(request: pytest.FixtureRequest) -> Driver:
    """An SDK that can interrupt a run."""
    found: Driver = request.param
    return found


async def closing(governance: AsyncGovernance, outcome: Awaitable[Outcome]) -> Outcome:
    """The outcome, all reports having been sent."""
    try:
        return await outcome
    finally:
        await governance.close()


@contextlib.contextmanager
def impatience() -> Iterator[None]:
    """Nobody waits for reports that nobody takes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("governance_client.core.CLOSE_SECONDS", 0.1)
        yield


def play(driver: Driver, place: Place, script: Script, tools: Tools, **options: Any) -> Outcome:
    """A whole run, of which nobody has to decide anything."""
    breaks = options.pop("breaks", False)

    async def whole() -> Outcome:
        governance = place.governance(**options)
        return await closing(governance, driver.run(governance, script, tools, breaks=breaks))

    return asyncio.run(whole())


# The whole run ------------------------------------------------------------------------------------


def test_an_allowed_call_runs_and_everything_is_reported(driver: Driver, place: Place, tools: Tools) -> None:
    outcome = play(driver, place, LOOK, tools)

    assert tools.ran == [SEEN]
    assert outcome == Outcome(["seen: the invoices"], DONE)
    run = place.run()
    assert (run["status"], run["task"]) == ("completed", TASK)
    assert not driver.knows_task or run["model"].endswith(MODEL)
    (call,) = run["toolCalls"]
    assert (call["toolName"], call["inputPayload"]) == SEEN
    assert (call["status"], call["completion"]) == ("allowed", "completed")
    assert "seen: the invoices" in json.dumps(call["outputPayload"])


def test_a_call_that_fails_is_reported_as_failed(driver: Driver, place: Place, tools: Tools) -> None:
    script: Script = [[("stumble", {"at": "the stairs"})]]
    if driver.survives:
        outcome = play(driver, place, script, tools)
        assert len(outcome.answers) == 1 and outcome.text == DONE
    else:
        with pytest.raises(ValueError, match="stumbled"):
            play(driver, place, script, tools)

    run = place.run()
    assert run["status"] == ("completed" if driver.survives else "failed")
    assert [call["completion"] for call in run["toolCalls"]] == ["failed"]


def test_a_run_whose_model_fails_has_failed(driver: Driver, place: Place, tools: Tools) -> None:
    with pytest.raises(OutOfOrder):
        play(driver, place, LOOK, tools, breaks=True)

    run = place.run()
    assert run["status"] == "failed"
    assert [call["completion"] for call in run["toolCalls"]] == ["completed"]


# What is refused ----------------------------------------------------------------------------------


def test_the_model_reads_why_a_call_is_blocked_and_goes_on(
    driver: Driver, place: Place, tools: Tools
) -> None:
    outcome = play(driver, place, WIRE + LOOK, tools)

    assert tools.ran == [SEEN]
    assert "No wires" in outcome.answers[0]
    assert outcome.answers[1:] == ["seen: the invoices"] and outcome.text == DONE
    run = place.run()
    assert [call["status"] for call in run["toolCalls"]] == ["blocked", "allowed"]
    assert [call["completion"] for call in run["toolCalls"]] == [None, "completed"]
    assert run["status"] == "completed"


@pytest.mark.parametrize(
    "more",
    [
        *({"really": each} for each in (True, "true", "yes", "1", 1, 1.0)),
        *({"where": each} for each in ({"path": "/etc"}, '{"path": "/etc"}', '{"path": "\\u002fetc"}')),
    ],
    ids=str,
)
def test_what_an_sdk_would_convert_runs_unseen_by_no_policy(
    driver: Driver, place: Place, tools: Tools, more: dict[str, Any]
) -> None:
    play(driver, place, [[("drop", {"table": "orders", **more})], *LOOK], tools)

    assert tools.ran == [SEEN]


def test_what_is_refused_as_it_does_not_fit_may_be_given_anew(
    driver: Driver, place: Place, tools: Tools
) -> None:
    script: Script = [[("drop", {"table": "orders", "really": "no"})], [("drop", {"table": "orders"})]]
    outcome = play(driver, place, script, tools)

    assert tools.ran[-1] == ("drop", {"table": "orders", "really": False})
    assert driver.name == "pydantic-ai" or "`really` is a text, and the tool takes" in outcome.answers[0]


def test_calls_of_one_answer_are_decided_one_by_one(driver: Driver, place: Place, tools: Tools) -> None:
    outcome = play(driver, place, [[*WIRE[0], *LOOK[0]]], tools)

    assert tools.ran == [SEEN]
    assert "No wires" in outcome.answers[0] and outcome.answers[1] == "seen: the invoices"


def test_a_halted_agent_runs_nothing(driver: Driver, place: Place, tools: Tools) -> None:
    halt = {"agentId": place.agent_id, "reason": "it pays too much"}
    assert place.service.call("admin", "POST", "/v1/halt", halt).status_code == 200

    outcome = play(driver, place, LOOK, tools)

    assert tools.ran == []
    assert "it pays too much" in outcome.answers[0]


def test_a_revoked_key_runs_nothing(driver: Driver, place: Place, tools: Tools) -> None:
    key = place.service.key()
    assert place.service.call("admin", "DELETE", f"/v1/api-keys/{key['keyId']}").status_code in (200, 204)

    outcome = play(driver, place, LOOK, tools, api_key=key["key"])

    assert tools.ran == []
    assert "look" in outcome.answers[0] and outcome.text == DONE


@pytest.mark.parametrize("answer", GARBAGE)
def test_an_answer_that_makes_no_sense_runs_nothing(
    driver: Driver, place: Place, tools: Tools, answer: bytes
) -> None:
    with Answering(answer) as server, impatience():
        outcome = play(driver, place, LOOK, tools, url=server.url, decide_seconds=0.2)

    assert tools.ran == []
    assert "look" in outcome.answers[0] and outcome.text == DONE


# While the service is away ------------------------------------------------------------------------


def test_nothing_runs_while_the_service_is_away(driver: Driver, place: Place, tools: Tools) -> None:
    with Door(place.service) as door:
        with impatience():
            outcome = play(driver, place, LOOK, tools, url=door.url, decide_seconds=0.2)
        assert tools.ran == []
        assert "look" in outcome.answers[0] and outcome.text == DONE

        door.is_open = True
        outcome = play(driver, place, LOOK, tools, url=door.url)
        assert tools.ran == [SEEN]


def test_what_runs_in_the_fail_mode_open_is_reported_once_the_service_is_back(
    driver: Driver, place: Place, tools: Tools, tmp_path: Path
) -> None:
    opened = {"fail_mode": "open", "journal": tmp_path / "journal"}

    async def back(url: str) -> list[dict[str, Any]]:
        governance = place.governance(url=url, **opened)
        await driver.run(governance, WIRE, tools)
        calls = await place.reported(2)
        await governance.close()
        return calls

    with Door(place.service) as door:
        with impatience():
            outcome = play(driver, place, LOOK, tools, url=door.url, decide_seconds=0.2, **opened)
        assert tools.ran == [SEEN] and outcome == Outcome(["seen: the invoices"], DONE)

        door.is_open = True
        calls = {call["toolName"]: call for call in asyncio.run(back(door.url))}

    assert tools.ran == [SEEN]
    assert "decided_offline" in calls["look"]["flags"] and not calls["wire"]["flags"]


# People -------------------------------------------------------------------------------------------


def decided(
    driver: Driver, place: Place, script: Script, tools: Tools, verb: str, reason: str = ""
) -> Outcome:
    """The outcome of a run that waits within the call, with a person who decides meanwhile."""

    async def both() -> Outcome:
        governance = place.governance()
        running = closing(governance, driver.run(governance, script, tools))
        outcome, _ = await asyncio.gather(running, place.person(verb, reason))
        return outcome

    return asyncio.run(both())


def test_a_call_waits_until_somebody_approves_it(driver: Driver, place: Place, tools: Tools) -> None:
    outcome = decided(driver, place, PAY, tools, "approve")

    assert tools.ran == [PAID]
    assert outcome == Outcome(["paid 7 to bob"], DONE)
    (call,) = place.run()["toolCalls"]
    assert (call["status"], call["completion"], call["flags"]) == ("allowed", "completed", [])


def test_the_model_reads_why_somebody_said_no(driver: Driver, place: Place, tools: Tools) -> None:
    outcome = decided(driver, place, PAY + LOOK, tools, "reject", "bob was paid on Monday")

    assert tools.ran == [SEEN]
    assert "bob was paid on Monday" in outcome.answers[0]
    assert outcome.answers[1:] == ["seen: the invoices"] and outcome.text == DONE


def test_an_approval_that_expired_lets_nothing_run(driver: Driver, place: Place, tools: Tools) -> None:
    async def late() -> None:
        await place.waiting()
        place.service.clock.advance(601)

    async def both() -> Outcome:
        governance = place.governance()
        running = closing(governance, driver.run(governance, RENT, tools))
        outcome, _ = await asyncio.gather(running, late())
        return outcome

    outcome = asyncio.run(both())
    assert tools.ran == []
    assert "expired" in outcome.answers[0]


# The SDK's own interruption -----------------------------------------------------------------------


def interrupted(
    driver: Driver, place: Place, script: Script, tools: Tools, verb: str, reason: str = ""
) -> Outcome:
    """The outcome of a run that is interrupted, kept as text, and gone on with by another client."""

    async def begun() -> str:
        governance = place.governance()
        try:
            return await driver.pause(governance, script, tools)
        finally:
            await governance.close()

    async def gone_on(saved: str) -> Outcome:
        governance = place.governance()
        running = closing(governance, driver.resume(governance, script, tools, saved))
        outcome, _ = await asyncio.gather(running, place.person(verb, reason))
        return outcome

    saved = asyncio.run(begun())
    assert PAID not in tools.ran and place.run()["status"] == "running"
    return asyncio.run(gone_on(saved))


def test_an_interrupted_run_goes_on_once_somebody_approves(
    pausing: Driver, place: Place, tools: Tools
) -> None:
    outcome = interrupted(pausing, place, [*LOOK, *PAY, *LOOK], tools, "approve")

    assert tools.ran == [SEEN, PAID, SEEN]
    assert outcome.answers[-2:] == ["paid 7 to bob", "seen: the invoices"] and outcome.text == DONE
    run = place.run()
    assert (run["status"], run["task"]) == ("completed", TASK)
    assert [call["completion"] for call in run["toolCalls"]] == ["completed"] * 3
    assert not any(call["flags"] for call in run["toolCalls"])


def test_the_model_of_an_interrupted_run_reads_why_somebody_said_no(
    pausing: Driver, place: Place, tools: Tools
) -> None:
    outcome = interrupted(pausing, place, [[*PAY[0], *LOOK[0]]], tools, "reject", "bob was paid on Monday")

    assert tools.ran == [SEEN]
    assert "bob was paid on Monday" in outcome.answers[0] and outcome.text == DONE


def test_two_calls_of_one_answer_can_wait_for_people(pausing: Driver, place: Place, tools: Tools) -> None:
    both: Script = [[*PAY[0], ("pay", {"to": "ann", "amount": 8})]]

    async def whole() -> Outcome:
        first, second = place.governance(), place.governance()
        saved = await pausing.pause(first, both, tools)
        await first.close()
        running = closing(second, pausing.resume(second, both, tools, saved))
        outcome, _ = await asyncio.gather(running, place.person("approve", calls=2))
        return outcome

    assert asyncio.run(whole()) == Outcome(["paid 7 to bob", "paid 8 to ann"], DONE)
    assert len(tools.ran) == 2
