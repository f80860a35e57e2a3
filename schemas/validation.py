"""What is wrong with a value by one of our schemas, in words a person can act on.

What `acceptance` says yes to is right; otherwise the verdict is `jsonschema`'s, and this module only finds
the schema and turns each error into a text in the user's own words. Three annotations shape the texts:
`title` names the object in problems ("a policy"), `x-must` says what a `pattern` or `not` asks for, and
`x-hidden` keeps what there is out of them. It knows nothing of files or positions: a violation carries a JSON
pointer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, Final

import jsonschema
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

import schemas
from schemas.acceptance import accepts, as_compared, to_the_end
from schemas.suggestion import suggestion

Json = Any
BASE: Final = "https://governance.invalid/"
"""Where schemas are said to live, so that one may refer to another by its relative path."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule. `at_key` says that the key of the pointer is wrong, not its value."""

    pointer: str
    message: str
    code: str
    at_key: bool = False


_TYPES: Final[Mapping[str, str]] = {
    "object": "an object",
    "array": "a list",
    "string": "text",
    "boolean": "`true` or `false`",
    "null": "null",
    "number": "a number",
    "integer": "a whole number",
}


def pointer_of(steps: Iterable[str | int]) -> str:
    """The JSON pointer (RFC 6901) of a path of keys and indexes."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def shown(value: Json, limit: int = 60) -> str:
    """A value in the user's own words, for problem texts."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    if isinstance(value, str):
        return f"the text `{_short(value, limit)}`" if value else "empty text"
    if isinstance(value, (int, float)):
        text = str(value) if isinstance(value, float) or abs(value) < 10**limit else "too long"
        return f"the number {text}"
    return "a list" if isinstance(value, list) else "an object"


def violations(name: str, value: Json, fragment: str = "", most: int | None = None) -> list[Violation]:
    """Everything that is wrong with a value by the schema of that name, in the order of its rules.

    With `most`, only so much of it, so that a value of a million mistakes costs no more than one of a few.
    """
    return [] if accepts(name, fragment)(value) else explained(name, value, fragment, most)


def explained(name: str, value: Json, fragment: str = "", most: int | None = None) -> list[Violation]:
    """The same, without the quick yes."""
    found: list[Violation] = []
    wrongly_typed: dict[str, tuple[int, str]] = {}
    for error, violation in islice(_each(_validator(name, fragment), value), most):
        if error.validator == "type":
            types: Any = error.validator_value
            allowed = 1 if isinstance(types, str) else len(types)
            told = wrongly_typed.get(violation.pointer)
            if told is None or allowed < told[0]:
                wrongly_typed[violation.pointer] = allowed, violation.message
        found.append(violation)
    # A value of the wrong type breaks further rules too; what allows the fewest types says it.
    once: dict[tuple[str, str], Violation] = {}
    for violation in found:
        told = wrongly_typed.get(violation.pointer)
        if told is None or violation.at_key or violation.message == told[1]:
            once.setdefault((violation.pointer, violation.message), violation)
    return list(once.values())


def _each(validator: Any, value: Json) -> Iterator[tuple[jsonschema.ValidationError, Violation]]:
    for error in _leaves(validator.iter_errors(value)):
        for violation in _violations(error):
            yield error, violation


@cache
def _registry() -> Registry[Any]:
    resources = []
    for name in schemas.names():
        schema = schemas.load(name)
        schema["$id"] = f"{BASE}{name}.json"
        schema.pop("$schema", None)  # it would call for the stock validator instead of ours
        resources.append((schema["$id"], Resource.from_contents(schema, default_specification=DRAFT202012)))
    registry: Registry[Any] = Registry().with_resources(resources)
    return registry


@cache
def _validator(name: str, fragment: str) -> Any:
    schemas.load(name)  # an unknown name is an error here, not at the first value
    reference = {"$ref": f"{BASE}{name}.json#{fragment}"}
    return _Validator(reference, registry=_registry())


def _pattern(validator: Any, pattern: str, value: Json, schema: Json) -> Iterator[jsonschema.ValidationError]:
    """`pattern`, see `to_the_end`.

    A text longer than the schema's `maxLength` is refused for that; matching it could take very long.
    """
    if not isinstance(value, str) or len(value) > schema.get("maxLength", len(value)):
        return
    if not re.search(to_the_end(pattern), value):
        yield jsonschema.ValidationError(f"{pattern!r} does not match")


def _items(validator: Any, items: Json, value: Json, schema: Json) -> Iterator[jsonschema.ValidationError]:
    """`items`, but a list that is refused for its length is not looked into."""
    if isinstance(value, list) and len(value) <= schema.get("maxItems", len(value)):
        for index, item in enumerate(value):
            yield from validator.descend(item, items, path=index)


def _unique_items(
    _validator: Any, unique: bool, value: Json, schema: Json
) -> Iterator[jsonschema.ValidationError]:
    """`uniqueItems` in time linear in the length of the list; see `_items`."""
    if unique and isinstance(value, list) and len(value) <= schema.get("maxItems", len(value)):
        seen = set(map(as_compared, value))
        if len(seen) < len(value):
            yield jsonschema.ValidationError("has the same entry twice")


_Validator: Final = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft202012Validator, {"pattern": _pattern, "items": _items, "uniqueItems": _unique_items}
)


