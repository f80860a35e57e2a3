"""`governance approvals`: what waits for a person, and deciding it, from a terminal.

What an agent wrote is shown whole, and so that it cannot steer the terminal or hide; see `spelling`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import Any, Final, TextIO

from api.cli.api_client import (
    RunningService,
    add_count,
    add_limit,
    add_running_action,
    path_of,
    running,
    show_one,
    show_page,
)
from api.cli.spelling import json_text, remarks, spelled
from api.cli.terminal import (
    AWAY,
    USAGE,
    CommandError,
    Subparsers,
    add_yes,
    confirm,
    filled,
    print_json,
    say_error,
)

STATUSES = ("pending", "approved", "rejected", "expired", "cancelled")
COLUMNS = {
    "approvalId": "APPROVAL",
    "status": "STATUS",
    "agentId": "AGENT",
    "toolName": "TOOL",
    "sentence": "WHAT IT WANTS TO DO",
    "policyName": "POLICY",
    "requestedAt": "REQUESTED",
    "expiresAt": "EXPIRES",
}
ABOUT: Final = ("recipients", "hosts", "deletes", "writes", "commands", "statements", "targets")
RETRY_SECONDS: Final = 2.0
CALLS: Final = 5
MINUTES: Final = 60
"""Of a grant, where nothing else is said."""


def register(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "approvals", help="what waits for a person: list, show, approve, reject, watch"
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = add_running_action(actions, "list", "list approvals, newest first", _list)
    listing.add_argument("--status", choices=STATUSES, default="pending", help="default: pending")
    add_limit(listing)
    one = add_running_action(
        actions,
        "show",
        "show an approval with its whole call",
        _show,
        "Characters that hide are spelled out.",
    )
    approve = add_running_action(
        actions,
        "approve",
        "let a call happen",
        _approve,
        "Shows the call and asks; releases the payload that was shown and no other.",
    )
    approve.add_argument(
        "--grant",
        choices=("run", "agent"),
        help="allow the same call again, too: in this run, or by this agent and its key",
    )
    add_count(approve, "calls", "with --grant: so many times", CALLS)
    add_count(approve, "minutes", "with --grant: so long", MINUTES)
    reject = add_running_action(actions, "reject", "forbid a call", _reject)
    for command in (one, approve, reject):
        command.add_argument("approval_id", metavar="ID", help="from `governance approvals list`")
    for command in (approve, reject):
        command.add_argument(
            "--reason", metavar="TEXT", help="kept in the record; shown to the agent on reject"
        )
        command.add_argument(
            "--digest",
            type=filled,
            metavar="SHA256",
            help="only if this is the call's payload, as `show` said",
        )
        add_yes(command)
    add_running_action(
        actions, "watch", "print what waits, and whatever comes or is decided, until interrupted", _watch
    )


def _list(arguments: argparse.Namespace) -> int:
    return show_page(arguments, "/v1/approvals", COLUMNS, _told, status=arguments.status)


def _told(approval: dict[str, Any]) -> dict[str, str]:
    return {"sentence": _sentence(approval)}


def _sentence(approval: dict[str, Any]) -> str:
    about = approval.get("about")
    return str(about["sentence"]) if about else f"call {approval['toolName']}"


# ---- one ------------------------------------------------------------------------------------------------


def _show(arguments: argparse.Namespace) -> int:
    return show_one(arguments, path_of("approvals", arguments.approval_id), _print)


def _print(approval: dict[str, Any], output: TextIO | None = None) -> None:
    for line in _lines(approval):
        print(spelled(line), file=output)


def _lines(approval: dict[str, Any]) -> Iterator[str]:
    yield f"{approval['status']}: {_sentence(approval)}"
    names = ("agentId", "runId", "toolName", "toolCallId", "policyName", "reason", "requestedAt", "expiresAt")
    yield from (f"  {name}: {_line(approval[name])}" for name in names if approval.get(name) is not None)
    if user := approval.get("user"):
        yield f"  user: {_line(user.get('email') or user['id'])}"
    if approval.get("labels"):
        yield f"  labels: {json_text(approval['labels'], None)}"
    if approval["status"] != "pending":
        ends = ("resolvedAt", "resolvedBy", "actor", "decisionReason", "halted")
        yield from (f"  {name}: {_line(approval[name])}" for name in ends if approval.get(name) is not None)
    yield f"  approvers: {_progress(approval)}, of the roles {', '.join(approval['roles'])}"
    if approval.get("mayNotApprove"):
        yield f"  you may not approve it: {_line(approval['mayNotApprove'])}"
    about = approval.get("about") or {}
    yield from (f"  {name}: {json_text(about[name], None)}" for name in ABOUT if about.get(name))
    yield from (f"  {count} more {name}, in the payload" for name, count in about.get("more", {}).items())
    if "amount" in about:
        yield f"  amount: {_line(about['amount'])} {_line(about.get('currency') or '')}".rstrip()
    if approval["asserted"]:
        yield "what the agent says, verified by nobody:"
        yield json_text(approval["asserted"])
    if approval["inputPayload"] is None:
        yield "the payload is gone: it was removed after its time"
        return
    digest = approval.get("payloadDigest")
    yield f"the whole payload{f' (sha256 {digest})' if digest else ''}:"
    yield json_text(approval["inputPayload"])
    told = [approval[name] for name in ("inputPayload", "asserted", "about", "agentId", "toolName", "runId")]
    yield from (f"beware: {each}" for each in remarks(told))


def _progress(approval: dict[str, Any]) -> str:
    by = [_line(_who(each)) for each in approval.get("approvedBy", ())]
    who = f" ({', '.join(by)})" if by else ""
    return f"{len(by)} of {approval['approvers']}{who}"


def _who(step: dict[str, Any]) -> str:
    """Whose credential it was, whatever they call themselves."""
    actor, called = step["actor"], step["resolvedBy"]
    return str(actor) if called in (None, actor) else f"{actor} as `{called}`"


def _line(value: Any) -> str:
    return spelled(str(value), "")


# ---- deciding -------------------------------------------------------------------------------------------


def _approve(arguments: argparse.Namespace) -> int:
    if arguments.grant is None:
        if (arguments.calls, arguments.minutes) != (CALLS, MINUTES):
            raise CommandError("--calls and --minutes are for a grant; give --grant run or agent, too", USAGE)
        return _resolve(arguments, "approve", "Let it happen?", {})
    terms = {"scope": arguments.grant, "calls": arguments.calls, "minutes": arguments.minutes}
    where = "in this run" if arguments.grant == "run" else "by this agent"
    question = (
        f"Let it happen, and {where} at most {arguments.calls} times more in {arguments.minutes} minutes?"
    )
    return _resolve(arguments, "approve", question, {"grant": terms})


def _reject(arguments: argparse.Namespace) -> int:
    return _resolve(arguments, "reject", "Forbid it?", {})


def _resolve(arguments: argparse.Namespace, verb: str, question: str, also: dict[str, Any]) -> int:
    service = running(arguments)
    place = path_of("approvals", arguments.approval_id)
    seen = service.get(place)
    digest = arguments.digest or seen.get("payloadDigest")
    if digest != seen.get("payloadDigest"):
        raise CommandError(f"the call of `{arguments.approval_id}` has another payload; `show` it again")
    if seen["status"] == "pending":
        # Nobody is asked about what was not shown; programs read the other stream.
        _print(seen, sys.stderr if arguments.format == "json" else None)
        confirm(question, arguments.yes)
    named = {"reason": arguments.reason, "payloadDigest": digest} | also
    body = {name: value for name, value in named.items() if value is not None}
    done = service.send("POST", f"{place}/{verb}", body).value
    if arguments.format == "json":
        print_json(done)
    else:
        print(spelled(f"{done['status']}: {_sentence(done)} ({done['approvalId']})"))
        if grant := done.get("grant"):
            print(spelled(f"the same call is allowed until {grant['expiresAt']}: {grant['grantId']}"))
        if done["status"] == "pending":
            print(spelled(f"it needs others too; approved by {_progress(done)}"))
    return 0


# ---- watching -------------------------------------------------------------------------------------------


def _watch(arguments: argparse.Namespace) -> int:
    """Never returns by itself. What is missed while the service is away is listed when it is back."""
    service = running(arguments)
    told: dict[str, str] = {}
    first = True
    while True:
        try:
            for line in service.events("/v1/stream?events=approval"):
                if line.startswith(": connected"):
                    waiting, _ = service.page("/v1/approvals", 10_000, status="pending", order="asc")
                    for each in waiting:
                        _tell(each, told, arguments.format)
                    first = False
                elif line.startswith("data: "):
                    _tell(_named(service, line), told, arguments.format)
        except CommandError as error:
            if first or error.code != AWAY:
                raise
            say_error(f"{error}\ntrying again every {RETRY_SECONDS:g} s")
        time.sleep(RETRY_SECONDS)


def _named(service: RunningService, line: str) -> dict[str, Any]:
    import json

    approval_id = json.loads(line.removeprefix("data: "))["approvalId"]
    found: dict[str, Any] = service.get(path_of("approvals", approval_id), seen="false")
    return found


def _tell(approval: dict[str, Any], told: dict[str, str], form: str) -> None:
    state = f"{approval['status']} {_progress(approval)} {approval['escalatedAt']}"
    if told.get(approval["approvalId"]) == state:
        return
    told[approval["approvalId"]] = state
    if form == "json":
        print(json_text(approval, None), flush=True)
        return
    at = approval["resolvedAt"] or approval["requestedAt"]
    who = approval["actor"] or f"agent {approval['agentId']}"
    said = f"{at[:19]}Z {approval['status']:<9} {approval['approvalId']} {_sentence(approval)} ({who})"
    print(spelled(said, ""), flush=True)
