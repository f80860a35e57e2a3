"""What would happen: simulate one call, or replay recorded calls. Nothing is written, nothing is counted.

Both may take long, so people take turns (`api/reads.py`), and a backtest ends after a while.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from time import thread_time
from typing import Any, Final

from api import clock
from api.caller import Caller
from api.context import Context
from api.http.exchange import Reply, Values
from api.http.problems import ApiError, invalid, need
from api.http.route import REVIEWER, Route
from api.policies.newest import catch_up
from api.store import recorded_calls
from engine.analysis import backtest, simulation
from engine.conditions.settings import missing, reads, told
from engine.derived.tools import ANNOTATIONS
from engine.documents.policy import policy_as_json, policy_from_json
from engine.errors import DocumentError, Problem
from engine.matching.ruleset import Ruleset
from engine.model import BEFORE, ROOTS, Policy, ToolCall

MOST_SECONDS: Final = 60.0
"""Of the processor's time, for one backtest."""


async def simulate(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/policies/simulate."""
    work = partial(_simulate, caller, values.body, context)
    return Reply(await context.reads.simulations.run(caller.user_id or "", work))


def _simulate(caller: Caller, body: dict[str, Any], context: Context) -> dict[str, Any]:
    organisation_id = caller.organisation_id
    context.store.read_here(catch_up, context.live)
    call = ToolCall.of(**{root: body[root] for root in (*ROOTS, BEFORE, ANNOTATIONS) if root in body})
    ruleset = _as_of(organisation_id, body["asOf"], context) if "asOf" in body else None
    if ruleset is None:
        ruleset = context.live.ruleset(organisation_id)
    if "policy" in body:
        draft = _draft(organisation_id, body["policy"], ruleset)
        ruleset = ruleset.changed({draft.policy_id: draft}, ruleset.revision)
    return simulation.simulate(
        ruleset,
        call,
        lambda policy: recorded_calls.is_over(context.store, policy, call, context.clock()),
        explained=body.get("explain", False),
    )


def _draft(organisation_id: str, body: dict[str, Any], ruleset: Ruleset) -> Policy:
    """An unsaved policy; it counts whether or not it is enabled, since that is what one wants to know."""
    sent = {**body, "enabled": True}
    try:
        draft = policy_from_json(sent, organisation_id=organisation_id, tools=ruleset.tools)
        if lacking := missing(reads(draft), ruleset.settings):
            message = f"it would be inactive until {told(lacking)}"
            raise DocumentError([Problem(message, "/matchConditions", "missing_setting")])
        return draft
    except DocumentError as error:
        raise DocumentError(
            replace(problem, pointer=f"/policy{problem.pointer}") for problem in error.problems
        ) from None


def _as_of(organisation_id: str, moment: int | str, context: Context) -> Ruleset:
    """The policies as they were at a revision or time."""
    if isinstance(moment, str):
        try:
            moment = clock.iso(clock.seconds(moment))
        except (ValueError, OverflowError):
            message = "`asOf` must be a revision number or an ISO 8601 time such as `2026-01-31T09:30:00Z`"
            raise invalid("/asOf", message) from None
    found = context.live.repository.policies_at(organisation_id, moment)
    if found is None:
        raise invalid("/asOf", f"there is no revision `{moment}`; the newest is {context.live.revision}")
    return Ruleset.build(found.policies, found.revision, found.tool_sets, found.settings)


async def run_backtest(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/policies/backtest."""
    work = partial(_backtest, caller, values.body, context)
    return Reply(await context.reads.backtests.run(caller.user_id or "", work))


def _backtest(caller: Caller, body: dict[str, Any], context: Context) -> dict[str, Any]:
    organisation_id = caller.organisation_id
    if ("policy" in body) == ("policyId" in body):
        raise invalid("", "send either `policy` (a draft) or `policyId` with `changes`")
    context.store.read_here(catch_up, context.live)
    old = context.live.ruleset(organisation_id)
    if "policyId" in body:
        known = context.live.snapshot.of(organisation_id)
        stored = need(known.get(body["policyId"]), "policy", body["policyId"])
        merged = policy_as_json(stored.policy) | body.get("changes", {})
        merged = {name: value for name, value in merged.items() if value is not None and name != "version"}
        draft = policy_from_json(merged, organisation_id=organisation_id, tools=old.tools)
    elif "changes" in body:
        raise invalid("/changes", "`changes` goes with `policyId`")
    else:
        draft = _draft(organisation_id, body["policy"], old)
    new = old.changed({draft.policy_id: draft}, old.revision)
    times = {name: _time(body, name) for name in ("since", "until")}
    limit = body.get("limit", 10_000)
    history = recorded_calls.recorded(context.store, organisation_id, limit=limit, **times)
    report = backtest.compare(old, new, _bounded(history, context))
    return report.as_json(clock.iso)


def _bounded(history: Iterable[backtest.Recorded], context: Context) -> Iterator[backtest.Recorded]:
    """The calls as long as there is time to decide on them."""
    begun = thread_time()
    for number, call in enumerate(history):
        if context.hub.closed:
            raise ApiError("unavailable", "the service is stopping; try again")
        if thread_time() - begun > MOST_SECONDS:
            raise invalid(
                "/limit",
                f"{number} of the calls took {MOST_SECONDS:g} seconds, and a backtest gets no more; write a"
                " smaller `limit`, or `since` and `until`, or use `governance backtest`",
            )
        yield call


def _time(body: dict[str, Any], name: str) -> str | None:
    if name not in body:
        return None
    try:
        return clock.iso(clock.seconds(body[name]))
    except (ValueError, OverflowError):
        raise invalid(f"/{name}", f"`{name}` must be an ISO 8601 time") from None


ROUTES = (
    Route(
        "POST",
        "/v1/policies/simulate",
        REVIEWER,
        simulate,
        "What would happen to a call",
        "policies",
        body="simulation",
        reply="simulation-answer",
        errors=("rate_limited",),
        description="Writes nothing, creates no approval, counts no rate limit.",
    ),
    Route(
        "POST",
        "/v1/policies/backtest",
        REVIEWER,
        run_backtest,
        "What a policy would have done to recorded calls",
        "policies",
        body="backtest",
        reply="backtest-answer",
        errors=("not_found", "rate_limited"),
    ),
)
