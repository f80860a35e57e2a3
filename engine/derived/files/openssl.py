"""Which files `openssl` reads and writes: a key that signs, decrypts or serves is used and not shown.

Knows nothing of other programs.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from engine.derived.commands.commands import Command
from engine.derived.files.operands import each_of, marked
from engine.shell.files.file_calls import Uses
from engine.shell.options import Given, given, operands_of, values_of

_OF_KEYS: Final = frozenset(["rsa", "ec", "dsa", "pkey"])
"""Subcommands that print a key, unless they are told to print its public part, or nothing."""


def openssl(command: Command) -> Uses:
    items = list(given("openssl", command.words))
    verb = (operands_of(items) or [""])[0]
    told = {each.name for each in items}
    shows = not (verb in _OF_KEYS and "text" not in told and not told.isdisjoint(("pubout", "noout")))
    if verb == "pkcs12":
        shows = "nokeys" not in told
        yield from each_of("reads", values_of(items, "inkey"))  # which it puts into the new file
    yield from marked([each for each in items if shows or each.name != "in"])
    if verb in ("dgst", "base64"):
        signed = [each for before, each in pairwise([Given("", ""), *items]) if before.name != "sign"]
        yield from each_of("reads", operands_of(signed)[1:])
