"""JSON bodies: bytes to checked values, strictly.

Refused before any schema is asked: what is not JSON in UTF-8 (lone surrogates, NaN and numbers beyond a
double included), nesting deeper than 64, NUL characters (PostgreSQL cannot store them), the same key twice.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import jsonschema
import msgspec

import schemas
from api.errors import ApiError, invalid

MOST_NESTED = 64


def decode(raw: bytes) -> Any:
    """The value of a JSON body; raises `invalid_json` or `validation_failed`."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise not_json(raw, error) from None
    except RecursionError:
        raise too_deep() from None
    check(raw, value)
    return value


def decode_unique(raw: bytes) -> Any:
    """Like `decode`, and a key that stands twice in one object is refused as well."""
    value = decode(raw)
    json.loads(raw, object_pairs_hook=_unique)
    return value


def not_json(raw: bytes, error: Exception) -> ApiError:
    if not raw:
        return ApiError("invalid_json", "the body is empty; send a JSON object")
    if isinstance(error, UnicodeDecodeError):
        return ApiError("invalid_json", "the body is not UTF-8")
    return ApiError("invalid_json", str(error).replace("JSON is malformed: ", "", 1))


def too_deep() -> ApiError:
    return ApiError("invalid_json", f"the body is nested deeper than {MOST_NESTED} levels")


def check(raw: bytes, value: Any) -> None:
    """Depth and NUL characters; both cost next to nothing for a body that has neither."""
    if raw.count(b"[") + raw.count(b"{") > MOST_NESTED and _depth_exceeds(value, MOST_NESTED):
        raise too_deep()
    if b"\\u0000" in raw and (pointer := _find_nul(value)) is not None:
        raise invalid(pointer, "text must not contain the NUL character")


def _children(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(escape(key), child) for key, child in value.items()]
    if isinstance(value, list):
        return [(str(index), child) for index, child in enumerate(value)]
    return []


def _depth_exceeds(value: Any, most: int) -> bool:
    level = [value]
    for _ in range(most):
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return False
    return True


def _find_nul(value: Any) -> str | None:
    pending: list[tuple[str, Any]] = [("", value)]
    while pending:
        pointer, item = pending.pop()
        if isinstance(item, str) and "\0" in item:
            return pointer
        if isinstance(item, dict) and any("\0" in key for key in item):
            return pointer
        pending += [(f"{pointer}/{part}", child) for part, child in _children(item)]
    return None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            raise ApiError("invalid_json", f"the key `{key[:80]}` stands twice in one object")
        seen[key] = value
    return seen


def escape(part: str) -> str:
    """One part of a JSON pointer."""
    return part.replace("~", "~0").replace("/", "~1")


@functools.cache
def validator(schema: str) -> Any:
    return schemas.validator(f"bodies/{schema}")


def validate(schema: str, value: Any) -> None:
    """Check a body against `schemas/bodies/<schema>.json`; all problems at once, each with its pointer."""
    errors = [_problem(error) for error in _leaves(validator(schema).iter_errors(value))]
    if errors:
        count = len(errors)
        first = errors[0]["message"]
        detail = first if count == 1 else f"{count} problems; the first: {first}"
        raise ApiError("validation_failed", detail, errors=errors[:100])


def _leaves(errors: Any) -> list[jsonschema.ValidationError]:
    """The errors a person can mend: of `anyOf`/`oneOf`, those of the branch that fits best."""
    found: list[jsonschema.ValidationError] = []
    for error in errors:
        if error.context:
            best = jsonschema.exceptions.best_match([error])
            found.append(best if best is not None else error)
        else:
            found.append(error)
    return sorted(found, key=lambda error: [str(part) for part in error.absolute_path])


def _problem(error: jsonschema.ValidationError) -> dict[str, Any]:
    pointer = "".join("/" + escape(str(part)) for part in error.absolute_path)
    return {"pointer": pointer, "message": _message(error)}


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


def _message(error: jsonschema.ValidationError) -> str:
    """The problem in the contract's words."""
    value, limit = error.instance, error.validator_value
    name = f"`{error.absolute_path[-1]}`" if error.absolute_path else "the body"
    match error.validator:
        case "required":
            missing = [key for key in limit if key not in value]
            return f"{name} lacks " + ", ".join(f"`{key}`" for key in missing)
        case "additionalProperties" | "unevaluatedProperties":
            known = sorted(error.schema.get("properties", {}))
            unknown = sorted(set(value) - set(known))
            return (
                f"unknown key {', '.join(f'`{key[:60]}`' for key in unknown)}; known are {', '.join(known)}"
            )
        case "type":
            wanted = " or ".join(limit) if isinstance(limit, list) else limit
            return f"{name} must be {wanted}, not {_short(value)}"
        case "enum":
            return f"{name} is {_short(value)}; write one of " + ", ".join(_short(item) for item in limit)
        case "const":
            return f"{name} must be {_short(limit)}"
        case "minLength" | "minItems" | "minProperties":
            return f"{name} is too short; at least {limit}"
        case "maxLength" | "maxItems" | "maxProperties":
            return f"{name} is too long; at most {limit}"
        case "minimum" | "exclusiveMinimum":
            return f"{name} is {_short(value)}; the least is {limit}"
        case "maximum" | "exclusiveMaximum":
            return f"{name} is {_short(value)}; the most is {limit}"
        case "pattern" | "format":
            expected = error.schema.get("description", f"of the form {limit}")
            return f"{name} is {_short(value)}; expected {expected}"
        case "uniqueItems":
            return f"{name} names the same item twice"
    return f"{name}: {error.message}"
