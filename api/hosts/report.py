"""What an agent host tells its hook, whichever host it is, and what a host is to us.

A file per host says how its input reads and what its answer looks like; nothing here knows one of them. The
room is the standard library alone: the hook is started anew for each tool call of an agent, so it must start
quickly, and it runs where nothing of the service is installed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, NamedTuple

MOST_OF_ID: Final = 200
"""Characters that the service allows an id or the name of a tool."""
PROBE: Final = "governance.probe"
"""A tool that no host has: a call of it is always denied, which `governance doctor` asks for."""

LONG_TEXT: Final = 20_000
MOST_NESTED: Final = 40
MOST_BITS: Final = 1_000
"""Of a number that stays one."""
MOST_DIGITS: Final = 4_000
"""Of one that is read; Python reads no more than 4,300."""
MOST_IN_LIST: Final = 1_000
"""Entries of a list that is told shorter."""
MOST_LEVELS: Final = 300
"""Which JSON may have, so that whoever reads it comes to its end."""
_STRING: Final = re.compile(rb'"[^"\\]*+(?>(?:\\.[^"\\]*+)*)"?', re.DOTALL)
"""One without an end goes on to that of all: else each quote in it would be tried as the beginning of one."""
_DEEP: Final = re.compile(rb"\x01+")
_STEPS: Final = [(each in b"[{") - (each in b"]}") for each in range(256)]
_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""INVARIANT: what a call was asked with takes no more room behind it: beside it stands what it gave."""

CALL, RESULT, PROMPT, OTHER = "call", "result", "prompt", "other"


class Unreadable(Exception):
    """The input is not what the host documents; says which member is wrong."""


class Report(NamedTuple):
    """One input of a hook. `call_id` is the host's name of the call, empty where it has none.

    `twin` names a member of the payload: the host asks a second time, in other words, of a call that it has
    asked of before, and the member has the same value in both. `parent` is the run whose agent started the
    one of this run.
    """

    kind: str
    event: str
    run_id: str = ""
    call_id: str = ""
    tool: str = ""
    payload: dict[str, Any] = {}  # noqa: RUF012 - never changed
    output: Any = None
    failed: bool = False
    text: str = ""
    model: str | None = None
    twin: str = ""
    parent: str = ""


class Entries(NamedTuple):
    """What the installer writes into a host's settings: for each event, members of its one entry beside the
    command. `timeout_unit` is how many of the host's units a second has."""

    user: str
    project: str
    decides: Mapping[str, Mapping[str, Any]]
    reports: Mapping[str, Mapping[str, Any]]
    nested: bool = True
    """The entry is a group with a list `hooks` in it."""
    command: str = "command"
    timeout: str = "timeout"
    timeout_unit: int = 1
    version: int | None = None
    http: bool = False
    home: str = ""
    """An environment variable that names the folder in which `user` lies, without its first part."""
    notes: tuple[str, ...] = ()
    trust: str = ""
    """How a person tells the host to trust a folder, where it leaves out the settings of any other."""
    off: Callable[[Mapping[str, Any]], str] | None = None
    """The switch in settings by which the host asks no hook, or nothing."""
    off_in: tuple[str, ...] = ()
    """Files of a project where it counts, too, as in the user's, beside the one in which the entry stands."""


class Host(NamedTuple):
    """An agent host. `read` turns its input into a report, `allow` and `deny` an outcome into its answer."""

    name: str
    title: str
    read: Callable[[Mapping[str, Any]], Report]
    allow: Callable[[str], dict[str, Any]]
    deny: Callable[[str, str], dict[str, Any]]
    probe: dict[str, Any]
    default_timeout: int
    """Seconds after which the host goes on without its hook, where the settings say nothing."""
    entries: Entries
    outputs: tuple[str, ...]
    """Members of its input that may be told shorter: what a call gave, what a person wrote."""
    skipped: Callable[[Path, Mapping[str, Any]], str] | None = None
    """Why the host would not run an entry of its settings, though it stands there; or nothing."""
    schedules: tuple[str, ...] = ()
    """Tools whose `prompt` comes back later as if a person had written it."""


def no_word(event: str) -> dict[str, Any]:
    """The answer that lets a call go ahead where a host needs none: its own permissions still hold, which an
    allowance of ours must not loosen."""
    return {}


