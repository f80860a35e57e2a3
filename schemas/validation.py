"""A JSON Schema compiled once to closures that say in words what is wrong with a value.

It knows the keywords that our schemas use and refuses any other, so that no rule is silently skipped; a test
compares its verdict with the reference implementation. Two annotations shape the texts: `title` names the
object in problems ("a policy"), `x-must` says what a `pattern` or `not` asks for.
It knows nothing of files or positions: a violation carries a JSON pointer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, Final

import schemas

Json = Any
Steps = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule. `at_key` says that the key of the pointer is wrong, not its value."""

    pointer: str
    message: str
    code: str
    at_key: bool = False


Check = Callable[[Json, Steps, list[Violation]], None]

ANNOTATIONS: Final = frozenset(
    {"$schema", "$id", "$defs", "$comment", "title", "description", "default", "examples", "x-must", "format"}
    | {"deprecated", "readOnly", "writeOnly"}
)


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
        text = value if len(value) <= limit else value[: limit - 1] + "…"
        return f"the text `{text}`" if value else "empty text"
    if isinstance(value, (int, float)):
        text = str(value) if isinstance(value, float) or abs(value) < 10**limit else "too long"
        return f"the number {text}"
    return "a list" if isinstance(value, list) else "an object"


def suggestion(word: str, known: Iterable[str]) -> str:
    """`; did you mean ...?` when a known word is close, else an empty text."""
    options = list(known)
    folded = {option.casefold().replace("_", "").replace("-", ""): option for option in options}
    same = folded.get(word.casefold().replace("_", "").replace("-", ""))
    near = [same] if same else get_close_matches(word[:100], options, n=1, cutoff=0.6)
    return f"; did you mean `{near[0]}`?" if near else ""


