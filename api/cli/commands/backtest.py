"""`governance backtest`: which recorded calls would be decided differently."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from api.cli.api_client import add_service, ask, refuse_unused
from api.cli.commands.simulate import read_draft
from api.cli.local_store import add_organisation, add_place, opened
from api.cli.policy_source import sound
from api.cli.report import Remark, add_format, compact, outcome, print_json, print_remarks, progress, say
from api.cli.spelling import spelled
from api.cli.terminal import FAILED, USAGE, CommandError, Subparsers, filled, moment

if TYPE_CHECKING:
    from engine.matching.ruleset import Ruleset

LIMIT = 10_000
SHOWN = 10

EPILOG = """\
The recorded calls are decided twice, by the old and by the new policies, in their order and with their times,
so rate limits count as they would have. Nothing is written.

  --draft FILE            NEW is the policies of --dir with this policy added, or put in place of its policyId
  --old DIR               OLD is another folder or git revision (`HEAD:policies.d`); NEW is --dir
  --url with --draft      the service compares with the policies in force and its own recorded calls

exit codes:
  0  no decision changes
  1  some do
  2  wrong usage, policies that do not load, no database, or a service that refuses

examples:
  governance backtest --draft new-policy.yaml --since 2026-01-01T00:00:00Z
  governance backtest --old HEAD:policies.d
  governance backtest --url http://127.0.0.1:8700 --token-file token --draft new-policy.yaml
"""


def register(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "backtest",
        help="which recorded calls would be decided differently",
        description="Decides recorded calls again, by old and new policies, and shows what changes.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=EPILOG,
    )
    parser.add_argument("--draft", type=filled, metavar="FILE", help="a policy to try; `-`: from the input")
    parser.add_argument(
        "--old", type=filled, metavar="DIR", help="compare --dir with this folder or git revision"
    )
    parser.add_argument(
        "--dir", type=filled, metavar="DIR", help="policies folder; default: GOVERNANCE_POLICIES_DIR"
    )
    parser.add_argument("--since", metavar="TIME", help="ISO 8601; included")
    parser.add_argument("--until", metavar="TIME", help="ISO 8601; included")
    parser.add_argument("--limit", type=int, metavar="N", help=f"the latest N calls; default: {LIMIT:,}")
    parser.add_argument(
        "--show",
        type=int,
        default=SHOWN,
        metavar="N",
        help=f"changed calls shown, of each kind one; default: {SHOWN}",
    )
    add_organisation(parser, default=None)
    add_place(parser)
    add_service(parser)
    add_format(parser)
    parser.set_defaults(run=_backtest)


def _backtest(arguments: argparse.Namespace) -> int:
    refuse_unused(arguments, "old", "dir", "organisation", "data_dir", "database_url")
    if not arguments.draft and not arguments.old:
        raise CommandError("say what to compare: --draft FILE, or --old DIR", USAGE)
    if arguments.limit is not None and arguments.limit < 1:
        raise CommandError("--limit must be at least 1", USAGE)
    since, until = moment(arguments.since), moment(arguments.until)
    if since and until and since > until:
        raise CommandError(f"--since {since} is later than --until {until}; nothing lies between", USAGE)
    decide = _remotely if arguments.url else _locally
    answer = decide(arguments, since, until)
    if arguments.format == "json":
        print_json(answer)
    elif arguments.format == "github":
        print_remarks(_remarks(answer, arguments), "github")
    else:
        _show(answer, max(0, arguments.show))
    return FAILED if answer["changed"] else 0


def _remotely(arguments: argparse.Namespace, since: str | None, until: str | None) -> dict[str, Any]:
    from engine.documents.policy import policy_as_json

    body: dict[str, Any] = {"policy": policy_as_json(read_draft(arguments.draft))}
    body |= {"since": since} if since else {}
    body |= {"until": until} if until else {}
    body |= {"limit": arguments.limit} if arguments.limit else {}
    return ask(arguments, "/v1/policies/backtest", body)


def _locally(arguments: argparse.Namespace, since: str | None, until: str | None) -> dict[str, Any]:
    from api import clock
    from api.store import recorded_calls
    from engine.analysis import backtest
    from engine.worktree.paths import DEFAULT

    organisation_id = arguments.organisation or DEFAULT
    old, new = _sets(arguments, organisation_id)
    with opened(arguments, reads=True) as store:
        store.need_organisation(organisation_id, USAGE)
        limit = arguments.limit or LIMIT
        found = recorded_calls.recorded(
            store.database, organisation_id, since=since, until=until, limit=limit
        )
        history = list(found)
    with progress("deciding again", len(history)) as step:

        def counted() -> Any:
            for each in history:
                yield each
                step()

        report = backtest.compare(old, new, counted(), most_shown=max(arguments.show, 100))
    return report.as_json(clock.iso)


def _sets(arguments: argparse.Namespace, organisation_id: str) -> tuple[Ruleset, Ruleset]:
    new = sound(arguments.dir).ruleset(organisation_id)
    old = new
    if arguments.old:
        old = sound(arguments.old).ruleset(organisation_id)
    if arguments.draft:
        draft = read_draft(arguments.draft, organisation_id)
        new = new.changed({draft.policy_id: draft}, new.revision)
    return old, new


# ---- for people ------------------------------------------------------------------------------------------


def _show(answer: dict[str, Any], most: int) -> None:
    groups: dict[object, list[dict[str, Any]]] = {}
    for each in answer["changes"]:
        groups.setdefault(_repeat(each), []).append(each)
    shown = list(groups.values())[:most]
    for group in shown:
        each = group[0]
        call = f"{each['toolName']}  {each['runId']}/{each['toolCallId']}"
        what = f"{outcome(each['oldAction'])} -> {outcome(each['newAction'])}"
        say(spelled(f"{what}  {each.get('at', '')}  {call}", ""), "bold")
        if "inputPayload" in each:
            say(spelled(f"    {compact(each['inputPayload'])}"[:2000], ""), "dim")
        say(spelled(f"    before: {each['oldReason']}", ""))
        say(spelled(f"    after: {each['newReason']}", ""))
        if len(group) > 1:
            say(f"    the same of {len(group) - 1:,} more call{'s' * (len(group) > 2)} of this tool")
    if (rest := answer["changed"] - sum(map(len, shown))) > 0:
        say(f"{rest:,} more, see --show", "dim")
    changed = [each for each in answer["counts"] if each["old"] != each["new"]]
    for each in changed:
        say(f"{each['count']:>9,}  {outcome(each['old'])} -> {outcome(each['new'])}")
    plural = "" if answer["calls"] == 1 else "s"
    text = f"{answer['calls']:,} recorded call{plural}, {answer['changed']:,} decided differently"
    say(text, "bold yellow" if answer["changed"] else "green")


def _repeat(change: dict[str, Any]) -> object:
    """What two changed calls have in common that need not both be shown: tool, outcomes and policies."""
    by = (change[name].partition(": ")[0] for name in ("oldReason", "newReason"))
    return change["toolName"], change["oldAction"], change["newAction"], *by


def _remarks(answer: dict[str, Any], arguments: argparse.Namespace) -> list[Remark]:
    file = arguments.draft if arguments.draft and arguments.draft != "-" else ""
    return [
        Remark(
            "warning",
            "decision-changes",
            f"{each['count']:,} of {answer['calls']:,} recorded calls: "
            f"{outcome(each['old'])} -> {outcome(each['new'])}",
            file,
            1 if file else 0,
        )
        for each in answer["counts"]
        if each["old"] != each["new"]
    ]
