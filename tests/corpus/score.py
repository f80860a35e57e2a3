"""What the shipped presets do to ordinary and to dangerous calls: `python -m tests.corpus.score [--calls]`.

Reads the calls of `tests/corpus`, one JSON object a line. Counts, for each pack and for everything on, the
ordinary calls that are blocked, held and warned of, and the dangerous ones that are missed. Policies with a
rate limit say nothing of single calls and are left out.

The half `written` is what presets were written with. Each later one was written by somebody who had not
looked at the presets, was scored once, and what it showed was then mended by class, never by single call:
so it is used up, and the next claim needed a new one. Of everything on, in per cent, at first sight and now:

    half       calls      blocked  touched  missed     now touched, missed
    held       262, 207   1.1      7.3      19.7       5.3, 1.4
    fresh      170, 134   0        5.3       9.7       6.5, 0
    drawn       83,  92   0        3.6      44.6       3.6, 6.5
    unseen     118, 117   0.8      5.9      18.8       6.8, 0
    stranger   110, 110   0        3.6      14.5       3.6, 1.8
    second     120, 120   1.7      2.5      23.3       2.5, 1.7
    third      120, 150   0.8      2.5      25.3       0.8, 7.3
    fourth     150, 150   0        1.3      12.7       0.7, 2.0
    fifth      150, 150   0.7      2.7      20.0       1.3, 4.0
    sixth      120, 120   1.7      4.2      10.0       1.7, 1.7
    seventh    120, 120   2.5      5.0      14.2       2.5, 5.0
    eighth     150, 150   1.3      2.0       7.3       1.3, 2.7

`starter` alone held at most 1.7 % of the ordinary ones of any half at first sight, and holds none now. What
was blocked of ordinary calls at first sight since the second half were databases for tests and development
on the same machine, a card number that is published for tests, and a setting put into a file.

- `held`, `fresh`: calls that stood in an older half too were taken out before the count (one; eleven).
- `drawn`: titles that chance drew from Atomic Red Team, tldr and tau-bench, each written down as a call by
  hand. A catalogue of intruders' techniques is another thing than what agents do wrong.
- `unseen`: of one hand that wrote before it read, and mended afterwards; six doubtful ones were taken out.
- `stranger` to `eighth`: each of another author who had seen nothing of this project, from what they know
  of agents' tools; what an older half had too was taken out after the count (17 ordinary, 8 dangerous).
  `third` is of unusual trades and tools on purpose, `fourth` and `fifth` of tools in the proportions in
  which they are used, `sixth` of what reports of incidents and research describe, `seventh` and `eighth` of
  ordinary days.

Two sets that are not ours to keep were tried in the same way between `unseen` and `stranger`: what agents of
four models did in ToolEmu's emulated tools, with commands of RedCode-Exec and NL2Bash (208 and 57 calls: 0,
4.8 and 33.3 % missed, mostly tools that nobody had declared), and the tests of "claude-code-safety-net", a
guard of shells (65 and 58 commands, oddly spelled: 1.5, 4.6 and 44.8 %; `git checkout -- file` and the like
pass by intent).

What is left needs to be understood, not recognised: prices told to a partner, a function that returns
before it logs, a promise in a public answer.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from engine.documents.policy import policy_from_json
from engine.documents.presets import Pack, Preset, instantiate, load_pack, load_preset
from engine.documents.tool_sets import load_tool_set
from engine.matching.decision import decide
from engine.matching.ruleset import Ruleset
from engine.model import Action, Json, OrganisationSettings, ToolCall, ToolSet
from tests.harness.places import CORPUS, SHIPPED

HALVES: Final = (
    *("written", "held", "fresh", "drawn", "unseen", "stranger"),
    *("second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"),
)
EVERYTHING: Final = "everything"
SETTINGS: Final = OrganisationSettings(
    {
        "companyDomains": ["acme.com"],
        "currencies": ["EUR", "USD", "GBP"],
        "trustedHosts": ["localhost", "127.0.0.1", "::1", "acme.com"],
    }
)
"""The organisation whose calls these are."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the corpus, and why it is ordinary or dangerous."""

    call: ToolCall
    why: str