def _listed(words: Iterable[Json]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _name(steps: Steps) -> str:
    if not steps:
        return "this"
    if isinstance(steps[-1], str):
        return f"`{steps[-1]}`"
    owner = next((step for step in reversed(steps) if isinstance(step, str)), "")
    return f"entry {steps[-1] + 1} of `{owner}`" if owner else f"entry {steps[-1] + 1}"


_TYPES: Final[Mapping[str, tuple[str, Callable[[Json], bool]]]] = {
    "object": ("an object", lambda v: isinstance(v, Mapping)),
    "array": ("a list", lambda v: isinstance(v, list)),
    "string": ("text", lambda v: isinstance(v, str)),
    "boolean": ("`true` or `false`", lambda v: isinstance(v, bool)),
    "null": ("null", lambda v: v is None),
    "number": ("a number", lambda v: isinstance(v, (int, float)) and not isinstance(v, bool)),
    "integer": (
        "a whole number",
        lambda v: (
            not isinstance(v, bool) and (isinstance(v, int) or (isinstance(v, float) and v.is_integer()))
        ),
    ),
}


def _same(a: Json, b: Json) -> bool:
    """JSON equality: true is not 1, 1 is 1.0."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    return bool(a == b)


class _Compiler:
    """Compiles one file's schemas; `$ref` may name a definition of this file or of a sibling."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.root = schemas.load(name)

    def at(self, fragment: str) -> Check:
        schema: Any = self.root
        for step in fragment.strip("/").split("/") if fragment.strip("/") else []:
            schema = schema[step]
        return self.compile(schema)

    def compile(self, schema: Any) -> Check:
        if isinstance(schema, bool):
            return _anything if schema else _nothing
        checks: list[Check] = []
        for keyword in schema:
            if keyword in ANNOTATIONS or keyword in ("then", "else"):
                continue
            maker = getattr(self, "_" + _snake(keyword.removeprefix("$")), None)
            if maker is None:
                raise ValueError(f"schemas/{self.name}.json uses `{keyword}`, which is not supported")
            checks.append(maker(schema[keyword], schema))
        if len(checks) == 1:
            return checks[0]
        first_type = next((c for k, c in zip(_keywords(schema), checks, strict=True) if k == "type"), None)
        rest = [check for check in checks if check is not first_type]

        def check(value: Json, steps: Steps, out: list[Violation]) -> None:
            if first_type is not None:
                before = len(out)
                first_type(value, steps, out)
                if len(out) > before:
                    return
            for each in rest:
                each(value, steps, out)

        return check

    def _ref(self, ref: str, _schema: Any) -> Check:
        file, _, fragment = ref.partition("#")
        folder = self.name.rpartition("/")[0]
        target = f"{folder}/{file.removesuffix('.json')}" if file else self.name

        def check(value: Json, steps: Steps, out: list[Violation]) -> None:
            _compiled(target, fragment)(value, steps, out)

        return check

    def _type(self, types: Any, _schema: Any) -> Check:
        wanted = [_TYPES[name] for name in ([types] if isinstance(types, str) else types)]
        words = " or ".join(word for word, _ in wanted)
        tests = tuple(test for _, test in wanted)

        def check(value: Json, steps: Steps, out: list[Violation]) -> None:
            for test in tests:
                if test(value):
                    return
            message = f"{_name(steps)} must be {words}; it is {shown(value)}"
            out.append(Violation(pointer_of(steps), message, "wrong_type"))

        return check

    def _properties(self, properties: Any, schema: Any) -> Check:
        checks = {key: self.compile(sub) for key, sub in properties.items()}

        def check(value: Json, steps: Steps, out: list[Violation]) -> None:
            if isinstance(value, Mapping):
                for key, each in checks.items():
                    if key in value:
                        each(value[key], (*steps, key), out)

        return check

    def _additional_properties(self, rule: Any, schema: Any) -> Check:
        known = tuple(schema.get("properties", ()))
        title = schema.get("title", "this object")
        each = None if rule is False else self.compile(rule)

        def check(value: Json, steps: Steps, out: list[Violation]) -> None:
            if not isinstance(value, Mapping):
                return
            for key in value:
                if key in known:
                    continue
                if each is not None:
                    each(value[key], (*steps, key), out)
                    continue
                near = suggestion(key, known) or f"; it may have {_listed(known)}"
                word = key if len(key) <= 60 else key[:59] + "…"
                message = f"`{word}` is not a field of {title}{near}"
                out.append(Violation(pointer_of((*steps, key)), message, "unknown_key", at_key=True))

        return check

    def _property_names(self, rule: Any, _schema: Any) -> Check:
        each = self.compile(rule)

        def check(value: Json, steps: Steps, out: list[Violation]) -> None:
            if isinstance(value, Mapping):
                for key in value:
                    found: list[Violation] = []
                    each(key, (*steps, key), found)
                    out.extend(Violation(v.pointer, v.message, v.code, at_key=True) for v in found)

        return check

    def _required(self, keys: Any, schema: Any) -> Check:
        title = schema.get("title", "this object")

        def check(value: Json, steps: Steps, out: list[Violation]) -> None:
            if isinstance(value, Mapping):
                for key in keys:
                    if key not in value:
                        message = f"`{key}` is missing; {title} needs it"
                        out.append(Violation(pointer_of(steps), message, "missing"))

        return check

    def _items(self, rule: Any, _schema: Any) -> Check:
        each = self.compile(rule)

        def check(value: Json, steps: Steps, out: list[Violation]) -> None:
            if isinstance(value, list):
                for index, item in enumerate(value):
                    each(item, (*steps, index), out)

        return check

    def _min_items(self, least: int, _schema: Any) -> Check:
        def check(value: Json, steps: Steps, out: list[Violation]) -> None:
            if isinstance(value, list) and len(value) < least:
                entries = "entry" if least == 1 else "entries"
                message = f"{_name(steps)} must have at least {least} {entries}"
                out.append(Violation(pointer_of(steps), message, "too_few"))

        return check

    def _max_items(self, most: int, _schema: Any) -> Check:
        def check(value: Json, steps: Steps, out: list[Violation]) -> None:
            if isinstance(value, list) and len(value) > most:
                message = f"{_name(steps)} may have at most {most} entries; it has {len(value)}"
                out.append(Violation(pointer_of(steps), message, "too_many"))

        return check

    def _max_properties(self, most: int, _schema: Any) -> Check:
        def check(value: Json, steps: Steps, out: list[Violation]) -> None:
            if isinstance(value, Mapping) and len(value) > most:
                message = f"{_name(steps)} may have at most {most} fields; it has {len(value)}"
                out.append(Violation(pointer_of(steps), message, "too_many"))

        return check

    def _min_properties(self, least: int, _schema: Any) -> Check:
        def check(value: Json, steps: Steps, out: list[Violation]) -> None:
            if isinstance(value, Mapping) and len(value) < least:
                message = f"{_name(steps)} must have at least {least} field" + ("s" if least > 1 else "")
                out.append(Violation(pointer_of(steps), message, "too_few"))

        return check

    def _unique_items(self, unique: bool, _schema: Any) -> Check:
        def check(value: Json, steps: Steps, out: list[Violation]) -> None:
            if unique and isinstance(value, list):
                for index, item in enumerate(value):
                    if any(_same(item, earlier) for earlier in value[:index]):
                        message = f"{_name((*steps, index))} is there twice; remove one"
                        out.append(Violation(pointer_of((*steps, index)), message, "duplicate"))

        return check

    def _min_length(self, least: int, _schema: Any) -> Check:
        def check(value: Json, steps: Steps, out: list[Violation]) -> None:
            if isinstance(value, str) and len(value) < least:
                text = "must not be empty" if least == 1 else f"must have at least {least} characters"
                out.append(Violation(pointer_of(steps), f"{_name(steps)} {text}", "too_short"))

        return check

    def _max_length(self, most: int, _schema: Any) -> Check:
        def check(value: Json, steps: Steps, out: list[Violation]) -> None:
            if isinstance(value, str) and len(value) > most:
                message = f"{_name(steps)} may have at most {most} characters; it has {len(value)}"
                out.append(Violation(pointer_of(steps), message, "too_long"))

        return check

    def _pattern(self, pattern: str, schema: Any) -> Check:
        search = re.compile(pattern.removesuffix("$") + r"\Z" if pattern.endswith("$") else pattern).search
        must = schema.get("x-must", f"match `{pattern}`")

        def check(value: Json, steps: Steps, out: list[Violation]) -> None:
            if isinstance(value, str) and not search(value):
                message = f"{_name(steps)} must {must}; it is {shown(value)}"
                out.append(Violation(pointer_of(steps), message, "wrong_form"))

        return check

    def _minimum(self, least: float, _schema: Any) -> Check:
        def check(value: Json, steps: Steps, out: list[Violation]) -> None:
            if isinstance(value, (int, float)) and not isinstance(value, bool) and value < least:
                message = f"{_name(steps)} must be at least {least}; it is {value}"
                out.append(Violation(pointer_of(steps), message, "too_small"))

        return check

    def _maximum(self, most: float, _schema: Any) -> Check:
        def check(value: Json, steps: Steps, out: list[Violation]) -> None:
            if isinstance(value, (int, float)) and not isinstance(value, bool) and value > most:
                said = shown(value).removeprefix("the number ")
                message = f"{_name(steps)} must be at most {most}; it is {said}"
                out.append(Violation(pointer_of(steps), message, "too_big"))

        return check

    def _enum(self, allowed: Any, _schema: Any) -> Check:
        def check(value: Json, steps: Steps, out: list[Violation]) -> None:
            if any(_same(value, word) for word in allowed):
                return
            near = (
                suggestion(value, [w for w in allowed if isinstance(w, str)])
                if isinstance(value, str)
                else ""
            )
            message = f"{_name(steps)} must be one of {_listed(allowed)}; it is {shown(value)}{near}"
            out.append(Violation(pointer_of(steps), message, "not_allowed"))

        return check

    def _const(self, only: Any, _schema: Any) -> Check:
        def check(value: Json, steps: Steps, out: list[Violation]) -> None:
            if not _same(value, only):
                message = f"{_name(steps)} must be `{only}`; it is {shown(value)}"
                out.append(Violation(pointer_of(steps), message, "not_allowed"))

        return check

    def _not(self, rule: Any, schema: Any) -> Check:
        each = self.compile(rule)
        must = schema.get("x-must", "be something else")

        def check(value: Json, steps: Steps, out: list[Violation]) -> None:
            found: list[Violation] = []
            each(value, steps, found)
            if not found:
                out.append(Violation(pointer_of(steps), f"{_name(steps)} must {must}", "not_allowed"))

        return check

    def _all_of(self, rules: Any, _schema: Any) -> Check:
        checks = [self.compile(rule) for rule in rules]

        def check(value: Json, steps: Steps, out: list[Violation]) -> None:
            for each in checks:
                each(value, steps, out)

        return check

    def _if(self, rule: Any, schema: Any) -> Check:
        test = self.compile(rule)
        then, otherwise = self.compile(schema.get("then", True)), self.compile(schema.get("else", True))

        def check(value: Json, steps: Steps, out: list[Violation]) -> None:
            found: list[Violation] = []
            test(value, steps, found)
            (otherwise if found else then)(value, steps, out)

        return check


def _snake(keyword: str) -> str:
    return re.sub("[A-Z]", lambda upper: "_" + upper.group().lower(), keyword)


def _keywords(schema: Mapping[str, Any]) -> list[str]:
    return [k for k in schema if k not in ANNOTATIONS and k not in ("then", "else")]


def _anything(_value: Json, _steps: Steps, _out: list[Violation]) -> None:
    return


def _nothing(_value: Json, steps: Steps, out: list[Violation]) -> None:
    message = f"{_name(steps)} has no place here; remove it"
    out.append(Violation(pointer_of(steps), message, "unknown_key", at_key=True))


@cache
def _compiled(name: str, fragment: str = "") -> Check:
    return _Compiler(name).at(fragment)


def violations(name: str, value: Json, fragment: str = "") -> list[Violation]:
    """Everything that is wrong with a value by the schema of that name, in document order of the rules."""
    found: list[Violation] = []
    _compiled(name, fragment)(value, (), found)
    return found