def identifier(said: Mapping[str, Any], *names: str) -> str:
    """The first of the members that is a text, short enough for an id; raises Unreadable."""
    for name in names:
        value = said.get(name)
        if isinstance(value, str) and value:
            return bounded(value)
    raise Unreadable(f"`{names[0]}` is missing")


def tool_name(said: Mapping[str, Any], member: str) -> str:
    """Exactly as it is, since policies ask about it; raises Unreadable."""
    value = said.get(member)
    if not isinstance(value, str) or not value:
        raise Unreadable(f"`{member}` is missing")
    if len(value) > MOST_OF_ID:
        raise Unreadable(f"`{member}` has more than {MOST_OF_ID} characters")
    return value


def bounded(text: str) -> str:
    """An id as it is, or its digest where it is too long for one."""
    return (
        text
        if len(text) <= MOST_OF_ID
        else "sha256:" + sha256(text.encode(errors="surrogatepass")).hexdigest()
    )


def optional(said: Mapping[str, Any], name: str) -> str:
    value = said.get(name)
    return bounded(value) if isinstance(value, str) else ""


def text_of(said: Mapping[str, Any], name: str) -> str:
    value = said.get(name)
    if not isinstance(value, str):
        raise Unreadable(f"`{name}` must be a text")
    return value


