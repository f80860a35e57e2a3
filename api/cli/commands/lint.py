"""`governance lint`: what is wrong, useless or risky about policies, with calls that show it."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from api.cli.policy_source import (
    add_folder,
    checkout_of,
    default_folder,
    is_folder,
    problems_as_remarks,
    shown_path,
)
from api.cli.report import (
    Remark,
    add_format,
    compact,
    print_json,
    print_remarks,
    progress,
    say,
)
from api.cli.terminal import FAILED, Subparsers
from schemas.lint_codes import CODES, LEVELS, TOOL_CODES

if TYPE_CHECKING:
    from engine.analysis.findings import Finding
    from engine.analysis.tool_lint import ToolFinding
    from engine.model import Policy
    from engine.repository.checkout import Checkout

REPEATS: Final = 3
"""Findings of one code that people are shown one by one."""

BIND: Final = (
    "{} by `agentId`, which a key that is bound to no agent chooses freely: bind each key "
    "(`governance keys add NAME --agent ID`), or set GOVERNANCE_REQUIRE_BOUND_KEYS=on"
)

_CODES: Final = "\n".join(
    f"  {code:<20} {level:<8} {meaning}"
    for wanted in LEVELS
    for code, (level, meaning) in {**CODES, **TOOL_CODES}.items()
    if level == wanted
)
EPILOG = f"""\
findings:
{_CODES}
Documents that do not load are errors, each with its own code. A file that looks like a document and is not
read, such as `hold.yaml.txt`, is the warning `not-read`.

Each claim about calls comes with one, on which the engine was asked; a finding without a call follows from
the documents alone. What cannot be proven is not claimed. An example in a policy that shows a case says that
the case is meant, and ends the finding about it.

exit codes:
  0  nothing of level --fail-on or above
  1  findings, or documents that do not load
  2  wrong usage, or a folder that cannot be read
