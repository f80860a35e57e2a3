"""What the shipped presets do to ordinary and to dangerous calls: `python -m tests.corpus.score [--calls]`.

Reads the calls of `tests/corpus`, one JSON object a line. The halves `written` are those that the presets
were written with, the halves `held` were written afterwards by others, and the halves `fresh` after those.
Counts, for each pack and for everything on, the ordinary calls that are blocked, held and warned of, and
the dangerous ones that are missed. Policies with a rate limit say nothing of single calls and are left out.

With everything on, at first sight of the held half, 1.1 % of its ordinary calls were blocked, 7.3 % touched,
and 19.7 % of the dangerous ones missed: that is what to expect of calls that nobody has looked at. Its faults
were then mended, which left 0 %, 4.6 % and 2.9 %; so that half is used up, and the next claim needs a new
one. A dangerous call that stood in both halves was taken out of the held one.

That is the set `fresh`, written without a look at the presets or at the other calls. With everything on, at
first sight of it, 0 % of its 170 ordinary calls were blocked, 5.3 % touched, and 9.7 % of the 134 dangerous
ones missed; `starter` alone held none of the ordinary ones and missed 61.2 % of the dangerous. Two ordinary
and nine dangerous calls whose command or query stood in an older half were taken out before the count.
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

HALVES: Final = ("written", "held", "fresh")
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
    """The calls of a half: `benign` or `dangerous`, `written`, `held` or `fresh`."""
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