def payload_of(said: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The arguments of a call: an object, maybe written as JSON in a text; what is neither stands under
    `input`. Raises Unreadable for a text that names a key twice, or has a number with more digits than are
    kept, both of which the host may read otherwise, for one that is JSON to others, and beyond what is read
    here."""
    if name not in said:
        raise Unreadable(f"`{name}` is missing")
    value = said[name]
    if isinstance(value, str):
        try:
            value = json.loads(value, object_pairs_hook=_unique, parse_float=_exact, parse_constant=_constant)
        except _Twice as twice:
            key = str(twice)[:60].encode(errors="replace").decode()
            raise Unreadable(f"`{name}` names `{key}` twice") from None
        except _Inexact as inexact:
            raise Unreadable(
                f"`{name}` has `{inexact}`, which no number is kept as; send it as text"
            ) from None
        except json.JSONDecodeError:
            pass  # a text
        except (ValueError, RecursionError):
            raise Unreadable(f"`{name}` is nested too deeply, or has a number that is too long") from None
    if value is None:
        return {}
    return value if isinstance(value, dict) else {"input": value}


def readable(value: Any, depth: int = 0) -> Any:
    """A value as every service can read it, with all that it says: policies ask about its members."""
    if isinstance(value, str):
        return _whole(value)
    if isinstance(value, float) and value - value != 0:
        return str(value)  # no number, which JSON has no word for
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        return hex(value)  # of numbers that long the service takes a few
    if not isinstance(value, dict | list):
        return value
    if depth > MOST_NESTED:
        return plain(value)
    if isinstance(value, dict):
        return {name: readable(item, depth + 1) for name, item in _members(value)}
    return [readable(item, depth + 1) for item in value]


def _members(value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each with a name that can be read. INVARIANT: none takes the place of another one whose name is alike
    then: those that can be read as they are keep theirs, the others are numbered."""
    named: set[str] = set()
    alike: dict[str, int] = {}
    for name, item in sorted(value.items(), key=lambda member: _whole(member[0]) != member[0]):
        told = whole = _whole(name)
        while told in named:
            alike[whole] = alike.get(whole, 1) + 1
            told = f"{whole} ({alike[whole]})"
        named.add(told)
        yield told, item


def _whole(text: str) -> str:
    """A text without half characters and NUL."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def shortened(value: Any, depth: int = 0) -> Any:
    """A value with its long texts and lists cut, and what is nested deeply as a text."""
    if isinstance(value, str) and len(value) > LONG_TEXT:
        return _whole(value[:LONG_TEXT]) + _cut(len(value))
    if not isinstance(value, dict | list):
        return readable(value)
    if depth > MOST_NESTED:
        return plain(value)
    if isinstance(value, dict):
        return {name: shortened(item, depth + 1) for name, item in _members(value)}
    end = [_cut(len(json.dumps(value)))] if len(value) > MOST_IN_LIST else []
    return [*(shortened(item, depth + 1) for item in value[:MOST_IN_LIST]), *end]


def _cut(characters: int) -> str:
    """What is said where something is left out, which policies may ask for."""
    return f"... ({characters} characters)"


def plain(value: Any) -> str:
    """A value as one text that every service can read, and that nobody takes for JSON."""
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except RecursionError:
        text = "nested too deeply"
    cut = _cut(len(text)) if len(text) > LONG_TEXT else ""
    return f"{_whole(text[:LONG_TEXT])}{cut} (told as text)"


def untold(value: Any) -> str:
    """That there was something, where not even its beginning is taken."""
    return _cut(len(plain(value)))


_PLAINER: Final[tuple[Callable[[Any], Any], ...]] = (readable, shortened, plain, untold)
"""In which ways an output that is not taken as it is may be told, one after the other. INVARIANT: nobody gets
around a rule by an output that cannot be read, so none leaves out more than it must."""


def otherwise(value: Any) -> list[Any]:
    """An output in these ways, as far as they are others."""
    return [made for change in _PLAINER if (made := change(value)) != value]


def told_otherwise(found: Host, raw: bytes) -> Iterator[bytes]:
    """An input with its outputs in other ways; none where it is of a call, or cannot be read in that way
    either."""
    try:
        said = decoded(shallow(raw))
        if found.read(said).kind != CALL:
            outputs = {name: said[name] for name in found.outputs if name in said}
            for change in _PLAINER:
                made = {name: change(value) for name, value in outputs.items()}
                if made != outputs or change is readable:  # it may be so since it was decoded
                    yield _encode({**said, **made}).encode(errors="replace")
    except Unreadable:
        return


def decoded(raw: bytes) -> dict[str, Any]:
    """The input of a host; raises Unreadable."""
    try:
        value = json.loads(raw, parse_int=_integer)
    except (ValueError, RecursionError):
        raise Unreadable("it is not JSON") from None
    if not isinstance(value, dict):
        raise Unreadable("it is not an object")
    if _is_deep(value):
        raise Unreadable(f"it is nested deeper than {MOST_LEVELS} levels")
    return value


def _integer(text: str) -> int | str:
    return int(text) if len(text) <= MOST_DIGITS else text


def _is_deep(value: dict[str, Any]) -> bool:
    """Whether it has more than `MOST_LEVELS`: what reads it further may go by recursion."""
    level: list[Any] = [value]
    for _ in range(MOST_LEVELS):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def shallow(raw: bytes) -> bytes:
    """JSON without what lies deeper in it than `MOST_LEVELS`."""
    blank = _STRING.sub(lambda found: b" " * len(found[0]), raw)
    levels = accumulate(map(_STEPS.__getitem__, blank))
    # A closing bracket is as deep as what it closes.
    deep = bytes(
        level > MOST_LEVELS or (level == MOST_LEVELS and each in b"]}")
        for level, each in zip(levels, blank, strict=True)
    )
    kept, found = 0, list[bytes]()
    for place in _DEEP.finditer(deep):
        cut = _cut(place.end() - place.start())
        found += raw[kept : place.start()], f'"nested too deeply{cut}"'.encode()
        kept = place.end()
    return b"".join([*found, raw[kept:]])


def parsed(text: str) -> Any:
    """A value that some hosts write as JSON in a text; the text itself, where that says more."""
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_constant)
    except (ValueError, RecursionError, _Twice, _Inexact):
        return text


class _Inexact(Exception):
    """A number that is not kept as it was written, or none."""


def _exact(text: str) -> float:
    number = float(text)
    if _digits(text) != _digits(repr(number)):
        raise _Inexact(text[:40])
    return number


def _digits(text: str) -> tuple[str, int]:
    """The digits of a number without zeros around them, and the power of ten that the last one has."""
    written, _, power = text.lower().lstrip("-").partition("e")
    whole, _, fraction = written.partition(".")
    digits = (whole + fraction).lstrip("0")
    kept = digits.rstrip("0")
    return kept, int(power or 0) - len(fraction) + len(digits) - len(kept) if kept else 0


def _constant(word: str) -> float:
    raise _Inexact(word)


class _Twice(Exception):
    """An object has the key twice."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _Twice(name)
        found[name] = value
    return found