def _leaves(errors: Iterable[jsonschema.ValidationError]) -> Iterable[jsonschema.ValidationError]:
    """The errors a person can mend: of `anyOf` and `oneOf`, those of the first branch of the right type."""
    for error in errors:
        branches: dict[Any, list[jsonschema.ValidationError]] = {}
        for inner in error.context or ():
            branches.setdefault(inner.relative_schema_path[0], []).append(inner)
        for branch in branches.values():
            if not any(inner.validator == "type" and not inner.relative_path for inner in branch):
                yield from _leaves(branch)
                break
        else:
            yield error


def _violations(error: jsonschema.ValidationError) -> Iterable[Violation]:
    steps = tuple(error.absolute_path)
    if "propertyNames" in error.absolute_schema_path:
        steps = (*steps, str(error.instance))
        message, code = _said(error, steps)
        yield Violation(pointer_of(steps), message, code, at_key=True)
        return
    if error.validator == "additionalProperties":
        known = tuple(_schema(error).get("properties", ()))
        extra: Any = error.instance
        for key in extra:
            if key not in known:
                near = suggestion(key, known) or f"; it may have {_listed(known)}"
                message = f"`{_short(key)}` is not a field of {_title(error)}{near}"
                yield Violation(pointer_of((*steps, key)), message, "unknown_key", at_key=True)
        return
    if error.schema is False:
        message = f"{_name(steps)} has no place here; remove it"
        yield Violation(pointer_of(steps), message, "unknown_key", at_key=True)
        return
    message, code = _said(error, steps)
    yield Violation(pointer_of(steps), message, code)


def _said(error: jsonschema.ValidationError, steps: tuple[str | int, ...]) -> tuple[str, str]:
    """The text and code of an error; `steps` is where it stands."""
    name = _name(steps)
    value: Any = error.instance
    rule: Any = error.validator_value
    match error.validator:
        case "type":
            return f"{name} must be {_typed([rule])}{_seen(error)}", "wrong_type"
        case "anyOf" | "oneOf" if any(inner.validator == "type" for inner in error.context or ()):
            rules = [inner.validator_value for inner in error.context or () if inner.validator == "type"]
            return f"{name} must be {_typed(rules)}; it is {shown(value)}", "wrong_type"
        case "required":
            key = next(key for key in rule if f"{key!r} is a required property" == error.message)
            return f"`{key}` is missing; {_title(error)} needs it", "missing"
        case "minItems":
            entries = "entry" if rule == 1 else "entries"
            return f"{name} must have at least {rule} {entries}", "too_few"
        case "maxItems":
            return f"{name} may have at most {rule} entries; it has {len(value)}", "too_many"
        case "minProperties":
            return f"{name} must have at least {rule} field" + ("s" if rule > 1 else ""), "too_few"
        case "maxProperties":
            return f"{name} may have at most {rule} fields; it has {len(value)}", "too_many"
        case "uniqueItems":
            return f"{name} has the same entry twice; remove one", "duplicate"
        case "minLength":
            text = "must not be empty" if rule == 1 else f"must have at least {rule} characters"
            return f"{name} {text}", "too_short"
        case "maxLength":
            return f"{name} may have at most {rule} characters; it has {len(value)}", "too_long"
        case "pattern":
            return f"{name} must {_must(error, f'match `{rule}`')}{_seen(error)}", "wrong_form"
        case "minimum":
            return f"{name} must be at least {rule}; it is {value}", "too_small"
        case "maximum":
            return (
                f"{name} must be at most {rule}; it is {shown(value).removeprefix('the number ')}",
                "too_big",
            )
        case "enum":
            texts = [word for word in rule if isinstance(word, str)]
            near = suggestion(value, texts) if isinstance(value, str) else ""
            return f"{name} must be one of {_listed(rule)}; it is {shown(value)}{near}", "not_allowed"
        case "const":
            return f"{name} must be `{rule}`; it is {shown(value)}", "not_allowed"
        case "not":
            return f"{name} must {_must(error, 'be something else')}", "not_allowed"
    return f"{name}: {_short(error.message, 200)}", "invalid"


def _typed(rules: Iterable[Any]) -> str:
    """The words of types: `text or null`."""
    kinds = [kind for rule in rules for kind in ([rule] if isinstance(rule, str) else rule)]
    return " or ".join(_TYPES[kind] for kind in dict.fromkeys(kinds))


def _schema(error: jsonschema.ValidationError) -> Mapping[str, Any]:
    return error.schema if isinstance(error.schema, Mapping) else {}


def _title(error: jsonschema.ValidationError) -> str:
    return str(_schema(error).get("title", "this object"))


def _must(error: jsonschema.ValidationError, otherwise: str) -> str:
    return str(_schema(error).get("x-must", otherwise))


def _seen(error: jsonschema.ValidationError) -> str:
    """What there is instead. A secret is not repeated: what is `writeOnly`, or `x-hidden`, where a secret may
    stand by mistake, and what stands in the place of a whole document: it may be the file of a key."""
    schema = _schema(error)
    if isinstance(error.instance, str) and not error.absolute_path and error.validator_value == "object":
        return "; it is text"
    hidden = schema.get("writeOnly") or schema.get("x-hidden")
    return "" if hidden else f"; it is {shown(error.instance)}"


def _listed(words: Iterable[Json]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _short(text: str, limit: int = 60) -> str:
    if not text.isprintable():
        text = json.dumps(text)[1:-1]
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _name(steps: tuple[str | int, ...]) -> str:
    if not steps:
        return "this"
    if isinstance(steps[-1], str):
        return f"`{_short(steps[-1])}`"
    owner = next((step for step in reversed(steps) if isinstance(step, str)), "")
    return f"entry {steps[-1] + 1} of `{owner}`" if owner else f"entry {steps[-1] + 1}"
