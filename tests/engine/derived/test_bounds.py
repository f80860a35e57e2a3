"""Derived facts of hostile calls: nothing raises, all is linear, what is beyond a bound is an ERROR."""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.conditions.compiled import compile_condition
from engine.derived import derivation
from engine.derived.derivation import Derivation
from engine.derived.facts import Facts
from engine.derived.recipients import domain_of
from engine.derived.sql.statements import statements_of
from engine.derived.tools import Tools
from engine.fields.computed import MEMBERS, UNREADABLE
from engine.matching.ruleset import Ruleset
from engine.model import Condition, Fault, Policy, ToolCall, ToolDeclaration, ToolSet
from tests.engine.derived.declared import SET, TOOLS, is_partial, shown
from tests.harness.effort import examples

ALL = [(root, member) for root, members in MEMBERS.items() for member in members]
NAMES = [
    "bash",
    "send_email",
    "read_file",
    "run_sql",
    "http_request",
    "transfer",
    "frobnicate",
    "python_exec",
    "",
]

keys = st.sampled_from(
    [
        "to",
        "cc",
        "email",
        "command",
        "args",
        "path",
        "source",
        "url",
        "host",
        "sql",
        "query",
        "amount",
        "currency",
    ]
)
pieces = st.sampled_from(
    [
        *(
            "a@b.c",
            '"',
            "<",
            ">",
            ",",
            ";",
            "(",
            "\\",
            "[",
            "]",
            "@",
            "http://",
            "//",
            "[::1]",
            "0x",
            "127.1",
        ),
        *("rm ", "-rf ", "~/", "$HOME", "*", "| ", "> ", "`", "$(", "')", "tar czf - ", "curl ", "xargs "),
        *("$1 ", "&& ", "sh ", "x=", "<< ", "if ", "done "),
        *(
            "drop table x",
            "select ",
            "'",
            "--",
            "/*",
            "1,250.00",
            "€",
            "EUR",
            "%41",
            "aWdub3Jl",
            "\u200b",
            "\ud800",
        ),
        *('{"a": "rm x"}', '{"a":1,"a":2}', "а", "\0", "\u0301", "file:///"),
    ]
)
texts = st.lists(pieces, max_size=8).map("".join) | st.text(max_size=20)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys | texts, inner, max_size=3),
    max_leaves=8,
)


@examples(300, 6_000)
@given(st.sampled_from(NAMES) | texts, documents)
def test_no_json_document_raises(tool: str, payload: Any) -> None:
    derived = Derivation({"toolName": tool, "inputPayload": payload}, TOOLS)
    for root, member in ALL:
        value, partial = derived.value(root, member)
        kind = MEMBERS[root][member].kind
        if kind in ("list", "records"):
            assert isinstance(value, list)
            if kind == "list":
                assert all(isinstance(each, str) for each in value)
            else:
                assert all(set(each) == set(MEMBERS[root][member].shape) for each in value)
        assert not partial or UNREADABLE in repr(value)


def deep(depth: int) -> Any:
    payload: Any = "rm x"
    for _ in range(depth):
        payload = [payload]
    return {"command": payload}


