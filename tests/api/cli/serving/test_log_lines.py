"""The two forms of a line of the log, the request that it names, and what it never says."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from api.cli.serving.log_lines import BLOT, JsonLine, OneLine
from api.cli.serving.server_log import TEXT
from api.telemetry import correlation


def record(message: str, *arguments: object, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("governance", logging.WARNING, "", 0, message, arguments, None)
    made.created = 1769852040.1234
    made.__dict__ |= extra
    return made


def test_a_json_line_has_its_time_level_logger_and_message() -> None:
    assert json.loads(JsonLine().format(record("`%s`\nis new", "pay"))) == {
        "time": "2026-01-31T09:34:00.123Z",
        "level": "warning",
        "logger": "governance",
        "message": "`pay`\nis new",
    }
    assert "\n" not in JsonLine().format(record("a\nb\u2028c"))


def test_a_line_names_the_request_at_work() -> None:
    with correlation.of("req-7", "0af7651916cd43dd8448eb211c80319c"):
        line = json.loads(JsonLine().format(record("done")))
        assert (line["requestId"], line["traceId"]) == ("req-7", "0af7651916cd43dd8448eb211c80319c")
        assert OneLine(TEXT).format(record("done")).endswith("WARNING governance: done (req-7)")
        later = correlation.kept(lambda: OneLine(TEXT).format(record("later")))
    assert later().endswith("later (req-7)")
    assert OneLine(TEXT).format(record("done")).endswith("governance: done")
    named = record("fault", request=correlation.Correlation("req-8"))
    assert json.loads(JsonLine().format(named))["requestId"] == "req-8"


def test_a_fault_is_one_json_line_with_its_traceback() -> None:
    try:
        raise ValueError("the password is open sesame")
    except ValueError:
        made = record("fault")
        made.exc_info = sys.exc_info()
    line = JsonLine(["open sesame"]).format(made)
    assert "Traceback" in json.loads(line)["error"] and len(line.splitlines()) == 1
    assert "sesame" not in line
    assert "sesame" not in OneLine(TEXT, ["open sesame"]).format(made)


@pytest.mark.parametrize(
    "secret",
    [
        "agk_3vXGm0a7-_kQ",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJl",
        "Bearer dG9rZW4tb2Ytc29tZWJvZHk=",
        "governance:pass%40word",
        "T024BE7LD/B024BE7LH/Zk3jQm1xVd",
        "1134567890/s0mE-t0ken_of_a_channel",
        "the admin's password",
    ],
)
def test_what_is_secret_is_blotted_out(secret: str) -> None:
    places = {
        "governance:pass%40word": "postgresql://{}@db.example.com/governance",
        "T024BE7LD/B024BE7LH/Zk3jQm1xVd": "https://hooks.slack.com/services/{}",
        "1134567890/s0mE-t0ken_of_a_channel": "https://discord.com/api/webhooks/{}",
    }
    said = "could not reach " + places.get(secret, "({})").format(secret)
    for form in (OneLine(TEXT, ["the admin's password"]), JsonLine(["the admin's password"])):
        line = form.format(record("%s", said))
        assert secret.removeprefix("Bearer ") not in line and BLOT in line
    ordinary = "agent `mailer` of https://example.com/a:b@c: 12 of eyJ, agk_, bearer of news"
    assert OneLine("%(message)s").format(record(ordinary)) == ordinary
