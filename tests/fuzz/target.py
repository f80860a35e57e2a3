"""What is fuzzed: a check of bytes, inputs to begin with, and words that mutations put in."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.harness.places import TESTS

FOUND: Final = TESTS / "fuzz" / "found"
LONGEST: Final = 4_096
"""Bytes of an input."""
MOST_SECONDS: Final = 5.0
"""Of a core, for any input of that length: far above what the slowest takes, far below what grows
exponentially, or quadratically with a bad constant."""


class Slow(AssertionError):
    """An input took longer than its size allows."""


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    check: Callable[[bytes], None]
    seeds: Callable[[], Sequence[bytes]]
    words: tuple[bytes, ...] = ()
    rounds: int = 400
    """Inputs of the short form, so that all targets take a few seconds each."""

    def try_out(self, data: bytes, most_seconds: float = MOST_SECONDS) -> None:
        begun = time.process_time()
        self.check(data)
        spent = time.process_time() - begun
        if spent > most_seconds:
            raise Slow(f"{len(data)} bytes took {spent:.1f} s of a core")

    def found(self) -> list[Path]:
        """The inputs that once broke it."""
        return sorted((FOUND / self.name).glob("*"))


def split_words(text: str) -> tuple[bytes, ...]:
    return tuple(word.encode("utf-8", "surrogatepass") for word in text.split())


def text_of(data: bytes) -> str:
    """Any bytes as text; what is not UTF-8 becomes lone surrogates, which readers must bear as well."""
    return data.decode("utf-8", "surrogateescape")
