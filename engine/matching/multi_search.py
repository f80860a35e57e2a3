"""Which of many literals, or of many patterns, occur in a text: asked of all of them at once.

Two small engines behind one shape (`find` answers the buckets of what occurs in the text):

* `LiteralSearch`: literals in Aho-Corasick automatons over casefolded text.
* `PatternSearch`: patterns that require no literal (`[0-9]{16}`), together in one RE2 set per 128.

Both may answer too many buckets, never too few. Nothing here knows what a bucket is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import ahocorasick_rs
import re2

Bucket = TypeVar("Bucket")

FEW: Final = 16
"""Up to here, asking for each literal by itself is faster, and takes no memory."""

SHARD: Final = 4096
"""Literals of one automaton. Building one holds the interpreter lock, here for some 6 ms."""

QUICK: Final = 2048
"""Up to so many literals, the automaton is the kind that is twice as fast and takes 2 KB for each."""

SHORT: Final = 2
"""Literals up to this length can occur everywhere in a text, so while they are few they stay out of the
automatons, which list every occurrence."""

PIECE: Final = 1 << 16
"""Longer texts are searched in pieces, which bounds the memory for what is found."""

SET: Final = 128
SET_MEMORY: Final = 32 << 20
SET_LONGEST: Final = 1 << 13
"""Bytes of text that are given to a set; a set, unlike a single pattern, cannot escape to a bounded search
when its automaton grows too large, so longer texts collect all its buckets."""


_search_set: Final[Any] = re2.Set.SearchSet


class LiteralSearch(Generic[Bucket]):
    """Literal (casefolded) -> bucket."""

    __slots__ = ("_buckets", "_overlap", "_searches", "_single")

    def __init__(self, buckets: Mapping[str, Bucket]) -> None:
        self._buckets = dict(buckets)
        self._overlap = max(map(len, buckets)) - 1
        together = sorted(buckets)
        self._single = [literal for literal in together if len(literal) <= SHORT or len(together) <= FEW]
        if len(self._single) > FEW:
            self._single = []
        if self._single:
            together = [literal for literal in together if literal not in self._single]
        kind = ahocorasick_rs.Implementation.DFA if len(together) <= QUICK else None
        self._searches: tuple[Any, ...] = tuple(
            ahocorasick_rs.AhoCorasick(
                together[at : at + SHARD], implementation=kind, store_patterns=True
            ).find_matches_as_strings
            for at in range(0, len(together), SHARD)
        )

    def find(self, folded: str) -> Iterable[Bucket]:
        """Buckets of all literals that occur in a casefolded text without lone surrogates."""
        hits: list[str] = []
        for literal in self._single:
            if literal in folded:
                hits.append(literal)
        if len(folded) > PIECE:
            hits += self._in_pieces(folded)
        else:
            for search in self._searches:
                hits += search(folded, True)
        return map(self._buckets.__getitem__, set(hits)) if hits else ()

    def _in_pieces(self, folded: str) -> set[str]:
        found: set[str] = set()
        for start in range(0, len(folded), PIECE):
            piece = folded[start : start + PIECE + self._overlap]
            for search in self._searches:
                found.update(search(piece, True))
        return found


class PatternSearch(Generic[Bucket]):
    """Pattern -> bucket, for patterns that RE2 accepts."""

    __slots__ = ("_all", "_sets")

    def __init__(self, buckets: Mapping[str, Bucket]) -> None:
        patterns, behind = list(buckets), list(buckets.values())
        self._all = frozenset(behind)
        self._sets = tuple(
            (_matching(patterns[at : at + SET]), behind[at : at + SET]) for at in range(0, len(behind), SET)
        )

    def find(self, texts: Sequence[bytes]) -> Iterable[Bucket]:
        """Buckets of all patterns that match one of the texts (UTF-8), each by itself."""
        if len(texts) == 1 == len(self._sets) and len(texts[0]) <= SET_LONGEST:
            ((matching, buckets),) = self._sets
            found = matching(texts[0])
            if not found or 0 not in found:
                return self._all
            return [buckets[member - 1] for member in found if member] if len(found) > 1 else ()
        hits: set[Bucket] = set()
        for text in texts if len(texts) == 1 else set(texts):
            if len(text) > SET_LONGEST or len(hits) == len(self._all):
                return self._all
            for matching, buckets in self._sets:
                found = matching(text)
                if found is None or 0 not in found:
                    hits.update(buckets)  # without its first member the set ran out of memory
                elif len(found) > 1:
                    hits.update([buckets[member - 1] for member in found if member])
        return hits


def _matching(patterns: Sequence[str]) -> Callable[[bytes], list[int] | None]:
    """The search of an RE2 set behind a first member that always matches, at the end. Answers None, or
    without that member, where the set does not fit into its memory."""
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = SET_MEMORY
    made: Any = _search_set(options)
    made.Add(r"\z")
    try:
        for pattern in patterns:
            made.Add(pattern)
        made.Compile()
    except re2.error:
        return lambda text: None
    matching: Callable[[bytes], list[int] | None] = made.Match
    return matching
