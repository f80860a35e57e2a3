"""A quick yes to values that one of our schemas accepts, by functions made from the schema itself.

`accepts(name)` answers some twenty times faster than the library that finds the words, which is asked only
after a no. INVARIANT: what is accepted here, the schema accepts (a property test). A schema that says
something this module does not read accepts nothing here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Hashable, Mapping
from functools import cache
from posixpath import join, normpath
from typing import Any, Final

import schemas

Json = Any
Accepts = Callable[[Json], bool]


class _Unread(Exception):
    """A keyword that this module does not read."""


@cache
def accepts(name: str, fragment: str = "") -> Accepts:
    """Whether a value is surely right by the schema of that name, or by the part of it at a JSON pointer."""
    try:
        return _referred(name, fragment)
    except (_Unread, RecursionError):
        return lambda value: False


def as_compared(value: Json) -> Hashable:
    """A key that two values share when JSON Schema holds them equal: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, list):
        return (list, *map(as_compared, value))
    if isinstance(value, dict):
        return (dict, frozenset((key, as_compared(item)) for key, item in value.items()))
    return (bool, value) if isinstance(value, bool) else value


def to_the_end(pattern: str) -> str:
    """A pattern whose `$` is the end of the text, as JSON Schema has it, not before a last line break."""
    return re.sub(r"\$\Z", r"\\Z", pattern)


@cache
def _referred(name: str, fragment: str) -> Accepts:
    schema: Any = schemas.load(name)
    for step in fragment.split("/")[1:]:
        schema = schema[step.replace("~1", "/").replace("~0", "~")]
    return _all_of(schema, name)


def _all_of(schema: Json, name: str) -> Accepts:
    """Everything that one schema asks for."""
    if isinstance(schema, bool):
        return lambda value: schema
    if unread := schema.keys() - _KEYWORDS.keys() - _ANNOTATIONS - _READ_WITH_OTHERS:
        raise _Unread(*unread)
    read = _KEYWORDS.keys() & schema.keys()
    checks: list[Accepts] = []
    if _OF_OBJECTS & schema.keys():
        checks.append(_object(schema, name))
        read -= {"required", "properties"} | ({"type"} if schema.get("type") == "object" else set())
    checks += [_KEYWORDS[keyword](schema, name) for keyword in schema if keyword in read]
    if "type" not in schema and _OF_TEXTS & schema.keys():
        text = _text(schema)
        checks.append(lambda value: value.__class__ is not str or text(value))
    if len(checks) == 1:
        return checks[0]

    def check(value: Json) -> bool:
        for each in checks:  # noqa: SIM110 - half the time of `all`
            if not each(value):
                return False
        return True

    return check


_CLASSES: Final[Mapping[str, type]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "integer": int,
}


def _type(schema: Json, name: str) -> Accepts:
    words = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    if "string" in words and len(words) > 1:
        text = _text(schema)
        other = _type({"type": [word for word in words if word != "string"]}, name)
        return lambda value: text(value) if value.__class__ is str else other(value)
    if "string" in words:
        return _text(schema)
    classes = {_CLASSES[word] for word in words if word != "number"}
    if "number" in words:
        classes |= {int, float}
    if len(classes) == 1 and int not in classes:
        (only,) = classes
        return lambda value: value.__class__ is only
    whole = int in classes and float not in classes
    return lambda value: (
        value.__class__ in classes or (whole and value.__class__ is float and value.is_integer())
    )


def _text(schema: Json) -> Accepts:
    """A text, with all that is asked of it: these are the most, and one function is faster than four."""
    least, most = schema.get("minLength", 0), schema.get("maxLength", sys.maxsize)
    if "pattern" not in schema:
        return lambda value: value.__class__ is str and least <= len(value) <= most
    search = re.compile(to_the_end(schema["pattern"])).search  # matching too long a text could take long
    return lambda value: value.__class__ is str and least <= len(value) <= most and bool(search(value))


def _object(schema: Json, name: str) -> Accepts:
    """`required`, `properties` and `additionalProperties`, in one function as for texts."""
    known = {
        key: None if each is True else _all_of(each, name)
        for key, each in schema.get("properties", {}).items()
    }
    others = schema.get("additionalProperties", True)
    other = None if others is True else _all_of(others, name)
    needed = tuple(schema.get("required", ()))
    or_else: bool = schema.get("type") != "object"

    def check(value: Json) -> bool:
        if value.__class__ is not dict:
            return or_else
        for key in needed:
            if key not in value:
                return False
        for key, each in value.items() if known or other is not None else ():
            check_of = known.get(key, other)
            if check_of is not None and not check_of(each):
                return False
        return True

    return check


