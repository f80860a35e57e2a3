"""The audit log as it is read: the chains of an organisation merged by time, searched, paged, exported.

Within a chain records are in the order of `sequence`; between chains by time. A position in the log is one in
each of its chains, so that a record that is committed late is never skipped.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from heapq import merge
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from peewee import SQL, fn

from api import clock
from api.database import audit_chain
from api.database.audit_chain import FIRST_CHAIN, MOST_READ
from api.database.models import Audit, ChainTip
from api.database.sqlite import stretches
from api.database.table import is_sqlite

TIME_OF_ID = len("aud_") + 12
"""Characters of an `auditId` up to the end of its time, in milliseconds."""
NEAR_SECONDS = 60.0
"""How far the time of an `auditId` and that of its record may be apart."""
APART = 2_000
"""Milliseconds; by more no id is behind one of a later record of its stretch."""
LEAST_READ = 50
"""Records of one chain that are read together."""

Positions = dict[int, int]
"""Chain to the `sequence` behind (or, newest first, before) which one goes on."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which records of one organisation; None: all. `since` is included, `until` is not (ISO 8601 UTC)."""

    organisation_id: str
    since: str | None = None
    until: str | None = None
    agent_id: str | None = None
    user_id: str | None = None
    run_id: str | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    type: str | None = None
    decision: str | None = None
    ends: Mapping[int, int] | None = None
    """Chain to its newest `sequence` to include; None: as they are."""
    begins: Mapping[int, int] | None = None
    """Chain to its oldest `sequence` when the ends were noted."""

    def where(self) -> Any:
        chosen = Audit.organisation_id == self.organisation_id
        if self.since is not None:
            chosen &= Audit.at >= self.since
        if self.until is not None:
            chosen &= Audit.at < self.until
        for column, value in (
            (Audit.agent_id, self.agent_id),
            (Audit.user_id, self.user_id),
            (Audit.run_id, self.run_id),
            (_member("toolCallId"), self.tool_call_id),
            (_member("toolName"), self.tool_name),
            (Audit.type, self.type),
            (Audit.decision, self.decision),
        ):
            if value is not None:
                chosen &= column == value
        return chosen


_Where = tuple[str, tuple[Any, ...]]
"""More of a condition as SQL, and its parameters."""


class DroppedMeanwhile(Exception):
    """Records that were to be read next have been dropped; what was read is no whole."""


class _Row(NamedTuple):
    at: str
    chain: int
    sequence: int
    record: str
    hash: str


def list_records(
    chosen: Filter, limit: int, after: Positions | None, ascending: bool
) -> tuple[list[dict[str, Any]], int, Positions | None]:
    """One page in order of time, how many there are in all, and where the next page begins."""
    total = Audit.select().where(chosen.where()).count()
    rows, following = _page(_ending_now(chosen), limit, after, ascending)
    return [{**msgspec.json.decode(row.record), "hash": row.hash} for row in rows], int(total), following


def export_lines(
    chosen: Filter, limit: int, after: Positions | None, ascending: bool
) -> tuple[bytes, Positions | None]:
    """The next lines of an export, and where to go on (None: that was all).

    Each line is the canonical record, byte for byte as hashed, with `hash` put at its end, so that anybody
    can check the chains without the service. Raises DroppedMeanwhile.
    """
    rows, following = _page(_ending_now(chosen), limit, after, ascending)
    if ascending:
        _refuse_gap(chosen, after or {})
    lines = "".join(f'{row.record[:-1]},"hash":"{row.hash}"}}\n' for row in rows)
    return lines.encode(), following


def up_to_now(chosen: Filter) -> Filter:
    """The same records without those that are still to come, for an export of many pages."""
    chosen = _ending_now(chosen)
    assert chosen.ends is not None
    begins = {chain: audit_chain.first(chosen.organisation_id, chain) for chain in chosen.ends}
    return replace(chosen, begins=begins)


def _refuse_gap(chosen: Filter, after: Positions) -> None:
    """Nothing was dropped behind these positions since the export began."""
    for chain, begin in (chosen.begins or {}).items():
        first = audit_chain.first(chosen.organisation_id, chain)
        if first > begin and first > after.get(chain, 0) + 1:
            raise DroppedMeanwhile("records were dropped by retention meanwhile; export again")