"""


def register(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "lint",
        help="find policies that are broken, dead, shadowed, contradictory or risky",
        description="Reads a whole policies folder and reports every document that does not load, every\n"
        "policy that is dead, shadowed, contradictory, a duplicate, slow to match, or open to calls\n"
        "that leave fields out, and tool sets and detectors that do not say what they are for.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=EPILOG,
    )
    add_folder(parser)
    parser.add_argument(
        "--level", choices=LEVELS, default="note", help="show this level and above; default: note"
    )
    parser.add_argument(
        "--fail-on",
        choices=LEVELS,
        default="error",
        help="exit with 1 from this level; default: error",
    )
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help=f"show each finding; default: the first {REPEATS} of each warning and note",
    )
    parser.add_argument("--no-presets", action="store_true", help="leave presets out")
    add_format(parser)
    parser.set_defaults(run=_lint)


def _lint(arguments: argparse.Namespace) -> int:
    folder = arguments.folder or default_folder()
    found = checkout_of(folder)
    remarks = problems_as_remarks(found.problems, folder)
    remarks += remarks_on(found, folder, presets=not arguments.no_presets)
    remarks += _not_read(folder)
    remarks.sort(key=lambda each: (each.file, each.line, each.column, each.code))
    return report(remarks, found, arguments)


def _not_read(folder: str) -> list[Remark]:
    """Files whose names are nearly those of documents."""
    from engine.worktree.disk import Disk

    root = Path(folder)
    found = Disk(root).scan().overlooked if is_folder(root) else []
    return [Remark("warning", each.code, each.message, shown_path(folder, each.file)) for each in found]


def remarks_on(found: Checkout, folder: str, *, presets: bool) -> list[Remark]:
    """The findings about every good document."""
    from engine.analysis.lint import lint

    remarks: list[Remark] = []
    total = sum(map(len, found.policies.values()))
    with progress("linting", total) as step:
        for organisation_id, policies in found.policies.items():
            for finding in lint(
                policies.values(),
                tools=found.tools_of(organisation_id),
                settings=found.settings_of(organisation_id),
            ):
                if finding is None:
                    step()
                else:
                    remarks.append(remark(finding, found, folder, found.file_of(finding.policy)))
    remarks += _tools(found, folder)
    remarks += _detectors(found, folder)
    if presets:
        remarks += _presets(found, folder)
    return remarks


def _tools(found: Checkout, folder: str) -> Iterator[Remark]:
    """What is wrong with the sets of tools, each once, however many organisations it counts in."""
    from engine.analysis.tool_lint import RankedToolSet, lint_tools
    from engine.repository.snapshot import in_order, rank_of
    from engine.worktree.paths import DEFAULT

    told: set[ToolFinding] = set()
    for organisation_id in sorted({DEFAULT, *(each.organisation_id for each in found.tool_sets.values())}):
        ranked = []
        for path in in_order(found.tool_sets, organisation_id):
            tool_set = found.tool_sets[path]
            ranked.append(RankedToolSet(rank_of(path, tool_set), path, tool_set, found.examples(path)))
        for finding in lint_tools(ranked):
            if finding not in told:
                told.add(finding)
                place = found.place(finding.path, finding.pointer)
                file = shown_path(folder, finding.path)
                data = {"pointer": finding.pointer}
                yield Remark(finding.level, finding.code, finding.message, file, *place, data=data)


def _detectors(found: Checkout, folder: str) -> Iterator[Remark]:
    """Those that are switched off, and those whose examples do not say what they are for."""
    from engine.detectors.examples import lacking

    for path, detector in found.detectors.items():
        findings = [] if detector.enabled else [("disabled", "the detector is disabled", "/enabled")]
        examples = found.examples(path)
        if (message := lacking(examples)) is not None:
            findings.append(("one-sided", message, "/examples") if examples else ("no-examples", message, ""))
        for code, message, pointer in findings:
            data = {"detectorId": detector.detector_id, "pointer": pointer}
            place = found.place(path, pointer)
            yield Remark(CODES[code][0], code, message, shown_path(folder, path), *place, data=data)


def _presets(found: Checkout, folder: str) -> Iterator[Remark]:
    from engine.analysis.lint import lint
    from engine.documents.policy import policy_from_json
    from engine.documents.presets import instantiate
    from engine.worktree.paths import DEFAULT

    for preset in found.presets.values():
        policy = policy_from_json(instantiate(preset, {}, preset.preset_id))
        for finding in lint([policy], alone=True, tools=found.tools_of(DEFAULT)):
            if finding is not None:
                yield remark(finding, found, folder, preset.file)


def remark(finding: Finding, found: Checkout, folder: str, file: str) -> Remark:
    line, column = found.place(file, finding.pointer)
    details: tuple[str, ...] = ()
    data: dict[str, Any] = {"policyId": finding.policy.policy_id, "pointer": finding.pointer}
    if finding.related:
        data["related"] = list(finding.related)
    if finding.call is not None:
        details = (f"{finding.outcome or 'call'}: {compact(finding.call)}",)
        data |= {"call": dict(finding.call), "outcome": finding.outcome}
    return Remark(
        finding.level,
        finding.code,
        finding.message,
        shown_path(folder, file),
        line,
        column,
        details,
        data,
    )


def report(remarks: list[Remark], found: Checkout, arguments: argparse.Namespace) -> int:
    counts = Counter(each.level for each in remarks)
    shown = [each for each in remarks if LEVELS.index(each.level) <= LEVELS.index(arguments.level)]
    failing = [each for each in remarks if LEVELS.index(each.level) <= LEVELS.index(arguments.fail_on)]
    documents = sum(map(len, found.policies.values()))
    if arguments.format == "json":
        summary = {"policies": documents, "presets": len(found.presets)}
        summary |= {"toolSets": len(found.tool_sets), "detectors": len(found.detectors)}
        summary |= {f"{level}s": counts[level] for level in LEVELS}
        print_json({"summary": summary, "findings": [each.as_json() for each in shown]})
    else:
        text = arguments.format == "text"
        print_remarks(_without_repeats(shown) if text and not arguments.verbose else shown, arguments.format)
        if text:
            hidden = len(remarks) - len(shown)
            if arguments.level == "note" and (trusting := _by_agent(found)):
                say(BIND.format(f"{trusting:,} polic{'y goes' if trusting == 1 else 'ies go'}"), "cyan")
            say(_summary(documents, found, counts, hidden), "bold" if failing else "green")
    return FAILED if failing else 0


def _by_agent(found: Checkout) -> int:
    """How many policies in force hold only as far as agents say who they are."""

    def trusts(policy: Policy) -> bool:
        counted = policy.rate_limit.per if policy.rate_limit is not None else ()
        named = any(condition.field == "agentId" for condition in policy.conditions)
        return policy.enabled and (named or ("agentId" in counted and "apiKeyId" not in counted))

    return sum(trusts(policy) for policies in found.policies.values() for policy in policies.values())


def _without_repeats(remarks: list[Remark]) -> Iterator[Remark]:
    """The first of each code, and of the rest how many there are; of errors all."""
    counts = Counter(each.code for each in remarks)
    seen: Counter[str] = Counter()
    for each in remarks:
        seen[each.code] += 1
        if each.level == "error" or seen[each.code] <= REPEATS:
            yield each
    for level, code in sorted({(each.level, each.code) for each in remarks if each.level != "error"}):
        if counts[code] > REPEATS:
            yield Remark(level, code, f"{counts[code] - REPEATS:,} more of these; see -v")


def _summary(policies: int, found: Checkout, counts: Counter[str], hidden: int) -> str:
    what = [(policies, "policy", "policies"), (len(found.presets), "preset", "presets")]
    also = [(len(found.tool_sets), "tool set", "tool sets"), (len(found.detectors), "detector", "detectors")]
    what += [each for each in also if each[0]]
    told = [f"{count:,} {one if count == 1 else many}" for count, one, many in what]
    levels = ", ".join(f"{counts[level]:,} {level}{'s' * (counts[level] != 1)}" for level in LEVELS)
    rest = f" ({hidden:,} not shown, see --level)" if hidden else ""
    return f"{', '.join(told[:-1])} and {told[-1]}: {levels}{rest}"
