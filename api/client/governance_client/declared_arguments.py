"""Arguments as the JSON Schema of their tool declares them: with the defaults of those that are left out, and
none that a tool would make something else of than what is asked about.

Knows nothing of calls and decisions. Of a union only what one of its members alone can be is completed; a
reference that leads nowhere adds nothing.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any, Final

MOST_STEPS: Final = 100_000
"""Through values and schemas; a schema may be that of a server that nobody knows."""
LETTERS: Final = 100
"""Of a text that are a step."""
MOST_NAMES: Final = 20
"""That are told to whoever gave another one."""
_OPEN: Final = ("$dynamicRef", "dependentSchemas", "else", "if", "patternProperties", "then")
"""What of a schema may name members that are looked for nowhere else."""
_READ: Final = (
    *("$ref", "additionalProperties", "allOf", "anyOf", "const", "default", "enum"),
    *("items", "oneOf", "prefixItems", "properties", "required", "type", *_OPEN),
)
"""What of a schema says something here."""
_UNIONS: Final = ("anyOf", "oneOf")
_NOTHING: Final[frozenset[Any]] = frozenset()
_TYPES: Final = {
    "null": "null",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "string": "a text",
    "array": "a list",
    "object": "an object",
}


class UnfitArguments(ValueError):
    """An argument of another type than its tool declares, not one of the values that it lists, or under a
    name that it does not declare. Tools may convert it (`"yes"` to true, JSON in a text to an object), or
    know it by another name: what would run is not what was asked about."""


def as_declared(arguments: Mapping[str, Any], schema: Any, *, plain_texts: bool = False) -> Mapping[str, Any]:
    """The arguments, and the defaults of those that are left out, also in objects and lists among them. With
    `plain_texts` nobody reads JSON in texts. Raises UnfitArguments; ValueError or RecursionError for a schema
    without an end."""
    if not isinstance(schema, Mapping):
        return arguments
    given = dict(arguments)
    reading = _Reading(schema)
    if not plain_texts:
        reading.refuse_json_in_texts(given)
    found: Mapping[str, Any] = reading.of(given, schema, "")
    return found


class _Reading:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root, self._left = root, MOST_STEPS
        self._found: dict[str, Any] = {}
        """By references."""
        self._named: dict[int, dict[str, Any] | None] = {}
        """What `_names` gives, by the identity of a part of the schema."""
        self._taken_by: dict[tuple[int, str], frozenset[Any] | None] = {}
        """What `_values` gives, likewise."""

    def of(self, value: Any, schema: Any, at: str) -> Any:
        """A value as it is with the defaults of a schema; `at` is where it stands."""
        self._step()
        if not isinstance(schema, Mapping) or value is None:
            return value
        if (kind := _kind(value)) is not None:
            values = self._values(schema, kind)
            if values == _NOTHING:
                raise UnfitArguments(f"`{at}` is {_TYPES[kind]}, and the tool takes {self._taken(schema)}")
            if values is not None and value not in values:
                known = sorted(map(json.dumps, values))[:MOST_NAMES]
                known += [said for each, said in _TYPES.items() if each != kind and self._takes(schema, each)]
                raise UnfitArguments(f"`{at}` is none of what the tool takes: {', '.join(known)}")
        if isinstance(value, dict):
            self._refuse_undeclared(value, schema, at)
        return self._filled(value, schema, at)

    def refuse_json_in_texts(self, arguments: Mapping[str, Any]) -> None:
        """Some servers read them, where the tool does not take texts alone. Raises UnfitArguments."""
        declared = self._names(self._root) or _object(self._plain(self._root), "properties")
        for name, value in arguments.items():
            if (
                name not in declared
                or not isinstance(value, str)
                or not value.lstrip().startswith(("{", "[", "null"))
            ):
                continue
            with contextlib.suppress(json.JSONDecodeError):
                meant = json.loads(value)
                kind = "null" if meant is None else _kind(meant)
                if kind in ("array", "object", "null") and self._takes(declared[name], kind):
                    raise UnfitArguments(f"`{name}` is {_TYPES[kind]} in a text; give it as what it is")

    def _refuse_undeclared(self, value: dict[str, Any], schema: Mapping[str, Any], at: str) -> None:
        declared = self._names(schema)
        if not declared:
            return
        for name in value:
            if name not in declared:
                known = ", ".join(f"`{each}`" for each in list(declared)[:MOST_NAMES])
                raise UnfitArguments(f"the tool declares no `{_below(at, name)}`, but {known}")

    def _names(self, schema: Any) -> dict[str, Any] | None:
        """The members that an object is declared to have, by all that describes it; None: it may have others,
        as what declares none does."""
        if id(schema) not in self._named:
            self._named[id(schema)] = self._names_of(self._plain(schema))
        return self._named[id(schema)]

    def _names_of(self, plain: Mapping[str, Any]) -> dict[str, Any] | None:
        if plain.get("additionalProperties", False) is not False or any(map(plain.get, _OPEN)):
            return None
        own = _object(plain, "properties")
        found = dict(own)
        for name in ("allOf", *_UNIONS):
            for each in _list(plain, name):
                if self._takes(each, "object"):
                    inner = self._names(each)
                    is_any = not own and not inner and name != "allOf" and "required" not in self._plain(each)
                    if inner is None or is_any:
                        return None
                    found = inner | found
        return found

    def _takes(self, schema: Any, kind: str) -> bool:
        """Whether a value of this type may stand where the schema does, by all that it says of types."""
        return self._values(schema, kind) != _NOTHING

    def _values(self, schema: Any, kind: str) -> frozenset[Any] | None:
        """The values of a type that may stand where the schema does; None: any."""
        key = id(schema), kind
        if key not in self._taken_by:
            self._taken_by[key] = self._values_by(self._plain(schema), kind)
        return self._taken_by[key]

    def _values_by(self, plain: Mapping[str, Any], kind: str) -> frozenset[Any] | None:
        self._weigh(types := plain.get("type"))
        types = [types] if isinstance(types, str) else types if isinstance(types, list) else []
        fitting = (kind, "number") if kind == "integer" else (kind,)
        if types and not any(each in fitting or each not in tuple(_TYPES) for each in types):
            return _NOTHING
        found = self._listed(plain, kind)
        for each in _list(plain, "allOf"):
            found = _both(found, self._values(each, kind))
        for union in filter(None, (_list(plain, name) for name in _UNIONS)):
            members = [self._values(each, kind) for each in union]
            if None not in members:
                found = _both(found, _NOTHING.union(*filter(None, members)))
        return found

    def _listed(self, plain: Mapping[str, Any], kind: str) -> frozenset[Any] | None:
        """Those of its `const` and `enum`; of lists and objects only whether there are any."""
        listed = [plain["const"]] if "const" in plain else plain.get("enum")
        if not isinstance(listed, list):
            return None
        self._weigh(listed)
        found = [each for each in listed if (_kind(each) or "null") == kind]
        return None if found and kind in ("array", "object") else frozenset(found)

    def _taken(self, schema: Any) -> str:
        taken = [kind for kind in _TYPES if self._takes(schema, kind)]
        said = [_TYPES[kind] for kind in taken if kind != "integer" or "number" not in taken]
        return " or ".join(said) or "nothing"

    def _filled(self, value: Any, schema: Mapping[str, Any], at: str) -> Any:
        if not isinstance(value, (dict, list)):
            return value
        if "$ref" in schema:
            value = self._also(value, self._at(schema["$ref"]), at)
        for each in _list(schema, "allOf"):
            value = self._also(value, each, at)
        for name in _UNIONS:
            value = self._of_one(value, _list(schema, name), at)
        return self._items(value, schema, at) if isinstance(value, list) else self._members(value, schema, at)

    def _also(self, value: Any, schema: Any, at: str) -> Any:
        """A value as it is by a part of what describes it."""
        self._step()
        return self._filled(value, schema, at) if isinstance(schema, Mapping) else value

    def _of_one(self, value: Any, union: list[Any], at: str) -> Any:
        """A value by the only member of a union that it can be. Raises UnfitArguments if there is none."""
        fitting = [each for each in union if self._fits(value, each)]
        if isinstance(value, dict) and not fitting:
            takers = [each for each in union if self._takes(each, "object")]
            if takers and all(self._names(each) for each in takers):
                raise UnfitArguments(f"{f'`{at}`' if at else 'what is given'} is none of what the tool takes")
        if isinstance(value, dict) and len(fitting) > 1:
            known = [len(value.keys() & (self._names(each) or value).keys()) for each in fitting]
            fitting = [each for each, count in zip(fitting, known, strict=True) if count == max(known)]
        found, unfit = [], []
        for each in fitting:
            try:
                found.append(self._also(value, each, at))
            except UnfitArguments as error:
                unfit.append(error)
        if unfit and not found:
            raise unfit[0]
        return found[0] if len(found) == 1 else value

    def _members(self, value: dict[str, Any], schema: Mapping[str, Any], at: str) -> dict[str, Any]:
        declared, others = _object(schema, "properties"), schema.get("additionalProperties")
        found = {
            name: self.of(each, declared.get(name, others), _below(at, name)) for name, each in value.items()
        }
        for name, each in declared.items():
            if name not in found and "default" in (meant := self._plain(each)):
                self._weigh(meant["default"])
                found[name] = meant["default"]
        return found

    def _items(self, value: list[Any], schema: Mapping[str, Any], at: str) -> list[Any]:
        first, others = _list(schema, "prefixItems") or _list(schema, "items"), schema.get("items")
        return [
            self.of(each, first[place] if place < len(first) else others, f"{at}[{place}]")
            for place, each in enumerate(value)
        ]

    def _fits(self, value: Any, schema: Any) -> bool:
        """Whether a member of a union says what this value has in it."""
        schema = self._plain(schema)
        self._weigh(schema.get("type"))
        kinds = schema.get("type", ())
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if isinstance(value, list):
            return "items" in schema or "prefixItems" in schema or "array" in kinds
        declared = _object(schema, "properties")
        if not declared and "object" not in kinds:
            return any(name in schema for name in ("allOf", *_UNIONS))
        plain = {name: self._plain(each) for name, each in declared.items()}
        self._weigh(schema.get("required"))
        needed = [name for name in _list(schema, "required") if "default" not in plain.get(name, {})]
        return (
            all(name in value for name in needed)
            and not any(self._is_another(value[name], declared[name]) for name in declared if name in value)
            and (schema.get("additionalProperties") is not False or value.keys() <= declared.keys())
        )

    def _is_another(self, value: Any, schema: Any) -> bool:
        """Whether a value is none of those that a schema lists, as what tells members of a union apart."""
        values = self._values(schema, _kind(value) or "null")
        return values is not None and values != _NOTHING and value not in values

    def _plain(self, schema: Any) -> Mapping[str, Any]:
        """The schema behind references, under what stands beside them."""
        beside: dict[str, Any] = {}
        while isinstance(schema, Mapping):
            self._step()
            beside = {name: schema[name] for name in _READ if name in schema} | beside
            if "$ref" not in schema:
                break
            schema = self._at(schema["$ref"])
        return beside

    def _at(self, reference: Any) -> Any:
        """What a reference within the schema means; what is no text leads nowhere, however large it is."""
        if not isinstance(reference, str):
            return None
        if reference not in self._found:
            self._found[reference] = self._looked_up(reference)
        return self._found[reference]

    def _looked_up(self, reference: str) -> Any:
        if reference != "#" and not reference.startswith("#/"):
            return None
        found: Any = self._root
        for name in reference.split("/")[1:]:
            name = name.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name.isdecimal():
                found = found[int(name)] if int(name) < len(found) else None
            else:
                found = found.get(name) if isinstance(found, Mapping) else None
        return found

    def _weigh(self, value: Any) -> None:
        """Each part of it is a step, and each so many letters: many may lead to one that is large."""
        parts = [value]
        while parts:
            each = parts.pop()
            self._step(1 + len(each) // LETTERS if isinstance(each, str) else 1)
            if isinstance(each, Mapping):
                parts += [*each, *each.values()]
            elif isinstance(each, list):
                parts += each

    def _step(self, steps: int = 1) -> None:
        self._left -= steps
        if self._left < 0:
            raise ValueError("the schema of its arguments leads too far")


def _kind(value: Any) -> str | None:
    """The type of JSON that a value is; None where it becomes one only later."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if value == value // 1 else "number"
    kinds = {str: "string", list: "array", dict: "object"}
    return next((kind for of, kind in kinds.items() if isinstance(value, of)), None)


def _below(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _both(one: frozenset[Any] | None, other: frozenset[Any] | None) -> frozenset[Any] | None:
    """What two parts of a schema allow; None: anything."""
    return other if one is None else one if other is None else one & other


def _list(schema: Mapping[str, Any], name: str) -> list[Any]:
    found = schema.get(name)
    return found if isinstance(found, list) else []


def _object(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = schema.get(name)
    return found if isinstance(found, Mapping) else {}
