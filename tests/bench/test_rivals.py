"""The benchmark of rivals, without installing any: the rules are the same for all, the report is readable."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.documents.policy import policy_from_json
from engine.matching.ruleset import Ruleset
from engine.model import ToolCall
from tests.bench import rivals
from tests.bench.contender import Contender, Unavailable, from_npm, last_line, python_from, run
from tests.bench.contenders import CONTENDERS, policies
from tests.bench.load import Measured
from tests.bench.rules import HELD, Call, calls, held, rules

Answer = dict[str, Any]


def measured(requests: int) -> Measured:
    return Measured(requests=requests, micros=2_000_000, p50=1_500, p99=9_000, refused=0, broken=0)


def test_the_calls_are_held_as_often_as_is_said() -> None:
    for count in (0, 100, 1_000):
        given = rules(count)
        assert len({rule.name for rule in given}) == count
        share = sum(held(given, call) for call in calls(given)) / len(calls(given))
        assert share == pytest.approx(HELD if count else 0, abs=0.05)


def test_the_engine_agrees_with_what_the_rules_say() -> None:
    given = rules(100)
    ruleset = Ruleset.build([policy_from_json(each) for each in policies(given)])
    for call in calls(given, 200):
        asked = ToolCall.of(
            toolName=call.tool, inputPayload=call.payload, agentId="a", runId="r", toolCallId="t"
        )
        assert bool(ruleset.evaluate(asked).matches) == held(given, call)


@pytest.mark.parametrize("kind", CONTENDERS, ids=lambda kind: kind.name)
def test_every_server_says_how_it_is_measured(kind: type[Contender], tmp_path: Path) -> None:
    server = kind(tmp_path)
    assert all((server.version, server.started, server.request, server.records, server.path.startswith("/")))
    assert server.durable in {"durable", "nothing"}
    assert all("==" in each or "@" in each for each in server.packages), "a version that is not pinned"
    call = Call("mail.send", {"amount": 5, "account": "AC-1"})
    sent = json.dumps(server.body(call, 1))
    assert "mail.send" in sent
    assert '"amount": 5' in sent


@pytest.mark.parametrize(
    ("name", "holding", "free"),
    [
        ("this service", {"toolCallStatus": "blocked"}, {"toolCallStatus": "allowed"}),
        ("Agent Governance", {"decision": "require_approval"}, {"decision": "allow"}),
        (
            "Cerbos",
            {"results": [{"actions": {"a": "EFFECT_DENY"}}]},
            {"results": [{"actions": {"a": "EFFECT_ALLOW"}}]},
        ),
        ("agentgate", {"status": "pending"}, {"status": "approved"}),
        ("Agent Control", {"is_safe": False}, {"is_safe": True}),
    ],
)
def test_answers_are_read(name: str, holding: Answer, free: Answer, tmp_path: Path) -> None:
    (kind,) = (each for each in CONTENDERS if rivals.wanted(each.name, [name]))
    assert kind(tmp_path).held(holding)
    assert not kind(tmp_path).held(free)


def test_the_report_names_the_measured_and_the_missing(tmp_path: Path) -> None:
    chosen = [kind(tmp_path) for kind in CONTENDERS]
    pair = rivals.Pair(measured(20_000), measured(5_000))
    rows = [rivals.Row.of(chosen[0], 1_000, [pair])]
    given = ["--seconds", "2", "--installed", str(tmp_path), "--write"]
    text = rivals.report(given, chosen, rows, {chosen[1].name: "pip install failed: no such thing"})
    assert "| this service | durable | 1,000 | 2,500 | 0.250 | 1.5 | 9.0 | 0 | 10,000 |" in text
    assert "pip install failed: no such thing" in text
    assert all(name in text for name in rivals.ABSENT)
    assert '`make bench-rivals ARGS="--seconds 2 --write"`' in text
    assert str(tmp_path) not in text


def test_the_readme_gets_a_line_for_each_server(tmp_path: Path) -> None:
    first, second, *_ = (kind(tmp_path) for kind in CONTENDERS)
    pair = rivals.Pair(measured(20_000), measured(5_000))
    worse = rivals.Pair(measured(20_000), Measured(500, 2_000_000, 1_500, 9_000, refused=100, broken=0))
    rows = [rivals.Row.of(first, count, [pair]) for count in (0, 100)] + [rivals.Row.of(second, 0, [worse])]
    short = rivals.summary(rows, [0, 100])
    assert short.split("\n")[2] == ("| this service | durable | 0.250 (2,500) | 0.250 (2,500) | 1.5 | 9.0 |")
    assert short.split("\n")[3].endswith("| durable | 0.020 (200) |  |  |  |")
    before = "Text.\n\n| server | keeps | old |\n|---|---|---|\n| x | y | z |\n\nMore.\n"
    assert rivals.into(before, short) == f"Text.\n\n{short}\n\nMore.\n"


def test_a_slow_server_is_loaded_for_longer() -> None:
    assert rivals.enough(measured(20_000)) == 1
    assert rivals.enough(measured(40)) == 13
    assert rivals.enough(measured(0)) == 30


def test_what_goes_wrong_is_one_line_without_addresses(tmp_path: Path) -> None:
    said = "notice\nnpm error 404 Not Found - GET https://registry.example/x at /root/place/x.json\n\n"
    assert last_line(said) == "npm error 404 Not Found - GET ... at ..."
    with pytest.raises(Unavailable, match="reading failed: it said so"):
        run([sys.executable, "-c", "import sys; sys.exit('it said so')"], 20, "reading")
    with pytest.raises(Unavailable, match="`no-such-program` is not here"):
        run(["no-such-program"], 20, "reading")


def test_what_is_installed_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "installed").touch()
    assert from_npm(tmp_path, ["nothing@1"]) == tmp_path / "node_modules" / ".bin"


def test_an_interpreter_that_is_too_new_for_this_machine_is_named() -> None:
    assert python_from(sys.version_info.minor) == sys.executable
    with pytest.raises(Unavailable, match="or newer; none is on the path"):
        python_from(90)


def test_the_results_and_the_readme_name_every_server() -> None:
    results = rivals.RESULTS.read_text(encoding="utf-8")
    readme = rivals.README.read_text(encoding="utf-8")
    for name in [kind.name for kind in CONTENDERS] + list(rivals.ABSENT):
        assert name in results, name
        assert name in readme, name
    assert "make bench-rivals" in readme
    assert readme.count("| server | keeps |") == 1