@dataclass(frozen=True, slots=True)
class Score:
    """How many calls there are, and how many came to each action; the rest is allowed."""

    calls: int
    actions: Counter[Action]

    def share(self, *actions: Action) -> float:
        return sum(self.actions[action] for action in actions) / max(1, self.calls)

    @property
    def touched(self) -> float:
        return self.share("block", "require_approval", "warn")


def calls(kind: str, half: str) -> list[Call]:
    """The calls of a half: `benign` or `dangerous`, one of `HALVES`."""
    path = CORPUS / f"{kind}-{half}.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [_call(json.loads(line)) for line in lines]


def _call(line: dict[str, Json]) -> Call:
    return Call(ToolCall.of(toolName=line["tool"], inputPayload=line["inputPayload"]), line["why"])


@cache
def tool_sets() -> tuple[ToolSet, ...]:
    return tuple(load_tool_set(path.read_bytes()) for path in sorted(SHIPPED.glob("tools/**/*.yaml")))


@cache
def presets() -> dict[str, Preset]:
    loaded = (load_preset(path.read_bytes(), path.name) for path in sorted(SHIPPED.glob("presets/*/*.yaml")))
    return {preset.preset_id: preset for preset in loaded}


@cache
def packs() -> dict[str, Pack]:
    """The shipped packs, and all presets as one."""
    loaded = [load_pack(path.read_bytes(), path.name) for path in sorted(SHIPPED.glob("packs/*.yaml"))]
    every = Pack(EVERYTHING, "Everything on", tuple(presets()))
    return {pack.pack_id: pack for pack in (*loaded, every)}


@cache
def ruleset(pack_id: str) -> Ruleset:
    """The policies of a pack for single calls, in force together."""
    chosen = (presets()[preset] for preset in packs()[pack_id].presets)
    policies = (policy_from_json(instantiate(each, {}, each.preset_id)) for each in chosen)
    alone = (each for each in policies if each.rate_limit is None)
    return Ruleset.build(alone, tools=tool_sets(), settings=SETTINGS)


def outcome(rules: Ruleset, call: ToolCall) -> tuple[Action, list[str]]:
    """What happens to a call, and the presets that say so."""
    decision = decide(rules.evaluate(call), lambda policy: False)
    return decision.action, [match.policy.policy_id for match in decision.matched]


def score(pack_id: str, chosen: Sequence[Call]) -> Score:
    rules = ruleset(pack_id)
    return Score(len(chosen), Counter(outcome(rules, each.call)[0] for each in chosen))


def table() -> Iterator[str]:
    """The scores as lines of text."""
    for half in HALVES:
        benign, dangerous = calls("benign", half), calls("dangerous", half)
        yield f"{half}: {len(benign)} ordinary calls, {len(dangerous)} dangerous ones"
        yield f"  {'pack':<14}{'blocked':>9}{'held':>9}{'warned':>9}{'missed':>9}"
        for pack_id in packs():
            one, other = score(pack_id, benign), score(pack_id, dangerous)
            shares = (one.share("block"), one.share("require_approval"), one.share("warn"), 1 - other.touched)
            yield f"  {pack_id:<14}" + "".join(f"{share:>9.1%}" for share in shares)


def singled_out() -> Iterator[str]:
    """Ordinary calls that are touched and dangerous ones that are missed with everything on."""
    for half in HALVES:
        for kind in ("benign", "dangerous"):
            for each in calls(kind, half):
                action, by = outcome(ruleset(EVERYTHING), each.call)
                if (action == "allow") == (kind == "dangerous"):
                    shown = json.dumps(each.call.document["inputPayload"], ensure_ascii=False)
                    yield f"{half} {kind} {action} {each.call.tool_name} {shown} {', '.join(by)}"


def main(arguments: Iterable[str]) -> None:
    for line in singled_out() if "--calls" in arguments else table():
        print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
