"""Every error the API answers with, as RFC 9457 problem documents: one table of codes, one map to them.

Body: `{type, title, status, detail, code, errors[], requestId}`; each of `errors` is
`{pointer, message, code?, file?, line?, column?}`. A caller never sees a stack trace or a driver's text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from api.database.errors import DatabaseFull, DatabaseUnavailable
from api.store.accounts import AccountError
from engine import errors as engine_errors

T = TypeVar("T")

CODES: Final[Mapping[str, tuple[int, str, str]]] = {
    "invalid_json": (400, "Invalid JSON", "the body is not JSON"),
    "invalid_request": (400, "Invalid request", "the request cannot be read"),
    "unauthenticated": (401, "Not authenticated", "no valid credential was sent"),
    "forbidden": (403, "Forbidden", "the credential does not allow this"),
    "not_found": (404, "Not found", "nothing here has this id, or it belongs to somebody else"),
    "method_not_allowed": (405, "Method not allowed", "the path exists, the method does not"),
    "request_timeout": (408, "Request timeout", "the request did not arrive in time; see the settings"),
    "conflict": (409, "Conflict", "the request collides with the current state"),
    "approval_not_pending": (
        409,
        "Approval not pending",
        "it was resolved, expired or was cancelled",
    ),
    "event_id_conflict": (409, "Event id used before", "the same `eventId` came with another body"),
    "tool_call_conflict": (409, "Tool call changed", "the same `toolCallId` came with another payload"),
    "run_conflict": (409, "Run of another", "the run belongs to another agent or API key"),
    "policy_exists": (409, "Policy exists", "a policy with this id exists already"),
    "policy_file_invalid": (
        409,
        "Policy file invalid",
        "the file on disk does not load or is a link; left untouched",
    ),
    "precondition_failed": (412, "Precondition failed", "`If-Match` names another version"),
    "payload_too_large": (413, "Payload too large", "the body is larger than the limit"),
    "unsupported_media_type": (415, "Unsupported media type", "bodies are `application/json`"),
    "validation_failed": (422, "Validation failed", "one or more values are not accepted; see `errors`"),
    "rate_limited": (429, "Too many requests", "wait for `Retry-After` seconds"),
    "internal_error": (500, "Internal error", "a fault of the service; it was logged under `requestId`"),
    "unavailable": (
        503,
        "Service unavailable",
        "the database cannot be reached, and nothing was changed; or see `detail`: too many connections",
    ),
    "storage_full": (507, "Storage full", "there is no room left; nothing was changed"),
}
"""code -> status, title, meaning. The guide's page of error codes is made from it."""


class ApiError(Exception):
    """An error answer. `errors` are the single problems, `extra` further members of the body; `kind` tells
    refusals of one code apart where they are counted (`store/refusals.py`)."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        errors: Iterable[Mapping[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
        kind: str = "",
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.kind = kind or code
        self.detail = detail
        self.errors = [dict(error) for error in errors]
        self.headers = dict(headers or {})
        self.extra = dict(extra or {})
        self.status, self.title, _ = CODES[code]

    def body(self, request_id: str) -> dict[str, Any]:
        return {
            "type": f"urn:governance:problem:{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "errors": self.errors,
            "requestId": request_id,
        } | self.extra


def not_found(what: str, identifier: str, why: str = "") -> ApiError:
    return ApiError("not_found", f"there is no {what} `{identifier}`{why}")


def need(found: T | None, what: str, identifier: str) -> T:
    """What was looked for; raises `not_found` where there is none."""
    if found is None:
        raise not_found(what, identifier)
    return found


def invalid(pointer: str, message: str, **extra: Any) -> ApiError:
    """A single wrong value, by its JSON pointer (`/limit`, `/events/0`)."""
    return ApiError("validation_failed", message, errors=[{"pointer": pointer, "message": message} | extra])


def all_of(errors: Sequence[Mapping[str, Any]]) -> ApiError:
    """All wrong values at once, each with its pointer and message."""
    first = next((each["message"] for each in errors), "")
    detail = first if len(errors) == 1 else f"{len(errors)} problems; the first: {first}"
    return ApiError("validation_failed", detail, errors=errors)


def problem_json(problem: engine_errors.Problem) -> dict[str, Any]:
    shape: dict[str, Any] = {"pointer": problem.pointer, "message": problem.message, "code": problem.code}
    for name in ("file", "line", "column"):
        if value := getattr(problem, name):
            shape[name] = value
    return shape


def _documents(error: engine_errors.DocumentError) -> ApiError:
    return all_of([problem_json(problem) for problem in error.problems])


def as_api_error(error: BaseException) -> ApiError | None:
    """The answer for an error of the engine, the store, or one that names its `code`; None for one that is a
    fault of ours."""
    match error:
        case ApiError():
            return error
        case engine_errors.DocumentError():
            return _documents(error)
        case engine_errors.ConditionError():
            return invalid(f"/{error.part}", error.message)
        case (
            engine_errors.PolicyNotFound()
            | engine_errors.VersionNotFound()
            | engine_errors.PresetNotFound()
            | engine_errors.ToolSetNotFound()
            | engine_errors.DetectorNotFound()
        ):
            return ApiError("not_found", str(error))
        case engine_errors.PolicyExists():
            return ApiError("policy_exists", str(error))
        case engine_errors.PreconditionFailed():
            return ApiError("precondition_failed", str(error))
        case engine_errors.PolicyFileInvalid():
            return ApiError("policy_file_invalid", str(error), errors=map(problem_json, error.problems))
        case engine_errors.StorageError():
            full = "full" in str(error).lower() or "no space" in str(error).lower()
            return ApiError(
                "storage_full" if full else "unavailable", str(error), headers={"Retry-After": "5"}
            )
        case engine_errors.NewerDocuments():
            return ApiError("unavailable", str(error), headers={"Retry-After": "5"})
        case engine_errors.RepositoryError():
            return ApiError("conflict", str(error))
        case AccountError():
            return ApiError("conflict", str(error))
        case DatabaseFull():
            return ApiError("storage_full", str(error), headers={"Retry-After": "5"})
        case DatabaseUnavailable():
            return ApiError("unavailable", str(error), headers={"Retry-After": "1"})
    code = getattr(error, "code", None)
    if not isinstance(code, str) or code not in CODES:
        return None
    headers = {"WWW-Authenticate": 'ApiKey realm="governance"'} if code == "unauthenticated" else {}
    if (seconds := getattr(error, "retry_after", None)) is not None:
        headers["Retry-After"] = str(seconds)
    return ApiError(code, str(error), headers=headers, kind=getattr(error, "kind", ""))
