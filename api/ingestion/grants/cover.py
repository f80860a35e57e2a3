"""Whether grants cover a call that policies hold: what a person allowed beforehand need not be asked again.

Two kinds: a run is exempted from labels, and the same call was granted again. Who grants, and how far, is
the business of `store/grants`.

INVARIANT: a block is never covered; a grant covers a call only when it covers every policy that holds it,
each in the version that asked when it was made; and none is used more often than it says, whichever nodes
decide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from api.ingestion.batch import Batch
from api.ingestion.event import Evaluated, Incoming
from api.ingestion.grants.book import ActiveGrant, GrantBook
from api.ingestion.known.runs import KnownRun
from api.store.call_facts import acting, said_of_evaluation
from api.store.emails import same_email
from engine.matching import decision as engine_decision
from engine.matching.exemption import evaluate_exempt
from engine.model import Decision, Match, Policy


class Cover(msgspec.Struct, frozen=True):
    """The decision with what is covered left out. `left_out` still adds its labels to the run."""

    decision: Decision
    left_out: tuple[Match, ...] = ()
    exempted: tuple[ActiveGrant, ...] = ()
    used: ActiveGrant | None = None
    """The grant on whose calls this one goes."""
    number: int = 0
    """Which one of them it is."""
    notes: tuple[str, ...] = ()

    @property
    def grants(self) -> tuple[ActiveGrant, ...]:
        return self.exempted if self.used is None else (*self.exempted, self.used)

    @property
    def status(self) -> str:
        """The status of the grant that is used, with this call counted."""
        return "used_up" if self.used is not None and self.number >= self.used.calls else "active"

    @property
    def reason(self) -> str:
        """The reason of the decision, followed by the grants that led to it."""
        said = (self.decision.reason,) if self.decision.matched or not self.notes else ()
        return "; ".join((*said, *self.notes))


def candidates(book: GrantBook, event: Incoming) -> list[ActiveGrant]:
    """The grants that may cover a call, as far as can be told before it is decided; none unless a policy
    would ask people."""
    if not book or event.call is None or event.evaluated is None:
        return []
    if not any(m.policy.action == "require_approval" for m in event.evaluated.evaluation.matches):
        return []
    caller, body = event.caller, event.body
    return book.of_call(caller.organisation_id, event.digest, body.runId, body.agentId, caller.key_id)


def cover(
    batch: Batch,
    book: GrantBook,
    event: Incoming,
    run: KnownRun,
    evaluated: Evaluated,
    decision: Decision,
    is_over: Callable[[Policy], bool],
) -> Cover:
    """What becomes of a decision that asks or warns. It counts nothing; `use` does."""
    made = _exempted(batch, book, event, run, evaluated, decision, is_over)
    if made.decision.status != "awaiting_approval" or run.status != "running":
        return made
    holding = [match for match in made.decision.matched if match.policy.action == "require_approval"]
    asking = {(match.policy.policy_id, match.policy.version) for match in holding}
    found = book.of_call(run.organisation_id, event.digest, run.run_id, run.agent_id, run.key_id)
    said = said_of_evaluation(event.metadata, evaluated.ruleset.roots) if found else ""
    for grant in found:
        if asking <= grant.policies and grant.said == said and grant.lasts(batch.transaction.at):
            number = batch.used(grant.grant_id, grant.bucket) + 1
            if number <= grant.calls:
                return _granted(made, holding, grant, number)
    return made


def use(batch: Batch, book: GrantBook, event: Incoming, made: Cover, call_no: int) -> None:
    """Count the call, which is recorded with it. News of a grant goes out where its calls are counted."""
    transaction, grant = batch.transaction, made.used
    for each in made.grants:
        batch.use_grant(each.grant_id, call_no)
    if grant is None:
        return
    organisation_id, digest = event.caller.organisation_id, event.digest
    transaction.publish(organisation_id, "grant", grant.grant_id, status=made.status, runId=event.body.runId)
    if made.status == "used_up":
        transaction.after_commit(lambda: book.forget(organisation_id, digest, grant))


def told(made: Cover) -> dict[str, Any]:
    """What the audit record of the decision says of grants."""
    return {
        "grants": [
            {"grantId": grant.grant_id}
            | ({"used": made.number, "status": made.status} if grant is made.used else {})
            for grant in made.grants
        ],
        "coveredPolicyIds": [match.policy.policy_id for match in made.left_out[:50]],
    }


def _exempted(
    batch: Batch,
    book: GrantBook,
    event: Incoming,
    run: KnownRun,
    evaluated: Evaluated,
    decision: Decision,
    is_over: Callable[[Policy], bool],
) -> Cover:
    """Without the labels that do not count for this run now."""
    found = book.of_run(run.organisation_id, run.run_id, run.key_id, batch.transaction.at)
    labels = frozenset(msgspec.json.decode(run.labels)) if found else frozenset()
    grants = tuple(grant for grant in found if grant.labels & labels and not _is_own(grant, event))
    if not grants or run.status != "running":
        return Cover(decision)
    ruleset, exempt = evaluated.ruleset, labels & frozenset().union(*(grant.labels for grant in grants))
    if ruleset.needs.values:
        batch.load_values(run)
    memory = run.memory() if ruleset.needs.memory else None
    found_now = evaluate_exempt(ruleset, evaluated.call, evaluated.evaluation, exempt, memory)
    lighter = replace(engine_decision.decide(found_now, is_over), counted=decision.counted)
    known = {match.policy.policy_id for match in lighter.matched}
    left_out = tuple(match for match in decision.matched if match.policy.policy_id not in known)
    if not left_out:
        return Cover(decision)
    notes = tuple(
        f"{' and '.join(f'`{label}`' for label in sorted(grant.labels & labels))} not counted by grant"
        f" `{grant.grant_id}` of {grant.created_by} until {grant.expires_at}"
        for grant in grants
    )
    return Cover(lighter, left_out, grants, notes=notes)


def _is_own(grant: ActiveGrant, event: Incoming) -> bool:
    """Whether whoever asks has exempted the run: nobody reviews what is done on their own behalf."""
    names = (event.caller.user_id, *acting(event.facts))
    return not grant.made_by.isdisjoint(same_email(name) for name in names if isinstance(name, str))


def _granted(made: Cover, holding: list[Match], grant: ActiveGrant, number: int) -> Cover:
    decision = engine_decision.without(made.decision, {match.policy.policy_id for match in holding})
    note = (
        f"covered by grant `{grant.grant_id}` of {grant.created_by} until {grant.expires_at},"
        f" {number:,} of {'1 call' if grant.calls == 1 else f'{grant.calls:,} calls'} used"
    )
    left_out = (*made.left_out, *holding)
    return Cover(decision, left_out, made.exempted, grant, number, (note, *made.notes))
