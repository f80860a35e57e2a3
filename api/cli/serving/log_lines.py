"""How a line of the log is written: as text for people, or as one JSON object for machines; never a secret.

What a request or an error quotes can neither begin a line nor steer a terminal. Whoever writes a line leaves
secrets out; beside that, all that looks like one, and every secret of the settings, is blotted out here.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from api.telemetry import correlation

BLOT: Final = "[secret]"
FEWEST: Final = 6
"""Characters of a secret that is looked for in lines; a shorter one would be found in ordinary words."""

_SHAPES: Final = re.compile(
    r"\b(?:agk|whsec)_[A-Za-z0-9+/=_-]{6,}"  # API keys, secrets of webhooks
    r"|\beyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"  # JSON Web Tokens
    r"|(?<=://)[^/\s@:]*:[^/\s@]+(?=@)"  # user and password in an address
    r"|(?i:\bbearer\s+)[A-Za-z0-9._~+/=-]{8,}"
    r"|(?<=hooks\.slack\.com/)\S+|(?<=/api/webhooks/)[0-9]+/\S+"  # addresses that are secrets themselves
)


class Blotter:
    """Takes secrets out of a text: those it is told, and what has the shape of one."""

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        known = sorted({each for each in secrets if len(each) >= FEWEST}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def __call__(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(BLOT, text)
        return _SHAPES.sub(BLOT, text)


class OneLine(logging.Formatter):
    """For people: time, level, what happened, for which request. Tracebacks follow in lines of their own."""

    def __init__(self, fmt: str | None = None, secrets: Sequence[str] = ()) -> None:
        super().__init__(fmt)
        self._blot = Blotter(secrets)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name that logging calls
        said = super().formatMessage(record)
        if request_id := _request(record)[0]:
            said += f" ({request_id})"
        return "".join(char if char.isprintable() else repr(char)[1:-1] for char in said)

    def format(self, record: logging.LogRecord) -> str:
        return self._blot(super().format(record))


class JsonLine(logging.Formatter):
    """For machines: `{time, level, logger, message}`, and as far as there are any `requestId`, `traceId`,
    `error` (the traceback) and the members of an access line."""

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        super().__init__()
        self._blot = Blotter(secrets)

    def format(self, record: logging.LogRecord) -> str:
        request_id, trace_id = _request(record)
        members = {"requestId": request_id} if request_id else {}
        if trace_id:
            members["traceId"] = trace_id
        members |= getattr(record, "members", {})
        if record.exc_info:
            members["error"] = self.formatException(record.exc_info)
        at, level, name = record.created, record.levelname.lower(), record.name
        return self._blot(json_line(level, record.getMessage(), members, logger=name, at=at))


def json_line(
    level: str,
    message: str,
    members: Mapping[str, Any],
    *,
    logger: str = "governance",
    at: float | None = None,
) -> str:
    """One line of the log for machines; of now, unless `at` says when, in seconds."""
    import msgspec  # every command loads this module, and few write such lines

    moment = datetime.now(UTC) if at is None else datetime.fromtimestamp(at, UTC)
    line: dict[str, Any] = {
        "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": level,
        "logger": logger,
        "message": message,
    }
    return msgspec.json.encode({**line, **members}).decode()


def _request(record: logging.LogRecord) -> correlation.Correlation:
    """The request that a line is about, by the line itself or by what is running."""
    named: correlation.Correlation | None = getattr(record, "request", None)
    return correlation.current() if named is None else named
