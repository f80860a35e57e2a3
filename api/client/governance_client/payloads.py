"""Arguments and outputs as JSON: exactly where a policy decides on it, as well as possible where it is kept.

What has no form in JSON is written plainly: dates and paths as text, dataclasses and models by their fields,
anything else by its own text, as addresses of the net have one, or by the name of its type and never by an
address in memory, so that the same call is the same text in every process.
"""

from __future__ import annotations

import base64
import dataclasses
import inspect
import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from datetime import date, time
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, Final
from uuid import UUID

MOST_OUTPUT: Final = 200_000
"""Characters of an output's JSON that are reported."""
MOST_PLAIN: Final = 20_000
"""The same of one that the service could not read, and of each text in it for what is nested deeply."""
MOST_PARTS: Final = 45_000
"""Commas and opening brackets in an output that is told with its members; the service takes 100,000 keys and
values."""
MOST_BITS: Final = 1_000
"""Of a number that stays one."""
MOST_NESTED: Final = 40
_AS_TEXT: Final = (date, time, Decimal, UUID, PurePath)

Bind = Callable[[tuple[Any, ...], Mapping[str, Any]], dict[str, Any]]


def arguments_json(arguments: Mapping[str, Any]) -> str:
    """The payload that is decided on. Raises ValueError for what cannot be told exactly."""
    text = _json(arguments)
    if not text.startswith("{"):
        raise ValueError("the arguments of a tool are an object of names and values")
    text.encode()  # a lone surrogate is no character, and raises a UnicodeError, which is a ValueError
    return text


def output_json(output: Any) -> str:
    """What is kept of an output; one that is too long is cut, and says so. Never raises."""
    try:
        text = _json(output)
        text.encode()
    except Exception:  # an object's own methods may raise anything
        text = _encode(readable(output))
    return text if len(text) <= MOST_OUTPUT else _cut(text, MOST_OUTPUT)


def _cut(text: str, most: int) -> str:
    """The beginning of an output's JSON, as that of another one that says so."""
    return _encode({"cut": True, "characters": len(text), "text": whole(text[:most])})


def untold(text: str) -> str:
    """The JSON of an output of which not even the beginning is taken: that there was one."""
    return _cut(text, 0)


def plainer(text: str) -> str:
    """The JSON of an output as every service can read it: with its members, about which policies ask; of one
    of very many values, or of very many levels, the beginning."""
    try:
        if sum(map(text.count, ",[{")) <= MOST_PARTS:
            return _encode(readable(json.loads(text, object_pairs_hook=members)))
    except (ValueError, RecursionError):
        pass
    return _cut(text, MOST_PLAIN)


def readable(value: Any, depth: int = 0) -> Any:
    """A value in terms of JSON, as every service can read it: what cannot be told exactly is a text, and says
    nothing of what stands beside it. Never raises."""
    if isinstance(value, str):
        return whole(value)
    try:
        value = _opened(value)
        if not isinstance(value, (Mapping, list, tuple)):
            told = hex(value) if isinstance(value, int) and value.bit_length() > MOST_BITS else plain(value)
            return readable(told, depth + 1) if isinstance(told, (str, dict, list)) else told
        if depth > MOST_NESTED:
            return short(_json(value))
        if not isinstance(value, Mapping):
            return [readable(each, depth + 1) for each in value]
        named = [(key if isinstance(key, str) else output_json(key), key) for key in value]
        named.sort(key=lambda each: whole(each[0]) != each[0])
        found = members((whole(name), key) for name, key in named)
        return {name: readable(value[key], depth + 1) for name, key in found.items()}
    except Exception as error:  # an object's own methods may raise anything
        return {"unreadable": type(error).__name__}


def members(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """An object of these. INVARIANT: none takes the place of another one of its name: it is numbered."""
    found: dict[str, Any] = {}
    alike: dict[str, int] = {}
    for name, value in pairs:
        told = name
        while told in found:
            alike[name] = alike.get(name, 1) + 1
            told = f"{name} ({alike[name]})"
        found[told] = value
    return found


def whole(text: str) -> str:
    """A text without half characters and NUL."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def short(text: str) -> str:
    """A text as every service can read it, which says where it is cut."""
    begins = whole(text[:MOST_PLAIN])
    return begins if len(text) <= MOST_PLAIN else f"{begins}... ({len(text)} characters)"


def plainly(said: Mapping[str, Any]) -> dict[str, Any]:
    """What the start of a run or an outcome says, should the service be unable to read it: of which run or
    call it is is told all the same, since the rest may be the words of a model or of a page."""
    found = {name: short(each) if isinstance(each, str) else each for name, each in said.items()}
    if (context := said.get("agentContext")) is not None:
        found["agentContext"] = {"text": short(output_json(context))}
    if "outputPayload" in said:
        found["outputPayload"] = json.loads(plainer(output_json(said["outputPayload"])))
    return found


def _json(value: Any) -> str:
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError):
        return _encode(plain(value))


_encode: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=lambda value: plain(value)
).encode


def plain(value: Any, depth: int = 0) -> Any:
    """The value in terms of JSON."""
    if value is None or isinstance(value, (bool, str, int)):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth > MOST_NESTED:
        raise ValueError(f"a value is nested deeper than {MOST_NESTED}")
    if isinstance(value, Enum):
        return plain(value.value, depth + 1)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _text_of(bytes(value))
    if isinstance(value, _AS_TEXT):
        return value.isoformat() if isinstance(value, (date, time)) else str(value)
    value = _opened(value)
    if isinstance(value, Mapping):
        found = {_key(key): plain(each, depth + 1) for key, each in value.items()}
        if len(found) != len(value):
            raise ValueError("two keys of an object are the same in JSON")
        return found
    if isinstance(value, (set, frozenset)):
        return sorted((plain(each, depth + 1) for each in value), key=repr)
    if isinstance(value, Collection):
        return [plain(each, depth + 1) for each in value]
    return _own_text(value) or f"<{type(value).__module__}.{type(value).__qualname__}>"


def _own_text(value: Any) -> str | None:
    """What a value says of itself, unless that is where it stands in memory."""
    with suppress(Exception):  # an object's own methods may raise anything
        text = str(value)
        return None if text.startswith("<") or " at 0x" in text else text
    return None


def _opened(value: Any) -> Any:
    """A dataclass or model by its fields."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    dump = getattr(type(value), "model_dump", None)
    return dump(value) if callable(dump) else value


def _key(key: Any) -> str:
    told = plain(key, MOST_NESTED)
    return told if isinstance(told, str) else json.dumps(told)


def _text_of(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(value).decode()


def binder(function: Callable[..., Any]) -> Bind:
    """How a call of this function becomes named arguments, defaults included. `self` and `cls` are none.

    Two arguments of one name, which a function has whose parameters are positional-only, raise a TypeError:
    what is asked about would be one of them alone.
    """
    signature = inspect.signature(function)
    names = list(signature.parameters)
    bound_to = names[0] if names and names[0] in ("self", "cls") else None
    keywords = next(
        (each.name for each in signature.parameters.values() if each.kind is each.VAR_KEYWORD), None
    )

    def bind(positional: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        bound = signature.bind(*positional, **named)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        if bound_to is not None:
            del arguments[bound_to]
        more = arguments.pop(keywords) if keywords is not None else {}
        if twice := [name for name in more if arguments.get(name, ()) != ()]:  # `*args` may be none
            raise TypeError(f"two arguments are named {twice[0]!r}")
        return arguments | more

    return bind
