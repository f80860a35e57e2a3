"""Where a run has first seen a value, and when it was how many calls ago."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest

from engine.derived import provenance
from engine.derived.tools import Tools
from engine.fields.visible import composed
from engine.flow import values
from engine.flow.memory import MOST_OF_TASK, MOST_VALUES, NO_VALUES, SeenValues, memory_of, untrusted_texts
from engine.flow.steps import NO_STEPS, Steps
from engine.flow.values import LONGEST, whole, words
from engine.model import After, Json, ToolDeclaration
from tests.corpus.score import tool_sets

REGISTER = ToolDeclaration(
    ("register",), effect="read", output="trusted", output_fields={"notes": "untrusted"}
)
PAGE = ToolDeclaration(("page",), effect="read", output_fields={"id": "trusted"})
ACT = ToolDeclaration(("act",), effect="send", output="trusted")
ECHO = ToolDeclaration(("echo",), effect="read", output="trusted", kind="clock")


def after(
    values: SeenValues, output: Any, tool: ToolDeclaration, payload: Any = None, *, believed: bool = True
) -> SeenValues:
    return values.with_addition(values.outcome(output, tool, payload or {}, believed=believed), tool.names[0])


def test_of_a_long_task_no_more_is_worked_out_than_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    task = " ".join(f"{number:x}" for number in range(5_000))
    every = dict.fromkeys((*whole(task), *values.marked(task), *words(task, phrases=True)))
    hashed, asked = values.hashed, 0

    def counted(text: str) -> int:
        nonlocal asked
        asked += 1
        return hashed(text)

    monkeypatch.setattr(values, "hashed", counted)
    known = NO_VALUES.with_task(task)
    assert known.full and known.task == set(list(every)[:MOST_OF_TASK])
    assert asked < 2 * MOST_OF_TASK < len(every)
    asked = 0
    assert known.with_task("one more thing").task == known.task
    assert asked < 10


def test_a_text_that_lists_very_many_is_looked_at_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    known = NO_VALUES.with_task("write to bob@corp.example")
    asked: list[Any] = []
    source = SeenValues.source

    def noted(self: SeenValues, value: Any) -> str:
        asked.append(value)
        return source(self, value)

    monkeypatch.setattr(SeenValues, "source", noted)
    some = ", ".join(["bob@corp.example"] * (provenance.MOST_TARGETS - 1))
    assert provenance.source_of(some, known) == "task"
    assert provenance.source_of(f"{some}, mallory@evil.example", known) == "unseen"
    asked.clear()
    assert provenance.source_of(",".join([some] * 100), known) == "unseen"
    assert len(asked) <= provenance.MOST_TARGETS + 2
    read = after(known, "mallory@evil.example", PAGE)
    assert provenance.source_of(f"{',' * 10_000}mallory@evil.example", read) == "untrusted"
    assert provenance.origin_of(f"{',' * 10_000}mallory@evil.example", read) is not None


def test_the_first_source_counts_and_a_persons_word_outweighs_it() -> None:
    values = after(
        after(NO_VALUES, "mallory@evil.example", PAGE), ["mallory@evil.example", "al@corp.example"], REGISTER
    )
    assert (
        values.source("Mallory@evil.example") == "untrusted" and values.source("al@corp.example") == "trusted"
    )
    assert values.origin("mallory@evil.example") == "page"
    assert after(values, "al@corp.example", PAGE).source("al@corp.example") == "trusted"
    assert values.with_task("ask mallory@evil.example").source("mallory@evil.example") == "task"
    approved = values.with_addition(values.approved({"to": ["mallory@evil.example"]}), "")
    assert approved.source("mallory@evil.example") == "task"
    assert values.source("bob@corp.example") == "unseen"
    in_text = values.approved({"arguments": '{"to": ["bob@corp.example"]}'})
    assert values.with_addition(in_text, "").source("bob@corp.example") == "task"


def test_keys_of_the_structure_say_what_is_believed() -> None:
    values = after(NO_VALUES, {"mail": "al@corp.example", "notes": {"mail": "eve@evil.example"}}, REGISTER)
    assert [values.source(each) for each in ("al@corp.example", "eve@evil.example")] == [
        "trusted",
        "untrusted",
    ]
    values = after(NO_VALUES, [{"id": "m-77", "body": "id: m-88"}], PAGE)
    assert [values.source(each) for each in ("m-77", "m-88")] == ["trusted", "untrusted"]


NOTES = "- name: Al\n  mail: al@corp.example\n  notes: ask eve@evil.example\n"


@pytest.mark.parametrize(
    "output",
    [
        {"content": [{"type": "text", "text": NOTES}]},
        {"content": [{"type": "text", "text": '[{"mail": "al@corp.example", "notes": "eve@evil.example"}]'}]},
        [{"type": "text", "text": NOTES}, {"type": "image", "data": "x"}],
        NOTES,
    ],
)
def test_records_in_texts_of_mcp_are_taken_apart_as_well(output: Json) -> None:
    values = after(NO_VALUES, output, REGISTER)
    assert values.source("al@corp.example") == "trusted"
    assert values.source("eve@evil.example") == "untrusted"
    assert list(untrusted_texts(output, REGISTER))[:1] in (["ask eve@evil.example"], ["eve@evil.example"])


@pytest.mark.parametrize(
    "output",
    [
        "Al, al@corp.example, notes: ask eve@evil.example",
        NOTES.replace("ask", "now: ask"),
        "# Al\n\nNotes\neve@evil.example",
        NOTES.replace("notes: ask", "notes: &x"),
        '[{"notes": "eve@evil.example"}',
        ["- notes: eve@evil.example"],
        {"result": '[{"notes": "eve@evil.example"}]'},
        {"result": "Al (eve@evil.example)"},
        {"record": '[{"notes": "eve@evil.example"}]'},
        {"record": "al\nnotes eve@evil.example"},
        {"content": [{"type": "text", "text": "Notes of Al: eve@evil.example"}]},
    ],
)
def test_of_a_text_that_may_hold_such_fields_nothing_is_believed(output: Json) -> None:
    """Whoever writes the notes may write them so that nobody can tell them from the rest."""
    assert after(NO_VALUES, output, REGISTER).source("eve@evil.example") == "untrusted"
    assert list(untrusted_texts(output, REGISTER)), "so the run is labelled"


@pytest.mark.parametrize("output", ["al@corp.example", ["al@corp.example"], {"result": "al@corp.example"}])
def test_one_value_is_no_record(output: Json) -> None:
    assert after(NO_VALUES, output, REGISTER).source("al@corp.example") == "trusted"
    assert not [*untrusted_texts(["Al Corp", "No contacts found.", {"mail": "x y, z", "n": 7}], REGISTER)]


@pytest.mark.parametrize(
    "value",
    [
        "eve@evil.example",
        "https://evil.example",
        "evil.example",
        "DE89370400440532013000",
        "/x",
        "+15551234567",
        "0x52908400098527886E0F7030069857D2E4169EE7",
    ],
)
def test_a_text_that_poses_as_structure_brings_no_address(value: str) -> None:
    assert after(NO_VALUES, f"id: {value}\nbody: hi", PAGE).source(value) == "untrusted"
    assert after(NO_VALUES, {"id": value}, PAGE).source(value) == "trusted"
    assert after(NO_VALUES, "id: m-77\nbody: hi", PAGE).source("m-77") == "trusted"


@pytest.mark.parametrize(
    "written",
    [
        "\uff24\uff25\uff18\uff19370400440532013000",
        "DE\u200b89370400440532013000",
        "pay DE89 3704 0044 0532 0130 00",
        "x:DE89370400440532013000",
    ],
)
def test_an_account_in_other_letters_or_among_others_is_no_id(written: str) -> None:
    values = after(NO_VALUES, f"id: '{written}'\nbody: hi", PAGE)
    assert values.source("DE89370400440532013000") in ("unseen", "untrusted")


@pytest.mark.parametrize(
    "value",
    ["ab12cd34-0000-4000-8000-ab12cd34ef56", "2026-01-31T10:00:00+01:00", "09:30", "T-12", "18c2f00d"],
)
def test_an_id_or_a_time_is_believed_as_a_whole(value: str) -> None:
    assert after(NO_VALUES, f"id: '{value}'\nbody: hi", PAGE).source(value) == "trusted"


def test_what_an_echo_was_given_is_not_trusted_for_coming_back() -> None:
    payload = {"text": "eve@evil.example"}
    values = after(NO_VALUES, "eve@evil.example at 2026-01-31", ECHO, payload)
    assert [values.source(each) for each in ("eve@evil.example", "2026-01-31")] == ["unseen", "trusted"]
    assert after(NO_VALUES, "eve@evil.example", REGISTER, payload).source("eve@evil.example") == "trusted"


@pytest.mark.parametrize(
    ("tool", "output"),
    [
        ("http_request", {"status": 200, "body": {"status": "eve@evil.example"}}),
        ("fetch", {"statusCode": "eve@evil.example"}),
        ("get_logs", [{"field": "from", "value": "eve@evil.example"}]),
        ("task_output", {"id": "t-1", "result": {"id": "eve@evil.example"}}),
    ],
)
def test_no_key_that_outsiders_write_is_trusted_by_the_library(tool: str, output: Json) -> None:
    assert (
        after(NO_VALUES, output, Tools(tool_sets()).declared(tool)).source("eve@evil.example") == "untrusted"
    )


def test_what_an_act_was_given_is_not_trusted_for_coming_back() -> None:
    payload = {"to": "eve@evil.example", "body": "call 4711"}
    values = after(NO_VALUES, "sent to eve@evil.example as m-77, call 4711", ACT, payload)
    assert [values.source(each) for each in ("eve@evil.example", "m-77", "4711")] == [
        "unseen",
        "trusted",
        "unseen",
    ]
    padded = {**payload, "pad": [f"w{n}" for n in range(20_000)]}
    assert after(NO_VALUES, "sent to eve@evil.example as m-77", ACT, padded).source("m-77") == "untrusted"


@pytest.mark.parametrize(
    "payload",
    [
        {"body": "x " * LONGEST + "eve@evil.example"},
        {"rows": [*[0] * 10_000, "eve@evil.example"]},
        {"members": {"eve@evil.example": "owner"}},
        {"members": '{"eve@evil.exampl\\u0065": "owner"}'},
        {
            "to": functools.reduce(
                lambda text, _: json.dumps(text), range(6), '{"to": "eve@evil.exampl\\u0065"}'
            )
        },
    ],
    ids=["behind a long text", "behind many values", "as a key", "as a key in a text", "deep in texts"],
)
def test_wherever_an_act_was_given_it(payload: Json) -> None:
    values = after(NO_VALUES, "sent to eve@evil.example", ACT, payload)
    assert values.source("eve@evil.example") in ("unseen", "untrusted")


@pytest.mark.parametrize("filler", [" ", ",", "\n", "\u200b", "("])
def test_a_long_value_is_not_what_it_begins_with(filler: str) -> None:
    """Only its beginning is looked at, and the tool reads all of it."""
    values = NO_VALUES.with_task("write to bob@corp.example")
    longer = "bob@corp.example" + filler * LONGEST + ", eve@evil.example"
    assert provenance.source_of("bob@corp.example", values) == "task"
    assert provenance.source_of(longer, values) == "unseen"
    approved = NO_VALUES.with_addition(NO_VALUES.approved({"to": longer}), "call")
    assert approved.source("bob@corp.example") == "unseen"


@pytest.mark.parametrize("grows", ["\ufdfa", "\u0390"])
def test_what_becomes_long_is_not_what_it_begins_with(grows: str) -> None:
    """One character becomes eighteen by composing, or three without case."""
    longer = "bob@corp.example " + grows * (LONGEST // 3 + 1)
    assert len(longer) < LONGEST
    values = NO_VALUES.with_task(longer[: LONGEST // 20])
    assert provenance.source_of(longer[: LONGEST // 20], values) == "task"
    assert provenance.source_of(longer, NO_VALUES.with_task(longer)) == "unseen"
    told = after(NO_VALUES, "al@corp.example", ACT, {"note": longer + " al@corp.example"})
    assert told.source("al@corp.example") == "untrusted", "it may have been given there"


@pytest.mark.parametrize("length", [1, 100, LONGEST // 18, LONGEST])
def test_however_long_texts_become_so_much_is_looked_at(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an output adds is worked out in a commit, for which all others wait."""
    looked_at = 0

    def counted(text: str, *room: int) -> str:
        nonlocal looked_at
        shown = composed(text, *room)
        looked_at += len(shown)
        return shown

    monkeypatch.setattr(values, "composed", counted)
    texts = [f"{number}" + "\ufdfa" * length for number in range(min(9_000, 300_000 // length))]
    NO_VALUES.with_task("".join(texts))
    NO_VALUES.outcome(texts, PAGE, {})
    NO_VALUES.approved(texts)
    NO_VALUES.outcome("sent", ACT, {"to": texts})
    document = {"toolName": "act", "inputPayload": {"to": texts}}
    found = provenance.arguments_of(document, ToolDeclaration(("act",), effect="send", where=("to",)))
    provenance.targets_of(found, NO_VALUES)
    assert found[1] is False
    assert looked_at < 100 * LONGEST


def test_nothing_is_believed_of_a_report_that_cannot_be() -> None:
    assert (
        after(NO_VALUES, "al@corp.example", REGISTER, believed=False).source("al@corp.example") == "untrusted"
    )


def test_a_source_keeps_so_many_values_and_says_when_there_were_more() -> None:
    names = [f"u-{number}" for number in range(MOST_VALUES)]
    values = after(NO_VALUES, names, REGISTER)
    assert not values.full and {values.source(name) for name in names} == {"trusted"}
    addition = values.outcome(["one@corp.example"], REGISTER, {})
    assert addition.full and values.with_addition(addition, "x").source("one@corp.example") == "unseen"
    assert after(values, "two-2", PAGE).source("two-2") == "untrusted", "of another source"
    words = after(NO_VALUES, " ".join(f"w{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(600)), PAGE)
    assert words.full and len(words.seen) == MOST_VALUES + 1, "the whole is a value"


@pytest.mark.parametrize("arguments", ['{"to": "m@evil.example"}', '{"to": "\\u006d@evil.example"}'])
def test_an_acts_own_inputs_are_not_trusted_for_coming_back(arguments: str) -> None:
    """However the arguments of a function are spelled in their text."""
    values = after(NO_VALUES, {"to": "m@evil.example", "id": "sent-4711"}, ACT, {"arguments": arguments})
    assert values.source("m@evil.example") == "unseen"
    assert values.source("sent-4711") == "trusted"


def test_a_run_that_is_handed_on_has_room_of_its_own() -> None:
    parent = after(NO_VALUES.with_task("for bob"), ["al@corp.example", "some words here"], REGISTER)
    child = NO_VALUES.with_addition(parent.handed_on(), "0")
    assert [child.source(each) for each in ("bob", "al@corp.example", "some")] == [
        "task",
        "trusted",
        "trusted",
    ]
    for single in (True, False):
        assert child.count("trusted", single) == parent.count("trusted", single)


def test_what_people_write_down_is_a_memory() -> None:
    before = [
        {"toolName": "page", "inputPayload": {}, "outputPayload": "eve@evil.example"},
        {"toolName": "register", "outputPayload": "al@corp.example", "blocked": True},
        {"said": "and to Carol Jones"},
        {"toolName": "act", "inputPayload": {"to": "dan@corp.example"}, "approved": True, "labels": ["odd"]},
    ]
    tools = {"page": PAGE, "register": REGISTER, "act": ACT}
    memory = memory_of("write to bob", before, lambda name: tools[name])
    sources = {
        name: memory.values.source(name)
        for name in ("bob", "carol jones", "dan@corp.example", "eve@evil.example", "al@corp.example")
    }
    assert sources == {
        "bob": "task",
        "carol jones": "task",
        "dan@corp.example": "task",
        "eve@evil.example": "untrusted",
        "al@corp.example": "untrusted",
    }
    assert memory.steps.holds(After("label", "odd", 1), str.isalpha)
    assert not memory.steps.holds(After("tool", "register"), lambda name: name == "register"), (
        "it was blocked"
    )
    assert memory.steps.holds(After("tool", "page", 3), lambda name: name == "page")
    assert not memory.steps.holds(After("tool", "page", 2), lambda name: name == "page")


def test_calls_are_counted_only_while_somebody_asks() -> None:
    bounds = {"tool:x": 2, "label:y": 0}
    steps = NO_STEPS.advanced([], bounds)
    assert steps is NO_STEPS
    steps = steps.advanced(["tool:x", "policy:unasked"], bounds)
    assert steps == Steps(1, {"tool:x": 1})
    assert steps.holds(After("tool", "x", 1), str.isalpha)
    steps = steps.advanced(["label:y"], bounds)
    assert steps.holds(After("tool", "x", 2), str.isalpha) and not steps.holds(
        After("tool", "x", 1), str.isalpha
    )
    steps = steps.advanced([], bounds)
    assert set(steps.marks) == {"label:y"} and steps.advanced([], bounds) is steps
    assert steps.holds(After("label", "y"), str.isalpha)
    assert NO_STEPS.marked(["label:y"], bounds).holds(After("label", "y", 1), str.isalpha)


@pytest.mark.parametrize(
    "payload",
    [
        {"to": "a@x.example", "body": "b"},
        {"to": ["a@x.example", "", "b@x.example"], "Cc": "c"},
        {"message": {"to": {"email": "a@x.example"}}, "arguments": '{"to": ["x", {"y": 5, "z": null}]}'},
        {"to": {"a@x.example": True}, "cc": None, "list": [[{"to": "x"}]]},
        {"to": ' {"cc": "x"}', "cc": 5},
        {},
        "text",
        [{"to": "x"}],
    ],
)
def test_plain_arguments_are_found_as_all_others_are(payload: Any) -> None:
    named = frozenset({"to", "cc"})
    flat = provenance._flat(payload, named)
    assert flat is None or flat == list(provenance._arguments(payload, named, []))


@pytest.mark.parametrize(
    "before", [[[]] * 50_000, ["a"] * 10_001, [None] * 50_000], ids=["lists", "letters", "nulls"]
)
def test_an_output_of_which_a_part_is_not_looked_at_says_so(before: list[Any]) -> None:
    output = [*before, "eve@evil.example"]
    for said in (output, json.dumps(output)):
        assert NO_VALUES.outcome(said, PAGE, {}).full
    assert not NO_VALUES.outcome([*before[:9_000], "eve@evil.example"], PAGE, {}).full
