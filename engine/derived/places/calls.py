"""Where a call goes: from URLs, arguments whose keys name a host, and commands that connect to one.

A URL within the text of a mail or of a file is something to be read there, no place that the call goes to.
Where readers of a URL differ about its host, both hosts count. Knows nothing of policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from engine.derived.commands.commands import Command
from engine.derived.payload import Leaf
from engine.derived.places.connections import connect, only_quotes
from engine.derived.places.places import Places
from engine.fields.words import word_set
from engine.model import ToolDeclaration

_CARRIERS: Final = word_set("mail chat calendar files memory sql tickets crm contacts")
"""Kinds of tools that carry text to people or stores."""

_HOST_WORDS: Final = word_set(
    "host hosts hostname hostnames domain domains server servers endpoint endpoints url urls uri uris "
    "href link site website origin ip address addresses webhook proxy remote registry base baseurl"
)
_NOT_HOSTS: Final = word_set("email mail street postal billing shipping id name path file mac database")


def places_of(leaves: Sequence[Leaf], commands: Iterable[Command], tool: ToolDeclaration) -> Places:
    """Where a call goes."""
    places = Places()
    carries = tool.kind in _CARRIERS
    commands = list(commands)
    quotes = tool.kind == "shell" and any(only_quotes(each) for each in commands)
    for leaf in leaves:
        text = leaf.value
        if places.hosts.partial or places.urls.partial:
            break
        if not isinstance(text, str):
            continue
        words = leaf.key.split()
        named = not _HOST_WORDS.isdisjoint(words) and _NOT_HOSTS.isdisjoint(words)
        if named:
            places.named(text)
        elif not carries and not quotes:
            places.within(text)
    for command in commands:
        connect(command, places)
    if commands:
        for leaf in leaves:
            if isinstance(leaf.value, str):
                places.proxies(leaf.value)
    return places