def _one_of_these(schema: Json, name: str) -> Accepts:
    known = schema["enum"] if "enum" in schema else [schema["const"]]
    if any(isinstance(each, (dict, list)) for each in known):
        raise _Unread("a list or object to compare with")
    values = frozenset(map(as_compared, known))
    if all(isinstance(each, str) for each in known):
        return lambda value: value.__class__ is str and value in values
    return lambda value: (
        value.__class__ is not dict and value.__class__ is not list and as_compared(value) in values
    )


def _items(schema: Json, name: str) -> Accepts:
    each = _all_of(schema["items"], name)
    return lambda value: value.__class__ is not list or all(map(each, value))


def _names(schema: Json, name: str) -> Accepts:
    each = _all_of(schema["propertyNames"], name)
    return lambda value: value.__class__ is not dict or all(map(each, value))


def _unique(schema: Json, name: str) -> Accepts:
    most = schema.get("maxItems", sys.maxsize)  # a longer list is refused for that
    return lambda value: (
        value.__class__ is not list or len(value) > most or len(set(map(as_compared, value))) == len(value)
    )


def _bound(keyword: str, kinds: tuple[type, ...], fits: Callable[[Json, Json], bool]) -> Any:
    def make(schema: Json, name: str) -> Accepts:
        bound = schema[keyword]
        return lambda value: value.__class__ not in kinds or fits(value, bound)

    return make


def _if(schema: Json, name: str) -> Accepts:
    test = _all_of(schema["if"], name)
    then, otherwise = (_all_of(schema.get(key, True), name) for key in ("then", "else"))
    return lambda value: then(value) if test(value) else otherwise(value)


def _not(schema: Json, name: str) -> Accepts:
    inner = _all_of(schema["not"], name)
    return lambda value: not inner(value)


def _any_of(schema: Json, name: str) -> Accepts:
    branches = [_all_of(each, name) for each in schema["anyOf"]]
    return lambda value: any(each(value) for each in branches)


def _every_of(schema: Json, name: str) -> Accepts:
    branches = [_all_of(each, name) for each in schema["allOf"]]
    return lambda value: all(each(value) for each in branches)


def _reference(schema: Json, name: str) -> Accepts:
    file, _, fragment = schema["$ref"].partition("#")
    target = normpath(join(name, "..", file.removesuffix(".json"))) if file else name
    return _referred(target, fragment)


_NUMBERS: Final = (int, float)
_KEYWORDS: Final[Mapping[str, Callable[[Json, str], Accepts]]] = {
    "type": _type,
    "$ref": _reference,
    "enum": _one_of_these,
    "const": _one_of_these,
    "required": _object,
    "properties": _object,
    "propertyNames": _names,
    "items": _items,
    "minItems": _bound("minItems", (list,), lambda value, bound: len(value) >= bound),
    "maxItems": _bound("maxItems", (list,), lambda value, bound: len(value) <= bound),
    "minProperties": _bound("minProperties", (dict,), lambda value, bound: len(value) >= bound),
    "maxProperties": _bound("maxProperties", (dict,), lambda value, bound: len(value) <= bound),
    "minimum": _bound("minimum", _NUMBERS, lambda value, bound: not value < bound),
    "maximum": _bound("maximum", _NUMBERS, lambda value, bound: not value > bound),
    "uniqueItems": _unique,
    "if": _if,
    "not": _not,
    "anyOf": _any_of,
    "allOf": _every_of,
}
_OF_TEXTS: Final = frozenset({"minLength", "maxLength", "pattern"})
_OF_OBJECTS: Final = frozenset({"required", "properties", "additionalProperties"})
_READ_WITH_OTHERS: Final = frozenset({"additionalProperties", "then", "else"}) | _OF_TEXTS
_ANNOTATIONS: Final = frozenset(
    {
        "$schema",
        "$id",
        "$defs",
        "title",
        "description",
        "default",
        "format",
        "writeOnly",
        "x-hidden",
        "x-must",
        "x-sample",
    }
)
