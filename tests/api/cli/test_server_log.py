"""What the web server says of requests is bounded: anybody can send what is no HTTP."""

from __future__ import annotations

import logging
import logging.config

from api.cli.commands.serve import LOGGING, OneLine, Repeats


def test_requests_that_are_no_http_are_told_once_a_minute() -> None:
    now, told = 0.0, []
    repeats = Repeats(lambda: now)

    def warn(words: str) -> None:
        record = logging.LogRecord("uvicorn.error", logging.WARNING, "", 0, words, None, None)
        if repeats.filter(record):
            told.append(record.getMessage())

    for _ in range(1_234):
        warn("Invalid HTTP request received.")
    warn("Another warning.")
    now = 61.0
    warn("Invalid HTTP request received.")
    now = 200.0
    warn("Invalid HTTP request received.")
    first = "Invalid HTTP request received."
    counted = f"{first} (and 1,233 since this was said last)"
    assert told == [first, "Another warning.", counted, first]
    assert "repeats" in LOGGING["loggers"]["uvicorn.error"]["filters"]


def test_what_a_message_quotes_begins_no_line() -> None:
    made = logging.config.DictConfigurator(LOGGING).configure_formatter(LOGGING["formatters"]["line"])
    assert isinstance(made, OneLine)
    quoted = "a\nb\r\nc\u2028d\x1b[2J\\e é"
    record = logging.LogRecord("governance", logging.WARNING, "", 0, "quoted: %s", (quoted,), None)
    line = made.format(record)
    assert line.endswith("WARNING governance: quoted: a\\nb\\r\\nc\\u2028d\\x1b[2J\\e é")
    assert len(line.splitlines()) == 1
