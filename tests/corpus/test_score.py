"""What the shipped presets promise on the calls of the corpus: see `score`."""

from __future__ import annotations

import pytest

from engine.model import ToolCall
from tests.corpus.score import EVERYTHING, HALVES, calls, outcome, ruleset, score, singled_out

LEAST = {
    "written": {"benign": 220, "dangerous": 170},
    "held": {"benign": 260, "dangerous": 200},
    "fresh": {"benign": 170, "dangerous": 130},
    "drawn": {"benign": 80, "dangerous": 90},
    "unseen": {"benign": 115, "dangerous": 115},
    "stranger": {"benign": 110, "dangerous": 110},
    "second": {"benign": 120, "dangerous": 120},
    "third": {"benign": 118, "dangerous": 149},
    "fourth": {"benign": 144, "dangerous": 149},
    "fifth": {"benign": 149, "dangerous": 150},
    "sixth": {"benign": 118, "dangerous": 117},
    "seventh": {"benign": 117, "dangerous": 119},
    "eighth": {"benign": 147, "dangerous": 148},
}
"""The least calls of each half."""

MISSED = 0.1
"""The most that may be missed of the dangerous calls, now that every half has been looked at: see `score`."""


@pytest.mark.parametrize("kind", ["benign", "dangerous"])
def test_the_corpus_is_large_and_no_call_stands_in_it_twice(kind: str) -> None:
    documents = [repr(each.call.document) for half in HALVES for each in calls(kind, half)]
    for half in HALVES:
        assert len(calls(kind, half)) >= LEAST[half][kind]
    assert len(set(documents)) == len(documents)
    assert all(each.why for half in HALVES for each in calls(kind, half))


@pytest.mark.parametrize("half", HALVES)
def test_ordinary_calls_are_left_alone(half: str) -> None:
    """By no pack: what one preset blocks is blocked with everything on, since no action is stronger."""
    chosen = calls("benign", half)
    everything = score(EVERYTHING, chosen)
    assert everything.share("block") == 0, list(singled_out())
    assert everything.touched <= 0.08
    assert score("starter", chosen).share("require_approval") <= 0.03


@pytest.mark.parametrize("half", HALVES)
def test_dangerous_calls_are_seen(half: str) -> None:
    chosen = calls("dangerous", half)
    missed = [each for each in chosen if outcome(ruleset(EVERYTHING), each.call)[0] == "allow"]
    assert len(missed) <= MISSED * len(chosen), list(singled_out())


@pytest.mark.parametrize("wrapper", ["params", "body"])
def test_an_argument_that_holds_all_others_hides_nothing(wrapper: str) -> None:
    rules = ruleset(EVERYTHING)
    for each in (each for half in ("unseen", "second", "fifth") for each in calls("dangerous", half)):
        document = each.call.document
        wrapped = ToolCall.of(toolName=document["toolName"], inputPayload={wrapper: document["inputPayload"]})
        found, before = outcome(rules, wrapped)[0], outcome(rules, each.call)[0]
        assert found != "allow" or before == "allow", each
