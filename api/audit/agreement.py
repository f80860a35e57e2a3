"""Whether calls, runs, approvals, events, policy versions, people, keys, webhooks, halts and grants say what
the log says of them.

`told` is given every record of one organisation's log, chain by chain, each oldest first; `problems` then
compares the tables: calls and events along with the chains (`calls_and_events.py`), everything else with what
all records together say (`testimony.py`). What was written after the comparison began is left to the next
one. Of records that are gone a certificate says what they said (`retention/`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from api.audit import alerted, granted, in_force
from api.audit.calls_and_events import LONGEST_REASON, CallsAndEvents, body_digest
from api.audit.retention.carried import Gone
from api.audit.testimony import (
    APPROVAL,
    APPROVERS,
    CARRIED_SINCE,
    CONTENT,
    CREDENTIAL,
    DEFINITION,
    NOTED_SINCE,
    OF_EVENTS,
    REQUEST,
    REQUESTED,
    RULE,
    TELLING,
    TOLD,
    UNNAMED,
    WORDS,
    Name,
    Testimony,
    tool_of,
)
from api.database import audit_chain
from api.database.connection import Database
from api.store.review.terms import digest_of_shown
from api.store.webhooks.webhooks import receiver


class _Step(msgspec.Struct):
    actor: str


_MAY_BE_GONE: Final = frozenset((alerted.ALERT, REQUESTED, UNNAMED))

_strings: Final = msgspec.json.Decoder(tuple[str, ...]).decode
_steps: Final = msgspec.json.Decoder(list[_Step]).decode

_APPROVALS: Final = (
    "SELECT a.approval_id, a.status, a.actor, a.resolved_by, a.decision_reason, c.status,"
    " a.run_id, a.agent_id, a.tool_call_id, a.tool_name, a.reason, a.terms, a.payload_digest, a.given,"
    " a.policy_id, a.policy_name, a.about, a.asked_by"
    " FROM approvals a"
    " LEFT JOIN tool_calls c ON c.call_no = a.call_no WHERE a.organisation_id = ?"
)
_USERS: Final = "SELECT user_id, email, role, enabled, password_hash FROM users WHERE organisation_id = ?"
_KEYS: Final = (
    "SELECT key_id, agent_id, scopes, expires_at, user_id, revoked_at, digest FROM api_keys"
    " WHERE organisation_id = ?"
)
_RULE: Final = "SELECT user_token FROM organisations WHERE organisation_id = ?"
_DEFINITIONS: Final = (
    "SELECT server, tool_name, definition, admitted_by FROM tool_definitions WHERE organisation_id = ?"
)
_WEBHOOKS: Final = (
    "SELECT webhook_id, url, events, enabled FROM webhooks WHERE organisation_id = ? AND kind = 'webhook'"
)
_CHANNELS: Final = (
    "SELECT webhook_id, name, events, enabled, config FROM webhooks"
    " WHERE organisation_id = ? AND kind <> 'webhook'"
)
_CHANGES: Final = (
    "SELECT change_id, operation, subject, requested_by, state, status, shown, requested_by_id, request"
    " FROM held_changes"
    " WHERE organisation_id = ?"
)
_HALTS: Final = (
    "SELECT halt_id, kind, target, ended_at, reason, created_by, ended_by FROM halts"
    " WHERE organisation_id = ?"
)


class Agreement:
    """One comparison.

    INVARIANT: the tables are read after the log's end was noted and before the log is walked. A thing that no
    record behind that end is about must be what the records say; what one is about has changed meanwhile.
    """

    def __init__(self, store: Database, organisation_id: str, gone: Gone, signed: Mapping[int, int]) -> None:
        """`gone`: what records said that are not there any more. `signed`: how many each chain had by the
        checkpoints, whatever the database says of its end."""
        self._store = store
        self._organisation_id = organisation_id
        self._ends = ends = dict(signed)
        for (name, chain), (sequence, _) in audit_chain.tips(store).items():
            if name == organisation_id:
                ends[chain] = max(sequence, ends.get(chain, 0))
        self._rows = CallsAndEvents(store, organisation_id, ends, gone.begin)
        self._found = self._tables()
        self._testimony = Testimony(self._owner, ends)
        self._testimony.state |= gone.state
        self._in_fewer_words = gone.in_fewer_words

    def _owner(self, key_id: str) -> Any:
        return self._found.get(("API key", key_id), (None,) * 4)[3]

    def _tables(self) -> dict[Name, tuple[Any, ...]]:
        rows, own = self._store.rows, (self._organisation_id,)
        found: dict[Name, tuple[Any, ...]] = {}
        for approval_id, *row in rows(_APPROVALS, own):
            found[(APPROVAL, approval_id)] = tuple(row[:5])
            request = (*row[5:9], row[9][:LONGEST_REASON], *row[10:12])
            found[(REQUEST, approval_id)] = request
            if row[12] is not None:
                found[(APPROVERS, approval_id)] = _approvers(row[12])
            found[(TOLD, approval_id)] = (digest_of_shown(*row[13:17]),)
        for webhook_id, url, events, enabled in rows(_WEBHOOKS, own):
            found[("webhook", webhook_id)] = (_receiver(url), _entries(events), bool(enabled))
        for channel_id, name, events, enabled, config in rows(_CHANNELS, own):
            content = (name, _entries(events), bool(enabled), body_digest(config or ""))
            found[("channel", channel_id)] = content
        for user_id, email, role, enabled, password_hash in rows(_USERS, own):
            found[("user", user_id)] = (email, role, bool(enabled))
            found[(CREDENTIAL, user_id)] = (body_digest(password_hash),)
        for key_id, agent_id, scopes, expires_at, user_id, revoked_at, digest in rows(_KEYS, own):
            found[(CREDENTIAL, key_id)] = (body_digest(digest),)
            kept = (agent_id, _entries(scopes), expires_at, user_id, revoked_at is not None)
            found[("API key", key_id)] = kept
        for change_id, *change in rows(_CHANGES, own):
            *change, shown, requested_by_id, request = change
            found[("change", change_id)] = tuple(change)
            found[(CONTENT, change_id)] = (body_digest(shown), body_digest(requested_by_id))
            if request:  # it goes with the end of its change
                found[(REQUESTED, change_id)] = (body_digest(request),)
        for halt_id, kind, target, ended_at, *words in rows(_HALTS, own):
            found[("halt", halt_id)] = (kind, target, ended_at is not None)
            found[(WORDS, halt_id)] = tuple(words)
        for (rule,) in rows(_RULE, own):
            found[(RULE, self._organisation_id)] = (None if rule is None else body_digest(rule),)
        for server, tool, *definition in rows(_DEFINITIONS, own):
            found[(DEFINITION, tool_of(server, tool))] = tuple(definition)
        for of_tables in (granted.of_tables, alerted.of_tables, in_force.of_tables):
            found.update(of_tables(self._store, self._organisation_id))
        return found

    def told(self, row: tuple[Any, ...]) -> None:
        """The next record, as a row in the order of `audit_chain.COLUMNS`."""
        tell(row, self._rows, self._testimony, later=row[2] > self._ends.get(row[1], 0))

    def problems(self) -> list[str]:
        """Everything found; asked once, at the end of the log."""
        self._testimony.finish()
        self._rows.finish()
        problems = self._rows.problems
        problems += (problem for _, problem in sorted(self._differing()))
        for digest, content in in_force.blobs(self._store, self._organisation_id):
            if content is None or body_digest(content) != digest:
                happened = "is gone" if content is None else "was changed"
                problems.append(f"the archived text `{str(digest)[:16]}` of a policy {happened}")
        return problems

    def _differing(self) -> Iterator[tuple[str, str]]:
        """Each thing that is not what was said of it: its name as text, and the difference. Only these are
        put in order: to sort millions of names is one step, in which no other thread runs."""
        said = self._testimony.state
        unnamed = tuple(tool_of(server) for kind, server in said if kind == UNNAMED)
        for name in itertools.chain(self._found, (name for name in said if name not in self._found)):
            found, told = self._found.get(name), said.get(name)
            if name in self._testimony.moved or in_force.agrees(name, found, told):
                continue
            if found is None and name[0] in _MAY_BE_GONE:
                continue
            if found is not None and told is None and self._may_be_untold(name, found, unnamed):
                continue
            yield str(name), _difference(name, found, told)

    def _may_be_untold(self, name: Name, found: tuple[Any, ...], unnamed: tuple[str, ...]) -> bool:
        """Whether what was recorded before may say nothing of it. `unnamed` is how the tools of servers begin
        of which records do not name all that were admitted."""
        (kind, identifier), said = name, self._testimony.state
        if kind == DEFINITION and identifier.startswith(unnamed):
            return True
        if kind == in_force.IN_FORCE and not in_force.is_told_version(identifier, found, said):
            return False
        return kind in NOTED_SINCE or (self._in_fewer_words and kind in CARRIED_SINCE)

    def notes(self) -> list[str]:
        """What is no fault by itself, and asks for a look."""
        gone = self._rows.events_gone
        if not gone:
            return []
        return [
            f"of {gone} events only the records are left, the newest of {self._rows.last_gone}: by"
            " GOVERNANCE_EVENT_DAYS old ones go, and newer ones can only have been deleted by hand"
        ]


def tell(row: tuple[Any, ...], rows: CallsAndEvents, testimony: Testimony, *, later: bool = False) -> None:
    """The next record of a chain, to both of those who compare; `later`: it came after they began."""
    if row[5] not in TELLING:
        return
    record = audit_chain.record_of(row)
    if row[5] in OF_EVENTS:
        rows.told(record, later=later)
    testimony.told(record)


# What somebody has written by hand may be no list, and no address: then it is what the text says, which is
# what no record does.


def _entries(text: str) -> tuple[str, ...] | str:
    try:
        return _strings(text)
    except msgspec.DecodeError:
        return text


def _approvers(text: str) -> tuple[str, ...]:
    try:
        return tuple(step.actor for step in _steps(text))
    except msgspec.DecodeError:
        return (text,)


def _receiver(url: str) -> str:
    try:
        return receiver(url)
    except ValueError:
        return url


def _difference(name: Name, found: tuple[Any, ...] | None, said: tuple[Any, ...] | None) -> str:
    kind, identifier = name
    if said is None:
        return f"the {kind} `{identifier}` is in the database, but not in the log"
    if found is None:
        return f"the {kind} `{identifier}` is in the log, but gone from the database"
    return f"the {kind} `{identifier}` is {_shown(found)} in the database; the log says {_shown(said)}"


def _shown(values: tuple[Any, ...]) -> str:
    return ", ".join(f"`{value}`" for value in values)
