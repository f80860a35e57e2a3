"""What records said that are gone: kept with the certificate that let them go, which names its digest.

A body is canonical JSON, and says what its certificate added to those of before:

    {"calls": {"0": [<before>, <last>, <count>, "<sha256>"]}, "events": {"0": <last>},
     "said": [["user", "usr_1", ["a@b.example", "viewer", true]]], "words": 2}

`said` is as `Testimony` has it (null: the thing is gone, too), and `calls` of each chain the calls that the
records decided: those with numbers behind one up to another, and `digest_of_calls` of them. Behind the last
of the events every one has its record. `words` is which kinds of things it speaks of, see `WORDS`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Final

import msgspec

from api.audit.calls_and_events import Begin, beginning, digest_of_calls
from api.audit.checkpoints import Dropped
from api.audit.testimony import Name
from api.database.connection import Database
from engine.canonical_json import canonical_json

NUMBERS = "SELECT number FROM audit_carried WHERE organisation_id = ? ORDER BY number"
_BODY = "SELECT body FROM audit_carried WHERE organisation_id = ? AND number = ?"

WORDS: Final = 2
"""Those of before (1) say nothing of what is in force, how versions came and went, and of admitted tools."""

CallSpan = tuple[int, int, int, str]
"""The number before the first, the last one, how many there are, and their digest."""


class CarriedBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    calls: dict[str, CallSpan]
    events: dict[str, int]
    said: list[tuple[str, str, list[Any] | None]]
    words: int = 1


@dataclass(slots=True)
class Gone:
    """All that was carried for one organisation, certificate by certificate."""

    state: dict[Name, tuple[Any, ...]] = field(default_factory=dict)
    begin: dict[int, Begin] = field(default_factory=dict)
    """Chain to where records are again."""
    spans: list[tuple[int, CallSpan]] = field(default_factory=list)
    """Chain, and calls whose records are gone."""
    problems: list[str] = field(default_factory=list)
    in_fewer_words: bool = False
    """Some of it is of before, see `WORDS`."""

    def begin_of(self, chain: int) -> Begin:
        return self.begin.get(chain) or beginning(chain)


def body_of(
    calls: Mapping[int, CallSpan],
    events: Mapping[int, int],
    changed: Collection[Name],
    state: Mapping[Name, tuple[Any, ...]],
) -> bytes:
    said = [(*name, state.get(name)) for name in sorted(changed)]
    by_chain = [{str(chain): each for chain, each in found.items()} for found in (calls, events)]
    body = {"calls": by_chain[0], "events": by_chain[1], "said": said, "words": WORDS}
    return canonical_json(body)


def digest_of(body: bytes) -> str:
    return sha256(body).hexdigest()


def gone(
    store: Database,
    organisation_id: str,
    certificates: Sequence[tuple[int, Dropped]],
    without: Collection[str] = (),
) -> Gone:
    """What all certificates (number and what it says, in order) carry, but for kinds that nobody needs."""
    found = Gone()
    for number, dropped in certificates:
        body = _body(store, organisation_id, number, dropped.carried.get(organisation_id), found.problems)
        if body is None:
            continue
        found.in_fewer_words = found.in_fewer_words or body.words < WORDS
        for kind, identifier, values in body.said:
            if kind in without:
                continue
            if values is None:
                found.state.pop((kind, identifier), None)
            else:
                found.state[kind, identifier] = tuple(map(_tuples, values))
        for chain, span in ((int(name), span) for name, span in body.calls.items()):
            found.spans.append((chain, span))
            found.begin[chain] = replace(found.begin_of(chain), call_no=span[1])
        for chain, last in ((int(name), last) for name, last in body.events.items()):
            found.begin[chain] = replace(found.begin_of(chain), event_no=last)
    return found


def _body(
    store: Database, organisation_id: str, number: int, digest: str | None, problems: list[str]
) -> CarriedBody | None:
    if digest is None:
        return None  # nothing of this organisation went with it
    rows = store.rows(_BODY, (organisation_id, number))
    text = str(rows[0][0]).encode() if rows else b""
    if digest_of(text) == digest:
        return msgspec.json.decode(text, type=CarriedBody)
    problems.append(
        f"what dropped records said is not as checkpoint {number} signed it: it was changed or removed"
    )
    return None


def changed_calls(store: Database, organisation_id: str, found: Gone) -> Iterator[str]:
    """Of calls whose records are gone: which are not as they were when these went."""
    for chain, (before, last, count, digest) in found.spans:
        there = digest_of_calls(store, organisation_id, before, last)
        if there != (count, digest):
            yield (
                f"of the {count} calls of chain {chain} with numbers from {before + 1} to {last}, whose"
                f" records were dropped, one was changed, removed or added since (there are {there[0]})"
            )


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
