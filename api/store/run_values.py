"""The values that runs have seen, as their rows keep them: hashes, never the values themselves.

A row is what one event added, in the order of `flow`; together with the run's task they are its `SeenValues`.
A run that another one started has no task of its own: what it is told was written by an agent.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable

import msgspec

from api.database.connection import Database
from api.database.transaction import Transaction
from api.store.call_facts import FLOW, seen_by_decision
from engine.flow.memory import NO_VALUES, Addition, SeenValues

_READ = (
    "SELECT call_no, task, trusted, untrusted, words, beyond FROM run_values"
    " WHERE run_no = ? AND flow <= ? ORDER BY flow"
)
_OUTPUTS = "SELECT tool_call_id, tool_name, SUBSTR(output, 1, ?) FROM tool_calls WHERE call_no = ?"
_TEXT = re.compile(r'"(?>(?:[^"\\]|\\u[0-9a-f]{4}|\\[^u])*)', re.IGNORECASE)
"""The beginning of a text in JSON, with no part of an escape at its end."""
_GROW = "UPDATE runs SET flow = flow + 1 WHERE run_no = ?"
_APPROVED = (
    "INSERT INTO run_values (run_no, flow, call_no, task, trusted, untrusted, words, beyond)"
    " SELECT run_no, flow, ?, ?, ?, ?, ?, ? FROM runs WHERE run_no = ?"
)


def values_of(store: Database, run_no: int, flow: int, task: str | None, parent: str | None) -> SeenValues:
    """What a run had seen when its `flow` was so."""
    values = NO_VALUES.with_task(task if parent is None else None)
    if flow == 0:
        return values
    rows = store.rows(_READ, (run_no, flow))
    return values.with_additions((_addition(*hashes), str(call_no)) for call_no, *hashes in rows)


def _addition(task: bytes, trusted: bytes, untrusted: bytes, words: bytes, full: int) -> Addition:
    return Addition(_numbers(task), _numbers(trusted), _numbers(untrusted), _numbers(words), bool(full))


def output_of(store: Database, call_no: str, most: int) -> tuple[str, str, str] | None:
    """Id and tool of a call that values came from, and the first characters of its output, at most so many of
    its JSON; None when it was never reported, or is gone."""
    rows = store.rows(_OUTPUTS, (most, int(call_no))) if call_no != "0" else []
    if not rows:
        return None
    tool_call_id, tool_name, output = rows[0]
    begins = _TEXT.match(output or "")
    return tool_call_id, tool_name, output or "" if begins is None else msgspec.json.decode(f'{begins[0]}"')


def columns_of(addition: Addition) -> tuple[bytes, bytes, bytes, bytes, int]:
    """What a row has of an addition."""
    return (
        _bytes(addition.task),
        _bytes(addition.trusted),
        _bytes(addition.untrusted),
        _bytes(addition.words),
        int(addition.full),
    )


def named_by_approving(transaction: Transaction, run_no: int, call_no: int) -> Addition | None:
    """What a person names by approving a call; None where no policy asks for that. INVARIANT: the run is the
    first row that is locked, as it is of events."""
    facts, payload = seen_by_decision(transaction.store, call_no)
    if payload is None or FLOW not in facts:
        return None
    transaction.store.change(_GROW, (run_no,))
    transaction.runs_changed = True
    return NO_VALUES.approved(payload)


def vouch(transaction: Transaction, run_no: int, addition: Addition) -> None:
    """What a person has approved counts as asked for from here on."""
    transaction.store.change(_APPROVED, (0, *columns_of(addition), run_no))


def _bytes(numbers: Iterable[int]) -> bytes:
    return array("q", numbers).tobytes()


def _numbers(stored: bytes) -> tuple[int, ...]:
    numbers = array("q")
    numbers.frombytes(bytes(stored))
    return tuple(numbers)
