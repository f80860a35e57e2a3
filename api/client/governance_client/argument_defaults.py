"""What a tool runs with where arguments are left out: the defaults that its JSON Schema declares.

Knows nothing of calls and decisions. Of a union only what one of its members alone can be is completed; a
reference that leads nowhere adds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MOST_STEPS: Final = 100_000
"""Through values and schemas; a schema may be that of a server that nobody knows."""
LETTERS: Final = 100
"""Of a text that are a step."""
_READ: Final = (
    *("$ref", "additionalProperties", "allOf", "anyOf", "const", "default"),
    *("items", "oneOf", "prefixItems", "properties", "required", "type"),
)
"""What of a schema says something here."""


def completed(arguments: Mapping[str, Any], schema: Any) -> Mapping[str, Any]:
    """The arguments, and the defaults of those that are left out, also in objects and lists among them.
    Raises ValueError or RecursionError for a schema without an end."""
    if not isinstance(schema, Mapping):
        return arguments
    found: Mapping[str, Any] = _Completion(schema).of(dict(arguments), schema)
    return found


class _Completion:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root, self._left = root, MOST_STEPS
        self._found: dict[str, Any] = {}
        """By references."""

    def of(self, value: Any, schema: Any) -> Any:
        """A value as it is with the defaults of a schema."""
        self._step()
        if not isinstance(schema, Mapping) or not isinstance(value, (dict, list)):
            return value
        if "$ref" in schema:
            value = self.of(value, self._at(schema["$ref"]))
        for each in _list(schema, "allOf"):
            value = self.of(value, each)
        for name in ("anyOf", "oneOf"):
            fitting = [each for each in _list(schema, name) if self._fits(value, each)]
            if len(fitting) == 1:
                value = self.of(value, fitting[0])
        return self._items(value, schema) if isinstance(value, list) else self._members(value, schema)

    def _members(self, value: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
        declared, others = _object(schema, "properties"), schema.get("additionalProperties")
        found = {name: self.of(each, declared.get(name, others)) for name, each in value.items()}
        for name, each in declared.items():
            if name not in found and "default" in (meant := self._plain(each)):
                self._weigh(meant["default"])
                found[name] = meant["default"]
        return found

    def _items(self, value: list[Any], schema: Mapping[str, Any]) -> list[Any]:
        first, others = _list(schema, "prefixItems"), schema.get("items")
        return [self.of(each, first[at] if at < len(first) else others) for at, each in enumerate(value)]

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
            return any(name in schema for name in ("allOf", "anyOf", "oneOf"))
        plain = {name: self._plain(each) for name, each in declared.items()}
        self._weigh(schema.get("required"))
        needed = [name for name in _list(schema, "required") if "default" not in plain.get(name, {})]
        return (
            all(name in value for name in needed)
            and all(
                value[name] == each["const"] for name, each in plain.items() if _is_told(name, each, value)
            )
            and (schema.get("additionalProperties") is not False or value.keys() <= declared.keys())
        )

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
        found: Any = self._root
        for name in reference.removeprefix("#").split("/")[1:]:
            name = name.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, Mapping) else None
        return found if reference.startswith("#") else None

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


def _is_told(name: str, schema: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    """A plain one: to compare objects and lists may take as long as a server likes."""
    return name in value and isinstance(schema.get("const", ()), str | int | float | None)


def _list(schema: Mapping[str, Any], name: str) -> list[Any]:
    found = schema.get(name)
    return found if isinstance(found, list) else []


def _object(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = schema.get(name)
    return found if isinstance(found, Mapping) else {}
