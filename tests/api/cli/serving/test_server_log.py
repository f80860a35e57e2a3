"""What the log says of requests is bounded: anybody can send what is no HTTP. Nobody waits for its reader."""

from __future__ import annotations

import logging
import logging.config
import os
import subprocess
import sys
import threading

from api.cli.serving.log_lines import OneLine
from api.cli.serving.server_log import MOST_WAITING, ErrorStream, Repeats, configuration


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
    assert "repeats" in configuration()["loggers"]["uvicorn.error"]["filters"]


def test_what_a_message_quotes_begins_no_line() -> None:
    told = configuration()
    made = logging.config.DictConfigurator(told).configure_formatter(told["formatters"]["text"])
    assert isinstance(made, OneLine)
    quoted = "a\nb\r\nc\u2028d\x1b[2J\\e é"
    record = logging.LogRecord("governance", logging.WARNING, "", 0, "quoted: %s", (quoted,), None)
    line = made.format(record)
    assert line.endswith("WARNING governance: quoted: a\\nb\\r\\nc\\u2028d\\x1b[2J\\e é")
    assert len(line.splitlines()) == 1


def test_a_log_that_nobody_reads_keeps_nobody_waiting() -> None:
    reader, writer = os.pipe()
    errors = ErrorStream(writer)
    many, kept, left_out = 3 * MOST_WAITING, 0, 0

    def log() -> None:
        for number in range(many):
            errors.handle(logging.makeLogRecord({"msg": f"line {number} {'x' * 200}"}))

    logging_thread = threading.Thread(target=log, daemon=True)
    logging_thread.start()
    logging_thread.join(60)
    assert not logging_thread.is_alive(), "whoever writes a line waits for the reader"
    with os.fdopen(reader, encoding="utf-8") as file:
        while kept + left_out < many:
            words = file.readline().split()
            if " ".join(words[1:]) == "lines of the log were left out, since it was not read":
                left_out += int(words[0].replace(",", ""))
            else:
                kept += 1
    assert left_out > 0
    errors.close()
    os.close(writer)


def test_a_process_that_ends_has_written_its_log() -> None:
    code = (
        "import logging.config; from api.cli.serving.server_log import configuration; "
        "logging.config.dictConfig(configuration()); "
        "[logging.getLogger('governance').info('line %s', number) for number in range(500)]"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert [line.split()[-1] for line in done.stderr.splitlines()] == [str(each) for each in range(500)]
