"""`governance test`: do policies do what their examples and tests say, and would anyone notice if not?"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from api.cli.policy_source import add_folder, checkout_of, default_folder, shown_path
from api.cli.report import Remark, add_format, compact, print_json, print_remarks, progress, say
from api.cli.terminal import FAILED, USAGE, CommandError, Subparsers

if TYPE_CHECKING:
    from engine.analysis.mutation import Mutant, Score
    from engine.analysis.policy_tests import Result
    from engine.model import Policy
    from engine.repository.checkout import Checkout

MOST_SURVIVORS: Final = 50

EPILOG = """\
Examples of policies, presets, tool sets and detectors are checked, and every test in *_test.yaml against all
policies of its organisation. Then each condition is dropped, negated, moved by one or made shorter: a change
that no example and no test notices is counted, and with -v reported with a call that would pin the condition
(other formats report it always). `--no-mutation` leaves that out.

exit codes:
  0  everything holds (and the mutation score is at least --min-score)
  1  an example or a test fails, or the score is too low
  2  wrong usage, a folder that cannot be read, or documents that do not load
"""


def register(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "test",
        help="check policies against their examples and tests, and the tests against changed policies",
        description="Checks that every example and every test holds, and which conditions none of them pins.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=EPILOG,
    )
    add_folder(parser)
    parser.add_argument("--no-mutation", action="store_true", help="only run what is there")
    parser.add_argument(
        "--min-score", type=_percent, metavar="PERCENT", default=0.0, help="fail below this mutation score"
    )
    parser.add_argument(
        "--show",
        type=int,
        metavar="N",
        default=MOST_SURVIVORS,
        help=f"unpinned conditions shown; default: {MOST_SURVIVORS}",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="show which conditions are not pinned")
    parser.add_argument(
        "--verify", action="store_true", help="also compare the index with the plain scan on every test"
    )
    add_format(parser)
    parser.set_defaults(run=_test)


def _percent(text: str) -> float:
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        number = -1.0
    if not 0 <= number <= 100:
        raise argparse.ArgumentTypeError(f"`{text}` is no percentage from 0 to 100")
    return number


def _test(arguments: argparse.Namespace) -> int:

    if arguments.no_mutation and arguments.min_score:
        raise CommandError("--min-score does not go with --no-mutation, which finds no score", USAGE)
    folder = arguments.folder or default_folder()
    found = checkout_of(folder)
    failures = [
        Remark("failure", each.code, each.message, shown_path(folder, each.file), each.line, each.column)
        for each in found.problems
        if each.code == "example_fails"
    ]
    broken = [each for each in found.problems if each.code != "example_fails"]
    if broken:
        raise CommandError(
            "\n".join(f"{shown_path(folder, str(each))}" for each in broken)
            + "\nthese documents do not load, so nothing was tested; see `governance lint`",
            USAGE,
        )
    if failures:
        # What has an example that fails does not load, so what the whole set decides is not known.
        arguments.no_mutation = True
        return _report(failures, [], (len(failures), 0), found, folder, arguments)
    from engine.conditions.settings import SAMPLES

    rulesets = {name: found.ruleset(name, SAMPLES) for name in found.organisations()}
    cases = 0
    with progress("testing", sum(len(test.tests) for _, test in found.tests)) as step:
        for organisation_id, test in found.tests:
            from engine.analysis.policy_tests import run

            ruleset = rulesets[organisation_id]
            for result in run(test, ruleset):
                cases += 1
                step()
                if not result.passed:
                    failures.append(_failure(result, folder))
                if arguments.verify and ruleset.scan(result.case.call) != ruleset.evaluate(result.case.call):
                    raise CommandError(
                        f"index and scan disagree on `{result.case.about}`; please report this"
                    )
    examples = sum(
        len(policy.examples) for policies in found.policies.values() for policy in policies.values()
    )
    examples += sum(len(preset.template.get("examples", ())) for preset in found.presets.values())
    examples += sum(len(found.examples(path)) for path in (*found.tool_sets, *found.detectors))
    scores = [] if arguments.no_mutation else list(_scores(found, rulesets))
    return _report(failures, scores, (examples, cases), found, folder, arguments)


def _failure(result: Result, folder: str) -> Remark:
    first, *rest = result.differences
    call = {name: value for name, value in result.case.call.document.items() if value != ""}
    return Remark(
        "failure",
        "test-fails",
        f"{result.case.about}: {first}",
        shown_path(folder, result.test.file),
        result.case.line,
        1,
        (*rest, f"call: {compact(call)}"),
        {
            "about": result.case.about,
            "call": call,
            "differences": list(result.differences),
            "expected": result.case.status,
            "actual": result.decision.status,
        },
    )


# ---- mutation ------------------------------------------------------------------------------------------


def _scores(found: Checkout, rulesets: dict[str, Any]) -> Iterator[tuple[str, Score]]:
    """The file and score of each policy and preset."""
    from engine.analysis.mutation import scores
    from engine.documents.policy import policy_from_json
    from engine.documents.presets import instantiate
    from engine.worktree.paths import DEFAULT

    presets: list[tuple[str, Policy]] = [
        (preset.file, policy_from_json(instantiate(preset, {}, preset.preset_id)))
        for preset in found.presets.values()
    ]
    common = rulesets[DEFAULT].tools
    total = sum(map(len, found.policies.values())) + len(presets)
    with progress("changing conditions", total) as step:
        for organisation_id, policies in found.policies.items():
            ruleset = rulesets[organisation_id]
            tests = [test for name, test in found.tests if name == organisation_id]
            for score in scores(policies.values(), tests, ruleset, ruleset.tools):
                if score is None:
                    step()
                else:
                    yield found.file_of(score.policy), score
        for file, preset in presets:
            for score in scores([preset], tools=common):
                if score is None:
                    step()
                else:
                    yield file, score


def _unpinned(scores: list[tuple[str, Score]], found: Checkout, folder: str, most: int) -> Iterator[Remark]:
    """One remark per condition, with a call that would pin it; policies without examples in one."""
    from engine.analysis.mutation import pin
    from engine.derived.tools import Tools

    made = 0
    for file, score in scores:
        tools = Tools(found.tools_of(score.policy.organisation_id))
        by_condition: dict[int, list[Mutant]] = {}
        for mutant in score.survivors:
            by_condition.setdefault(mutant.index, []).append(mutant)
        for mutants in by_condition.values():
            if made >= most:
                return
            made += 1
            line, column = found.place(file, mutants[0].pointer)
            pins = [(mutant, pin(mutant, tools)) for mutant in mutants]
            lines: list[str] = []
            data: list[dict[str, Any]] = []
            for mutant, found_pin in pins:
                shown = f"the policy {mutant.what}"
                entry: dict[str, Any] = {"change": mutant.what}
                if found_pin is not None:
                    example = {"match": found_pin.match, **_call(found_pin.call)}
                    if not any(each.endswith(compact(example)) for each in lines):
                        lines.append(f"{shown}; this example would pin it: {compact(example)}")
                    entry["example"] = example
                else:
                    lines.append(f"{shown}; no call was found that tells the two apart")
                data.append(entry)
            text = _condition_text(mutants[0])
            yield Remark(
                "note",
                "unpinned",
                f"`{score.policy.policy_id}`: no example and no test notices a change of {text}",
                shown_path(folder, file),
                line,
                column,
                tuple(lines),
                {"policyId": score.policy.policy_id, "pointer": mutants[0].pointer, "changes": data},
            )


def _call(call: Any) -> dict[str, Any]:
    from engine.analysis.witness import shown

    return shown(call)


def _condition_text(mutant: Mutant) -> str:
    from engine.conditions.compiled import compile_condition

    return f"`{compile_condition(mutant.policy.conditions[mutant.index]).text}`"


# ---- the report ----------------------------------------------------------------------------------------


def _report(
    failures: list[Remark],
    scores: list[tuple[str, Score]],
    counts: tuple[int, int],
    found: Checkout,
    folder: str,
    arguments: argparse.Namespace,
) -> int:
    examples, cases = counts
    mutants = sum(score.mutants for _, score in scores)
    survivors = sum(len(score.survivors) for _, score in scores)
    percent = 100.0 * (mutants - survivors) / mutants if mutants else 100.0
    too_low = not arguments.no_mutation and percent < arguments.min_score
    most = max(0, arguments.show) if arguments.verbose or arguments.format != "text" else 0
    unpinned = list(_unpinned(scores, found, folder, most))
    if arguments.format == "json":
        shape: dict[str, Any] = {
            "summary": {"examples": examples, "tests": cases, "failures": len(failures)},
            "failures": [each.as_json() for each in failures],
        }
        if not arguments.no_mutation:
            shape["mutation"] = {
                "changes": mutants,
                "unnoticed": survivors,
                "score": round(percent, 1),
                "minScore": arguments.min_score,
                "ok": not too_low,
                "unpinned": [each.as_json() for each in unpinned],
            }
        print_json(shape)
    else:
        print_remarks([*failures, *unpinned], arguments.format)
        if too_low and arguments.format == "github":
            print_remarks([_too_low(percent, arguments.min_score)], "github")
        if arguments.format == "text":
            _summary(failures, unpinned, (examples, cases, mutants, survivors), percent, scores, arguments)
    return FAILED if failures or too_low else 0


def _too_low(percent: float, least: float) -> Remark:
    text = f"mutation score {percent:.1f} % is less than {least:g} %, which --min-score asks for"
    return Remark("failure", "score-too-low", text)


def _summary(
    failures: list[Remark],
    unpinned: list[Remark],
    counts: tuple[int, int, int, int],
    percent: float,
    scores: list[tuple[str, Score]],
    arguments: argparse.Namespace,
) -> None:
    examples, cases, mutants, survivors = counts
    conditions = len({(file, m.index) for file, score in scores for m in score.survivors})
    if rest := conditions - len(unpinned):
        more = "more " if unpinned else ""
        text = f"{rest:,} {more}condition{' is' if rest == 1 else 's are'} not pinned; see "
        say(text + ("--show" if arguments.verbose else "-v"), "dim")
    if not arguments.no_mutation:
        say(f"mutation score {percent:.1f} %: {mutants - survivors:,} of {mutants:,} changes are noticed")
        if percent < arguments.min_score:
            say(f"that is less than {arguments.min_score:g} %, which --min-score asks for", "bold red")
    if failures and not cases:
        words = f"{len(failures):,} example{'s' * (len(failures) != 1)} failed; tests were not run"
    else:
        words = f"{examples:,} examples and {cases:,} tests: "
        words += f"{len(failures):,} failed" if failures else "all hold"
    say(words, "bold red" if failures else "green")