def _ending_now(chosen: Filter) -> Filter:
    if chosen.ends is not None:
        return chosen
    if is_sqlite():
        own = (Audit.organisation_id == chosen.organisation_id) & (Audit.chain == FIRST_CHAIN)
        return replace(
            chosen, ends={FIRST_CHAIN: Audit.select(fn.MAX(Audit.sequence)).where(own).scalar() or 0}
        )
    tips = ChainTip.select().where(ChainTip.organisation_id == chosen.organisation_id)
    return replace(chosen, ends={tip.chain: tip.sequence for tip in tips})


def _page(
    chosen: Filter, limit: int, after: Positions | None, ascending: bool
) -> tuple[list[_Row], Positions | None]:
    """At most `limit` rows, and the positions behind them, unless those were all."""
    assert chosen.ends is not None
    positions = {chain: 0 if ascending else end + 1 for chain, end in chosen.ends.items()}
    if after is not None:
        # A chain that has come since is newer than all before: oldest first it follows, else it is left out.
        positions = {chain: after.get(chain, 0) for chain in positions}
    together = limit + 1 if len(positions) < 2 else limit // len(positions) + LEAST_READ
    chains = [_chain(chosen, chain, positions[chain], together, ascending) for chain in sorted(positions)]
    merged = merge(*chains, key=lambda row: (row.at, row.chain), reverse=not ascending)
    rows = list(islice(merged, limit + 1))
    more = len(rows) > limit
    rows = rows[:limit]
    for row in rows:
        positions[row.chain] = row.sequence
    return rows, positions if more else None


def _chain(chosen: Filter, chain: int, position: int, together: int, ascending: bool) -> Iterator[_Row]:
    """The chosen rows of one chain behind a position, some at a time."""
    assert chosen.ends is not None
    end = chosen.ends[chain]
    where = chosen.where() & (Audit.chain == chain)
    columns = (Audit.at, Audit.chain, Audit.sequence, Audit.record, Audit.hash)
    while True:
        if ascending:
            query = Audit.select(*columns).where(
                where & (Audit.sequence > position) & (Audit.sequence <= end)
            )
            query = query.order_by(Audit.sequence)
        else:
            query = Audit.select(*columns).where(where & (Audit.sequence < position))
            query = query.order_by(Audit.sequence.desc())
        found: Any = query.limit(together).tuples()
        rows = [_Row(*row) for row in found]
        yield from rows
        if len(rows) < together:
            return
        position = rows[-1].sequence


# One record --------------------------------------------------------------------------------------------


def find_record(organisation_id: str, audit_id: str) -> dict[str, Any] | None:
    """The record with this id, in the shape of `list_records`; in the whole log, when it is not where ids
    of its time are."""
    found = find_near(organisation_id, audit_id)
    if found is None:
        return next(_found(" AND audit_id = ? LIMIT 1", organisation_id, audit_id), None)
    return found


def find_near(organisation_id: str, audit_id: str, at: str | None = None) -> dict[str, Any] | None:
    """The record with this id, written `at` this moment if that is known. Ids have no index, which every
    event would pay for; they begin with the time, so a record is looked for where the log reaches it."""
    if is_sqlite():
        where, begin = " AND audit_id = ? LIMIT 1", audit_id[:TIME_OF_ID]
        if at is not None:  # an id drawn just before the clock was set back tells nothing of its place
            found = _along(organisation_id, "at", _second(at), (at, at), where, audit_id)
        else:
            bounds = begin, *_ids_near(audit_id)
            found = _along(organisation_id, "audit_id", bounds, _near(audit_id), where, audit_id)
    else:
        where, near = _around(audit_id, at)
        found = _found(f"{where} AND audit_id = ? LIMIT 1", organisation_id, *near, audit_id)
    return next(found, None)


def at_time(organisation_id: str, at: str, type: str) -> Iterator[dict[str, Any]]:
    """The records of this type that were written at this moment. One may come twice."""
    where = " AND at = ? AND type = ?"
    if is_sqlite():
        return _along(organisation_id, "at", _second(at), (at, at), where, at, type)
    return _found(where, organisation_id, at, type)


