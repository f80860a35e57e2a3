"""Which of many literals, or of many patterns, occur in a text: asked of all of them at once.

Two small engines behind one shape (`find` answers the buckets of what occurs in the text):

* `LiteralSearch`: literals in Aho-Corasick automatons over casefolded text.
* `PatternSearch`: patterns that require no literal (`[0-9]{16}`), together in one RE2 set per 128.

Both may answer too many buckets, never too few. Nothing here knows what a bucket is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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


_COMMON: Final = " etaoinsrhldcumfpgwybvk.-/,_:jxqz0123456789\"'()"
"""Characters of texts, the most common first; all others are rarer."""

_RARITY: Final[Mapping[str, int]] = {character: rank for rank, character in enumerate(_COMMON)}

TAIL: Final = 5
"""Characters that are at least looked for of a literal."""

ALIKE: Final = 4
"""Literals that may share a tail; more of them are looked for as they are."""


def _rarest_tail(literal: str) -> str:
    """The end of a literal from where it begins with the three characters that texts have least often.

    An automaton that looks for these alone goes through most of a text in its first few states, which stay
    in the processor's cache; a literal that begins with a common word would lead it astray at every such
    word. What it finds is more than one word where the literal is, since single words are common.
    """
    within = max(literal.rstrip(" ").rfind(" "), 0) or len(literal)
    ranks = [_RARITY.get(character, len(_RARITY)) for character in literal]
    rarity = [sum(three) for three in zip(ranks, ranks[1:], ranks[2:], strict=False)]
    rarity = rarity[: max(1, min(within, len(literal) - TAIL + 1))]
    return literal[rarity.index(max(rarity)) :] if rarity else literal


class LiteralSearch(Generic[Bucket]):
    """Literal (casefolded) -> bucket.

    Its automatons look for the rarest tails of literals; where one is found, the literals that end in it are
    looked for in the text one by one.
    """

    __slots__ = ("_behind", "_buckets", "_overlap", "_searches", "_single")

    def __init__(self, buckets: Mapping[str, Bucket]) -> None:
        self._buckets = dict(buckets)
        together = sorted(buckets)
        self._single = [literal for literal in together if len(literal) <= SHORT or len(together) <= FEW]
        if len(self._single) > FEW:
            self._single = []
        if self._single:
            together = [literal for literal in together if literal not in self._single]
        self._behind = _by_tail(together)
        tails = sorted(self._behind)
        self._overlap = max(map(len, tails), default=1) - 1
        kind = ahocorasick_rs.Implementation.DFA if len(tails) <= QUICK else None
        self._searches: tuple[Any, ...] = tuple(
            ahocorasick_rs.AhoCorasick(
                tails[at : at + SHARD], implementation=kind, store_patterns=True
            ).find_matches_as_strings
            for at in range(0, len(tails), SHARD)
        )

    def find(self, folded: str) -> Iterable[Bucket]:
        """Buckets of all literals that occur in a casefolded text without lone surrogates."""
        hits: list[str] = []
        for literal in self._single:
            if literal in folded:
                hits.append(literal)
        tails: Collection[str] = ()
        if len(folded) > PIECE:
            tails = self._in_pieces(folded)
        else:
            for search in self._searches:
                if found := search(folded, True):
                    tails = {*tails, *found}
        for tail in tails:
            for literal in self._behind[tail]:
                if literal in folded:
                    hits.append(literal)
        return [self._buckets[literal] for literal in hits] if hits else ()

    def _in_pieces(self, folded: str) -> set[str]:
        found: set[str] = set()
        for start in range(0, len(folded), PIECE):
            piece = folded[start : start + PIECE + self._overlap]
            for search in self._searches:
                found.update(search(piece, True))
        return found


def found_inside(literals: Iterable[str]) -> Mapping[str, int]:
    """How many others each literal occurs in; those that occur in none are left out. All are searched as few
    long texts, which takes a fraction of the time of many short ones."""
    together = sorted(literals)
    texts = list(_joined(together))
    counted: Counter[str] = Counter()
    for at in range(0, len(together), SHARD):
        shard = together[at : at + SHARD]
        search = ahocorasick_rs.AhoCorasick(shard, store_patterns=False).find_matches_as_indexes
        for text, ends in texts:
            found = {(which, bisect_right(ends, start)) for which, start, _ in search(text, True)}
            counted.update([shard[which] for which, _ in found])
    return {literal: times - 1 for literal, times in counted.items() if times > 1}


def _joined(literals: Iterable[str]) -> Iterator[tuple[str, list[int]]]:
    """Texts that the literals make, and where each of them ends there."""
    piece: list[str] = []
    ends: list[int] = []
    for literal in literals:
        piece.append(literal)
        ends.append(len(literal) + 1 + (ends[-1] if ends else 0))
        if ends[-1] > PIECE:
            yield "\0".join(piece), ends
            piece, ends = [], []
    yield "\0".join(piece), ends


def _by_tail(literals: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """What is looked for -> the literals that end in it, of which it is the rarest tail."""
    alike: defaultdict[str, list[str]] = defaultdict(list)
    for literal in literals:
        alike[_rarest_tail(literal)].append(literal)
    found: defaultdict[str, list[str]] = defaultdict(list)
    for tail, ending in alike.items():
        if len(ending) <= ALIKE:
            found[tail] += ending
        else:
            for literal in ending:
                found[literal].append(literal)
    return {tail: tuple(ending) for tail, ending in found.items()}


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