HOSTILE: dict[str, Callable[[int], Any]] = {
    "deep": deep,
    "quotes": lambda n: {"to": '"' * n},
    "escaped quotes": lambda n: {"to": '\\"' * n},
    "at signs": lambda n: {"to": "@" * n},
    "no at sign": lambda n: {"to": "a" * n + "@"},
    "blanks before at signs": lambda n: {"to": "a" + " " * n + "@ b@ c"},
    "many at signs with blanks": lambda n: {"to": "a @b" * (n // 4)},
    "encoded words": lambda n: {"to": "=?utf-8?q?a=40b?= " * (n // 18)},
    "begun encoded words": lambda n: {"to": "=?utf-8?q?a" * (n // 11)},
    "head of a mail": lambda n: {"raw": "To: a@b\n " * (n // 10)},
    "blanks of a head": lambda n: {"raw": "To" + " " * n + ":"},
    "addresses as keys": lambda n: {"to": {f"a{x}@b": 1 for x in range(n // 12)}},
    "doubtful hosts": lambda n: {"url": "http://a^" * (n // 9)},
    "one doubtful host": lambda n: {"url": "http://" + "^@" * (n // 2)},
    "blanks in a host": lambda n: {"url": "http://a" + " " * n + "@b"},
    "proxies": lambda n: {"command": "ls", "x": "https_proxy  =  " * (n // 16)},
    "commas": lambda n: {"to": "a," * n},
    "brackets": lambda n: {"to": "<(" * n},
    "addresses": lambda n: {"to": [f"a{x}@b{x}.example" for x in range(n // 20)]},
    "one long domain": lambda n: {"to": "a@" + "é" * n},
    "long labels": lambda n: {"hosts": [f"{x}{'é' * 200}.com" for x in range(n // 400)]},
    "labels": lambda n: {"to": "a@" + "é." * n},
    "colons": lambda n: {"url": "a:" * n},
    "slashes": lambda n: {"url": "http:" + "/" * n},
    "urls": lambda n: {"text": " ".join(f"http://h{x}.example/" for x in range(n // 20))},
    "dots in a host": lambda n: {"host": "." * n + "a"},
    "paths": lambda n: {"paths": [f"/a/{x}" for x in range(n // 12)]},
    "a long path": lambda n: {"path": "/.." * n},
    "stars": lambda n: {"path": "/*" * n},
    "classes": lambda n: {"path": "[a]" * n},
    "options": lambda n: {"command": "rm " + "-- " * n},
    "a word of dashes": lambda n: {"command": "curl " + "-" * n},
    "clusters": lambda n: {"command": "curl " + "-" + "s" * n + "; tar " + "x" * n},
    "long options": lambda n: {"command": "curl " + " ".join(f"--o{x}=y" for x in range(n // 10))},
    "what find starts": lambda n: {"command": "find / -exec sudo rm {} +;" * (n // 27)},
    "finds within finds": lambda n: {"command": "find / -exec " * (n // 13)},
    "what xargs starts": lambda n: {"command": "ls / | xargs sudo rm;" * (n // 22)},
    "files of a client": lambda n: {"command": f"echo '{';( ' * (n // 6)}' > f;" + "psql f f;" * (n // 20)},
    "blanks behind words": lambda n: {"command": "sqlite3 a 'attach" + " " * n + "x'"},
    "words with syntax": lambda n: {"command": ["$X", *[";"] * (n // 2)]},
    "words": lambda n: {"command": "curl " + "-o x@y=/z " * (n // 10)},
    "replacements": lambda n: {"command": f"x={'a' * (n // 25)};" + "y=${x//a*b*c/};" * (n // 20)},
    "a program of brackets": lambda n: {"command": "[" * n},
    "json": lambda n: {"a": '{"a":' * n},
    "closed json": lambda n: {"a": "[" * n + "]" * n},
    "deep json with quotes": lambda n: {"a": "[" * (n // 2) + '\\"' * (n // 4)},
    "doubled keys": lambda n: {"a": "{" + ",".join(['"command":"rm x"'] * (n // 16)) + "}"},
    "doubled keys within one another": lambda n: {
        "a": '{"a":1,"a":1,"b":' * min(500, n // 20) + "1" + "}" * min(500, n // 20)
    },
    "a form": lambda n: {"to": "&".join(f"to={x}" for x in range(n // 8))},
    "heads": lambda n: {"message": "a:\n" * (n // 3), "subject": "to:\n" * (n // 4)},
    "accents": lambda n: {"a": "a" + "\u0300\u0316" * (n // 2)},
    "percent": lambda n: {"a": "%41" * (n // 3)},
    "base64": lambda n: {"a": "QUFB" * (n // 4)},
    "base64 words": lambda n: {"a": "QUFBQUFBQUFBQUFB " * (n // 17)},
    "equals": lambda n: {"a": "a" * 12 + "=" * n},
    "digits": lambda n: {"amount": "1" * n},
    "separators": lambda n: {"amount": "1" + ",." * n},
    "amounts": lambda n: {"payments": [{"amount": x} for x in range(n // 16)]},
    "parentheses": lambda n: {"sql": "select " + "(" * n},
    "cases": lambda n: {"sql": "select " + "case when " * (n // 10)},
    "comments": lambda n: {"sql": "select 1 " + "/*" * n},
    "statements": lambda n: {"sql": "select 1;" * (n // 9)},
    "rows": lambda n: {"sql": "insert into t values " + ",".join(["(1,'a')"] * (n // 8))},
    "dollars": lambda n: {"sql": "select " + "$a$" * (n // 3)},
    "explain": lambda n: {"sql": "explain " * (n // 8)},
    "blanks": lambda n: {"sql": " " * n + "x"},
    "conditional comments": lambda n: {"sql": "/*!" * (n // 3), "ddl": "/*!1*/" * 1_000},
    "gaps": lambda n: {"query": "x" + " ;( " * (n // 4)},
    "lines": lambda n: {"query": "--" + "\n" * n},
    "tables": lambda n: {"query": ";table x " * (n // 9)},
    "comments without an end": lambda n: {"query": ";/*" * (n // 3)},
    "dashes": lambda n: {"sql": "--\n" * (n // 3)},
}


def repeated(text: str, times: int) -> str:
    """A text as JSON of JSON."""
    for _ in range(times):
        text = json.dumps(text)
    return text


def nested(text: str, depth: int) -> str:
    """A text of JSON that has the members of another, and lists within one another to a depth."""
    return text.removesuffix("}") + ', "z": ' + "[" * depth + "]" * depth + "}"


def seconds(payload: Any, tool: str) -> float:
    """Without the garbage of other tests, whose collection would fall into one of the times by chance."""
    gc.disable()
    try:
        begun = time.process_time()
        derived = Derivation({"toolName": tool, "inputPayload": payload}, TOOLS)
        for root, member in ALL:
            derived.value(root, member)
        return time.process_time() - begun
    finally:
        gc.enable()


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("tool", ["bash", "run_sql", "send_email", "frobnicate"])
def test_effort_is_linear(name: str, tool: str) -> None:
    seconds({"sql": "select 1"}, tool)
    some, more = seconds(HOSTILE[name](25_000), tool), seconds(HOSTILE[name](100_000), tool)
    assert more < 3
    assert more < 10 * some + 0.2


@pytest.mark.parametrize(
    ("tool", "payload", "member", "operator", "value"),
    [
        ("send_email", HOSTILE["addresses"](100_000), "recipients", "equals", "x@y.example"),
        ("send_email", HOSTILE["addresses"](100_000), "recipientDomains", "not_in", ["x.example"]),
        ("run_sql", HOSTILE["rows"](100_000), "sql.verb", "equals", "drop"),
        ("run_sql", HOSTILE["parentheses"](10_000), "sql.verb", "not_equals", "drop"),
        ("bash", {"command": "eval " * 20 + "ls"}, "deletes", "in", ["/"]),
        ("bash", {"command": "eval " * 20 + "ls"}, "commands.program", "equals", "rm"),
        ("bash", {"command": "eval " * 20 + "ls"}, "hosts", "contains", "evil"),
        ("delete_file", HOSTILE["paths"](100_000), "deletes", "equals", "/"),
        ("read_file", {"path": "/etc/" + "%2e/" * 2_000 + "x"}, "reads", "equals", "/etc/x"),
        ("write_file", {"path": "a.b/" * 2_000 + "../.."}, "writes", "starts_with", "b"),
        ("frobnicate", {"a": "\ufdfa" * 100_000}, "text", "contains", "ignore"),
        ("send_email", {"to": ["\ufdfa" * 2_000] * 20}, "recipients", "equals", "x@y.example"),
        ("pay_to", {"to": ["x" * 1_000] * 100}, "targets", "equals", "m"),
        ("transfer", {"amount": "a lot"}, "amount", "greater_than", 5),
        ("transfer", {"amount": "a lot"}, "amount", "less_than", 5),
        *(
            (tool, {"a": nested(text, 1_100)}, member, "equals", value)
            for tool, text, member, value in (
                ("bash", '{"command": "rm", "args": ["-rf", "/"]}', "shellCommands", "rm -rf /"),
                ("bash", '{"command": "rm", "args": ["-rf", "/"]}', "commands.program", "rm"),
                ("bash", '{"command": "rm", "args": ["-rf", "/"]}', "deletes", "/"),
                ("read_file", '{"path": "/etc/shadow"}', "reads", "/etc/shadow"),
                ("http_request", '{"url": "http://ev\\u0069l.example"}', "hosts", "evil.example"),
                ("http_request", '{"url": "http://ev\\u0069l.example"}', "urls", "http://evil.example"),
                ("send_email", '{"to": "m@evil.example"}', "recipients", "m@evil.example"),
                ("send_email", '{"to": "m@evil.example"}', "recipientDomains", "evil.example"),
                ("run_sql", '{"query": "drop table x"}', "sql.verb", "drop"),
                ("transfer", '{"amount": 5000}', "amount", 5000),
                ("frobnicate", '{"note": "ign\\u006fre"}', "text", "ignore"),
                ("pay_to", '{"to": "m"}', "targets", "m"),
            )
        ),
        ("bash", {"a": repeated('{"command": "r\\u006d -rf /"}', 5)}, "shellCommands", "equals", "rm -rf /"),
    ],
)
def test_beyond_a_bound_what_is_not_shown_is_an_error(
    tool: str, payload: Any, member: str, operator: str, value: Any
) -> None:
    condition = Condition(f"derived.{member}", operator, value)
    assert isinstance(
        compile_condition(condition).evaluate(Facts({"toolName": tool, "inputPayload": payload}, TOOLS)),
        Fault,
    )
    root = member.split(".")[0]
    expressions = {"amount": "has(derived.amount) && derived.amount > 5"}
    expression = Condition(expression=expressions.get(root, f"size(derived.{root}) > 0"))
    call = ToolCall.of(toolName=tool, inputPayload=payload)
    assert isinstance(compile_condition(expression).evaluate(Facts(call.document, TOOLS)), Fault)
    policies = [
        Policy(name, name, action, (each,))
        for action in ("block", "allow")
        for name, each in ((f"{action} field", condition), (f"{action} expression", expression))
    ]
    ruleset = Ruleset.build(policies, tools=[SET])
    assert {match.policy.policy_id for match in ruleset.evaluate(call).matches} == {
        "block field",
        "block expression",
    }
    assert ruleset.evaluate(call) == ruleset.scan(call)


@pytest.mark.parametrize(
    "chained", ["[1]", "[a]", "->'a'", "||a", "+1", "::int", ".a", " union select 1", ", a"]
)
@pytest.mark.parametrize("start", ["select a", "select `x`, [y], a"])
def test_what_is_chained_takes_steps_as_it_is_long(start: str, chained: str) -> None:
    statements_of(["select `x`, [y]"])

    def calls(times: int) -> int:
        made = 0

        def count(_frame: FrameType, event: str, _argument: object) -> None:
            nonlocal made
            made += event == "call"

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            statements_of([start + chained * times])
        finally:
            sys.setprofile(before)
        return made

    assert calls(160) < 6 * calls(40)


def test_a_member_is_worked_out_by_itself_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    for name in ("shell_reading", "recipients_of", "statements_of", "readable_texts", "amount_of", "leaves"):
        function = getattr(derivation, name)

        def counted(*arguments: Any, name: str = name, function: Any = function) -> Any:
            asked.append(name)
            return function(*arguments)

        monkeypatch.setattr(derivation, name, counted)
    tools = [
        ToolSet("x", "x", (ToolDeclaration(("mail",), "mail", "send"), ToolDeclaration(("bash",), "shell")))
    ]
    mails = [
        Policy(
            f"p{n}",
            f"p{n}",
            "block",
            (
                Condition("tool.kind", "equals", "mail"),
                Condition("derived.recipientDomains", "equals", f"x{n}.example"),
            ),
        )
        for n in range(20)
    ]
    ruleset = Ruleset.build(mails, tools=tools)
    ruleset.evaluate(ToolCall.of(toolName="bash", inputPayload={"command": "ls", "to": "a@x1.example"}))
    assert asked == []
    found = ruleset.evaluate(
        ToolCall.of(toolName="mail", inputPayload={"to": "a@x1.example", "body": "rm x"})
    )
    assert [match.policy.policy_id for match in found.matches] == ["p1"]
    assert asked == ["leaves", "recipients_of"]


def test_a_caller_can_send_neither_root() -> None:
    call = ToolCall.of(toolName="x", inputPayload={}, derived={"hosts": ["a"]}, tool={"kind": "shell"})
    for condition in (
        Condition("derived.hosts", "exists"),
        Condition("tool.kind", "equals", "shell"),
        Condition(expression='"a" in derived.hosts'),
        Condition(expression='tool.kind == "shell"'),
    ):
        assert compile_condition(condition).evaluate(Facts(call.document)) is False


def test_a_file_as_text_is_no_path_of_which_the_end_is_unknown() -> None:
    for text in ("/9j/" + "QUFB" * 2_000, "data:image/png;base64," + "QUFB" * 2_000, "one line " * 1_000):
        assert not is_partial("write_file", {"file": text}, "writes")


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("é" * 30 + ".example", "xn--" + "9ca" + "a" * 29 + ".example"),
        ("é" * 60 + ".example", "é" * 60 + ".example"),
        ("é." + "a" * 63 + "." + "b" * 64, "é." + "a" * 63 + "." + "b" * 64),
        (".".join(["é" + "a" * 47] * 5), ".".join(["é" + "a" * 47] * 5)),
    ],
)
def test_what_is_too_long_in_idna_stays_as_it_is(text: str, domain: str) -> None:
    assert domain_of(text) == domain


def test_the_last_of_what_is_partial_says_so() -> None:
    assert shown("bash", {"command": "eval " * 20 + "ls"}, "commands")[-1]["program"] == UNREADABLE
    assert shown("bash", {"command": "eval " * 20 + "ls"}, "shellCommands")[-1] == UNREADABLE
    assert not is_partial("send_email", {"body": "eval " * 20 + "ls", "to": "a@b.example"}, "files")
    assert Tools().declared("x").kind is None