def at_times(organisation_id: str, moments: Collection[str]) -> Iterator[dict[str, Any]]:
    """The records that were written at these moments, by one query."""
    if not is_sqlite():
        return _records(_own(organisation_id).where(Audit.at.in_(moments)))
    own = (Audit.organisation_id == organisation_id) & (Audit.chain == FIRST_CHAIN)
    newest = Audit.select(fn.MAX(Audit.sequence)).where(own).scalar() or 0

    @cache  # the searches begin in the same places
    def at(sequence: int) -> str:
        return str(Audit.select(Audit.at).where(own & (Audit.sequence == sequence)).scalar() or "")

    found: set[int] = set()
    for moment in moments:
        first = 1 + bisect_left(range(1, newest + 1), moment, key=at)
        last = bisect_right(range(1, newest + 1), moment, key=at)
        found.update(range(first, min(last, first + MOST_READ) + 1))
    numbers = msgspec.json.encode(sorted(found)).decode()
    listed = Audit.sequence.in_(SQL("(SELECT value FROM json_each(?))", [numbers]))
    return _records(_own(organisation_id).where(Audit.chain == FIRST_CHAIN, listed))


def _along(
    organisation_id: str,
    column: str,
    bounds: tuple[str, str, str],
    times: tuple[str, str],
    where: str,
    *of: Any,
) -> Iterator[dict[str, Any]]:
    """Records found from the first on where the column has reached the first of the bounds, `MOST_READ` of
    them. It grows along the one chain of SQLite, unless the clock was set back: then between the other two
    bounds in each stretch that has such times, where it goes back by less than these are apart from it."""
    begin, low, high = bounds
    of_chain = f"FROM audit WHERE organisation_id = ? AND chain = {FIRST_CHAIN}"
    statement = f"SELECT {column} {of_chain} AND sequence = ?"
    near = f" AND chain = {FIRST_CHAIN} AND sequence BETWEEN ? AND ?"

    def first(start: int, end: int, bound: str) -> int:
        def reached(sequence: int) -> bool:
            return any(str(found) >= bound for (found,) in rows(statement, organisation_id, sequence))

        return start + bisect_left(range(start, end + 1), True, key=reached)

    ((newest,),) = rows(f"SELECT MAX(sequence) {of_chain}", organisation_id)
    found = first(1, newest or 0, begin)
    yield from _found(near + where, organisation_id, found, found + MOST_READ, *of)
    for stretch in stretches.around(organisation_id, *times):
        found = first(stretch.first, stretch.last, low)
        yield from _found(near + where, organisation_id, found, first(found, stretch.last, high), *of)


def _second(at: str) -> tuple[str, str, str]:
    """Bounds of a moment, see `_along`: within a stretch times go back by less than a second."""
    second = at[: stretches.SECOND]
    return at, second, f"{second}~"


def _near(audit_id: str) -> tuple[str, str]:
    """From when to when a record of this id may be."""
    try:
        moment = int(audit_id[4:TIME_OF_ID], 16) / 1000
        return clock.iso(max(0.0, moment - NEAR_SECONDS)), clock.iso(moment + NEAR_SECONDS)
    except (ValueError, OverflowError, OSError):
        return "", ""


def _ids_near(audit_id: str) -> tuple[str, str]:
    """Between which ids those of about this one's time are."""
    try:
        moment = int(audit_id[4:TIME_OF_ID], 16)
    except ValueError:
        return audit_id, audit_id
    return f"aud_{max(0, moment - APART):012x}", f"aud_{moment + APART:012x}"


def _around(audit_id: str, at: str | None) -> _Where:
    """Records of this moment, or of about the time of an id; PostgreSQL has an index of times."""
    return (" AND at = ?", (at,)) if at is not None else (" AND at BETWEEN ? AND ?", _near(audit_id))


def _found(where: str, *parameters: Any) -> Iterator[dict[str, Any]]:
    """Records of an organisation, by more of a condition."""
    for text, digest in rows(f"SELECT record, hash FROM audit WHERE organisation_id = ?{where}", *parameters):
        yield {**msgspec.json.decode(text), "hash": digest}


def rows(statement: str, *parameters: Any) -> Iterator[tuple[Any, ...]]:
    """Of any table, as SQL, since peewee takes ten times as long to write it, and agents ask for known calls
    as often as they like, each time within the commit of others."""
    database: Any = Audit._meta.database
    return iter(database.execute_sql(statement.replace("?", database.param), parameters))


def _own(organisation_id: str) -> Any:
    return Audit.select(Audit.record, Audit.hash).where(Audit.organisation_id == organisation_id)


def _records(query: Any) -> Iterator[dict[str, Any]]:
    for text, digest in query.tuples():
        yield {**msgspec.json.decode(text), "hash": digest}


def _member(name: str) -> Any:
    """A member of the record that has no column of its own."""
    if is_sqlite():
        return fn.json_extract(Audit.record, f"$.{name}")
    return fn.json_extract_path_text(Audit.record.cast("json"), name)
