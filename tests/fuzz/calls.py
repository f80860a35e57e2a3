"""What agents send to be judged: commands, statements, whole calls."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import yaml

from engine.derived.derivation import Derivation
from engine.derived.sql.statements import statements_of
from engine.derived.summary import summary_of
from engine.derived.tools import Tools
from engine.fields.computed import MEMBERS
from engine.model import ToolCall
from engine.shell.entries import SPARE_SIZE
from engine.shell.reader import read
from tests.corpus.score import EVERYTHING, HALVES, ruleset, tool_sets
from tests.corpus.score import calls as corpus
from tests.fuzz.target import Target, split_words, text_of
from tests.harness.places import CORPUS
from tests.test_agreement import test_index_equals_scan

SHELL = (
    *split_words(
        "' \" ` $ $( ) ${ } { , ( ; | & && || < > << <<< <<- = $a ${a:- ${!a} ${a[ $' $(( )) [[ ]] if then fi"
        " do done case esac in for while eval sudo xargs base64 printf rm -rf / * ? ~ {a,b} {1..9} f() EOF"
        " function alias trap export"
    ),
    *(b"\n", b"\\\n", b"\x01", b" -c ", b"sh -c '", b'python -c "'),
)
SQL = split_words(
    "; -- /* */ /*! ' \" ` $$ $a$ ( ) , . :: -> [ ] case when then end select from where drop table delete"
    " update set insert into values union with as recursive explain create or replace alter truncate grant"
    " limit 1=1 exec"
)
STATEMENTS = (
    "select a, count(*) from t where b = 'x' group by a limit 5",
    "with x as (select 1) delete from t using x where t.id = x.id and not (1 = 1)",
    "create temporary table y as select * from z; drop table y; truncate a.b",
    "update t set a = case when b then 1 else 2 end where c in (1, 2) or d like '%'",
    "insert into t (a) values ('drop table x'), ($$a$$) on conflict do nothing -- x",
    "explain analyze delete from `t`; exec sp_x @a = 1; grant all on t to public",
)
MEMBERS_OF_A_CALL = [(root, member) for root, members in MEMBERS.items() for member in members]


def shell_seeds() -> Sequence[bytes]:
    cases = yaml.safe_load((CORPUS / "shell.yaml").read_text(encoding="utf-8"))
    return [str(case[0]).encode("utf-8", "surrogatepass") for case in cases]


def check_shell(data: bytes) -> None:
    text = text_of(data)
    found = read([text], [[text, text]], [text])
    assert found[0] == text and len(set(found)) == len(found)
    assert sum(map(len, found)) <= 6 * len(text) + 3 * (2 * len(text) + SPARE_SIZE)
    assert read([text], [[text, text]], [text]) == found


def check_sql(data: bytes) -> None:
    entries, partial = statements_of([text_of(data)])
    shape = set(MEMBERS["derived"]["sql"].shape)
    assert all(isinstance(each, dict) and set(each) == shape for each in entries)
    assert isinstance(partial, bool)


@cache
def call_seeds() -> Sequence[bytes]:
    """One call each: the tool's name, a line feed, the payload. Of the corpus every twelfth, since each takes
    long, and all of it has tests of its own."""
    found = [each.call for half in HALVES for kind in ("benign", "dangerous") for each in corpus(kind, half)]
    chosen = ((call.tool_name, json.dumps(call.document["inputPayload"])) for call in found[::12])
    return [f"{name}\n{payload}".encode() for name, payload in chosen]


def check_call(data: bytes) -> None:
    """All facts of any call can be had, and the index of all that is shipped decides as the scan does."""
    name, _, text = text_of(data).partition("\n")
    try:
        payload: Any = json.loads(text)
    except (ValueError, RecursionError):
        payload = {"command": text, "query": text, "to": text, "path": text, "url": text, "amount": text}
    call = ToolCall.of(toolName=name, inputPayload=payload)
    tools = Tools(tool_sets())
    derived = Derivation(call.document, tools)
    for root, member in MEMBERS_OF_A_CALL:
        derived.value(root, member)
    summary_of(call, tools)
    rules = ruleset(EVERYTHING)
    assert rules.evaluate(call) == rules.scan(call)


def check_agreement(data: bytes) -> None:
    """The bytes draw policies and calls, by which index and scan are compared."""
    test_index_equals_scan.hypothesis.fuzz_one_input(data)  # type: ignore[attr-defined]


def agreement_seeds() -> Sequence[bytes]:
    chance = random.Random(0)
    return [chance.randbytes(size) for size in (100, 500, 1_000, 2_000, 4_000)]


TARGETS = (
    Target("agreement", check_agreement, agreement_seeds, rounds=20),
    Target("shell", check_shell, shell_seeds, SHELL, rounds=1_000),
    Target("sql", check_sql, lambda: [each.encode() for each in STATEMENTS], SQL, rounds=800),
    Target("call", check_call, call_seeds, SHELL + SQL, rounds=30),
)
