"""Inputs made of others by chance that is seeded: pieces cut, doubled, swapped, spliced, and words put in."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from tests.fuzz.target import LONGEST, Target

ODD = (
    b"\x00",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xe2\x80\xae",
    b"\xef\xbb\xbf",
    b"\xf0\x9f\x98\x80",
    b"\r\n",
    b"9" * 40,
)


def mutated(data: bytes, chance: random.Random, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        at = chance.randint(0, len(data))
        end = min(len(data), at + chance.choice((1, 1, 2, 4, 16, 64)))
        kind = chance.randrange(7)
        if kind == 0:
            data = data[:at] + data[end:]
        elif kind == 1:
            data = data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
        elif kind == 2:
            data = data[:at] + chance.choice(ODD) + data[at:]
        elif kind == 3:
            data = data[:end] + data[at:end] * chance.choice((1, 2, 50)) + data[end:]
        elif kind == 4 and words:
            data = data[:at] + chance.choice(words) + data[chance.choice((at, end)) :]
        elif kind == 5:
            other = chance.choice(seeds)
            start = chance.randint(0, len(other))
            data = data[:at] + other[start : start + chance.choice((4, 16, 64, 1_000))] + data[end:]
        else:
            data = data[:at] + data[at:end][::-1] + data[end:]
    return data[:LONGEST]


def inputs(target: Target, seed: int) -> Iterator[bytes]:
    """Seeds now and then as they are, and mutations of them and of each other, without end."""
    chance = random.Random(f"{target.name} {seed}")
    seeds = [each[:LONGEST] for each in target.seeds()]
    pool = list(seeds)
    while True:
        data = chance.choice(pool)
        if chance.random() > 0.1:
            data = mutated(data, chance, seeds, target.words)
        yield data
        if chance.random() < 0.2:
            pool[chance.randrange(len(pool))] = chance.choice((data, chance.choice(seeds)))
