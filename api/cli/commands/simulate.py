"""`governance simulate`: what happens to one tool call, by a policies folder or by a running service."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from api.cli.api_client import add_service, ask, refuse_unused
from api.cli.local_store import add_organisation
from api.cli.policy_source import sound
from api.cli.report import add_format, print_json, say
from api.cli.terminal import FAILED, USAGE, CommandError, Subparsers, filled
from schemas.suggestion import suggestion

if TYPE_CHECKING:
    from engine.model import Policy

STATUSES: Final = ("allowed", "blocked", "awaiting_approval")
_TEXTS: Final = {
    "agent": ("agentId", "ID", "the agent"),
    "run": ("runId", "ID", "the run"),
    "hint": ("actionHint", "HINT", "what the call says it does, such as `read`"),
    "reason": ("reason", "TEXT", "what the agent says why"),
}
_OBJECTS: Final = {
    "context": ("agentContext", "what the agent says of itself"),
    "run-facts": ("run", "facts of the run: task, model, agentContext, labels"),
    "user": ("user", "a verified end user: id, email, scopes, claims"),
}

EPILOG = """\
JSON may be given as it is, as `@file`, or as `-` for the input. Nothing is written and no limit is counted;
without --url rate limits count as not reached, with --limits-reached as reached.

exit codes:
  0  decided, whatever the decision (with --expect: it is the one expected)
  1  with --expect: it is another one
  2  wrong usage, policies that do not load, or a service that refuses

examples:
  governance simulate --tool send_email --payload '{"to": "x@else.example"}' --explain
  governance simulate --tool Bash --payload @call.json --expect blocked
  governance simulate --url http://127.0.0.1:8700 --token-file token --tool wire --payload '{"amount": 9}'
"""


def register(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "simulate",
        help="what happens to one tool call",
        description="Decides one tool call by a policies folder, no service needed, or by a running service.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=EPILOG,
    )
    parser.add_argument("--tool", metavar="NAME", help="the tool's name")
    parser.add_argument("--payload", metavar="JSON", help="its input payload, an object; default: {}")
    parser.add_argument(
        "--call", metavar="JSON", help="a whole call instead, with `before` and `outputPayload` if need be"
    )
    for name, (_, metavar, help) in _TEXTS.items():
        parser.add_argument(f"--{name}", dest=f"call_{name}", metavar=metavar, help=help)
    for name, (_, help) in _OBJECTS.items():
        parser.add_argument(f"--{name}", metavar="JSON", help=help)
    parser.add_argument(
        "--dir", type=filled, metavar="DIR", help="policies folder or git revision; see `governance diff`"
    )
    add_organisation(parser, default=None)
    parser.add_argument(
        "--draft", type=filled, metavar="FILE", help="a policy that is decided beside the others"
    )
    parser.add_argument("--limits-reached", action="store_true", help="rate-limited policies take effect")
    parser.add_argument("--explain", action="store_true", help="say why each policy matches or does not")
    parser.add_argument("--policy", metavar="ID", help="explain only this policy")
    parser.add_argument("--expect", choices=STATUSES, help="exit with 1 when the outcome is another")
    parser.add_argument("--verify", action="store_true", help="also compare the index with the plain scan")
    add_service(parser)
    add_format(parser, "text", "json")
    parser.set_defaults(run=_simulate)


def _simulate(arguments: argparse.Namespace) -> int:
    if arguments.policy:
        arguments.explain = True
    refuse_unused(arguments, "dir", "organisation", "verify", "limits_reached")
    call = _call(arguments)
    answer = _remotely(call, arguments) if arguments.url else _locally(call, arguments)
    if arguments.policy and not answer["explanation"]:
        raise CommandError(f"there is no policy `{arguments.policy}`", USAGE)
    if arguments.format == "json":
        print_json(answer)
    else:
        _show(answer)
    if arguments.expect and answer["toolCallStatus"] != arguments.expect:
        if arguments.format == "text":
            say(f"expected {arguments.expect}", "bold red")
        return FAILED
    return 0


# ---- the call ------------------------------------------------------------------------------------------


def _call(arguments: argparse.Namespace) -> dict[str, Any]:
    from schemas.validation import violations

    if arguments.call:
        if arguments.tool or arguments.payload:
            raise CommandError("give either --call, or --tool and --payload", USAGE)
        call = read_json(arguments.call, "--call")
    elif arguments.tool:
        call = {"toolName": arguments.tool, "inputPayload": read_json(arguments.payload or "{}", "--payload")}
    else:
        raise CommandError("say which call: --tool NAME, or --call JSON", USAGE)
    for name, (root, _, _) in _TEXTS.items():
        if (text := getattr(arguments, f"call_{name}")) is not None:
            call[root] = text
    for name, (root, _) in _OBJECTS.items():
        if (text := getattr(arguments, name.replace("-", "_"))) is not None:
            call[root] = read_json(text, f"--{name}")
    wrong = list(violations("documents/policy_test", call, "/$defs/test/properties/call"))
    if wrong:
        raise CommandError(
            "\n".join(f"the call at `{each.pointer or '/'}`: {each.message}" for each in wrong), USAGE
        )
    return call


def read_json(text: str, flag: str) -> dict[str, Any]:
    """An object given as it is, as `@file`, or as `-`."""
    from api.http.unique_keys import RepeatedKey, unique_keys

    source = text
    if text == "-":
        source = sys.stdin.read()
    elif text.startswith("@"):
        try:
            source = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise CommandError(f"{flag}: `{text[1:]}` cannot be read", USAGE) from None
    try:
        found = json.loads(source, parse_constant=_no_constant, object_pairs_hook=unique_keys)
    except RepeatedKey as error:
        raise CommandError(f"{flag}: {error}; keep one of them", USAGE) from None
    except ValueError as error:
        raise CommandError(
            f'{flag} is not JSON: {error}; write for example \'{{"to": "a@b.c"}}\'', USAGE
        ) from None
    except RecursionError:
        raise CommandError(f"{flag} is nested too deeply", USAGE) from None
    if not isinstance(found, dict):
        raise CommandError(f"{flag} must be an object, in braces", USAGE)
    shape: dict[str, Any] = found
    return shape


def _no_constant(word: str) -> Any:
    raise ValueError(f"`{word}` is no JSON value")


def read_draft(name: str, organisation_id: str = "default") -> Policy:
    """What `read_policy` gives, as if it were enabled."""
    from dataclasses import replace

    return replace(read_policy(name, organisation_id), enabled=True)


def read_policy(name: str, organisation_id: str = "default") -> Policy:
    """A policy of a YAML or JSON file; its name need not be its id. Raises DocumentError at its place."""
    from dataclasses import replace

    from engine.documents.policy import load_policy
    from engine.errors import DocumentError

    try:
        source = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise CommandError(f"`{name}` cannot be read: {error.strerror}", USAGE) from None
    try:
        return load_policy(source, "", organisation_id=organisation_id).policy
    except DocumentError as error:
        raise DocumentError(replace(each, file=name) for each in error.problems) from None


# ---- deciding ------------------------------------------------------------------------------------------


def _locally(call: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    from engine.analysis.simulation import simulate
    from engine.model import ToolCall
    from engine.worktree.paths import DEFAULT

    found = sound(arguments.dir)
    organisation_id = arguments.organisation or DEFAULT
    if organisation_id not in (known := found.organisations()):
        close = suggestion(organisation_id, known) or "; there are " + ", ".join(
            f"`{each}`" for each in sorted(known)
        )
        raise CommandError(f"there is no organisation `{organisation_id}` in this folder{close}", USAGE)
    ruleset = found.ruleset(organisation_id)
    if arguments.draft:
        draft = read_draft(arguments.draft, organisation_id)
        ruleset = ruleset.changed({draft.policy_id: draft}, 0)
    tool_call = ToolCall.of(**call)
    if arguments.verify and ruleset.scan(tool_call) != ruleset.evaluate(tool_call):
        raise CommandError("index and scan disagree on this call; report this", FAILED)
    answer = simulate(
        ruleset,
        tool_call,
        lambda policy: arguments.limits_reached,
        explained=arguments.explain,
        policy_id=arguments.policy,
    )
    del answer["policyRevision"]  # a folder has none
    return answer


def _remotely(call: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    from engine.documents.policy import policy_as_json

    body = dict(call)
    if arguments.explain:
        body["explain"] = True
    if arguments.draft:
        body["policy"] = policy_as_json(read_draft(arguments.draft))
    answer = ask(arguments, "/v1/policies/simulate", body)
    if arguments.policy:
        answer["explanation"] = [
            each for each in answer.get("explanation", ()) if each["policyId"] == arguments.policy
        ]
    return answer


# ---- for people ------------------------------------------------------------------------------------------

_STYLES: Final = {
    "block": "bold red",
    "require_approval": "bold yellow",
    "warn": "yellow",
    "allow": "bold green",
}
_SIGNS: Final = {"true": "holds", "false": "does not hold", "error": "error"}


def _show(answer: dict[str, Any]) -> None:
    say(answer["toolCallStatus"], _STYLES[answer["resultingAction"]])
    say(answer["reason"])
    for title, key in (
        ("matched", "matchedPolicies"),
        ("matched in shadow mode, without effect", "shadowPolicies"),
        ("matched, within the rate limit", "rateLimitedPolicies"),
    ):
        if answer.get(key):
            say()
            say(f"{title}:", "bold")
            for each in answer[key]:
                say(f"  {each['action']:<16} {each['policyId']} ({each['name']}): {each['reason']}")
    if "explanation" not in answer:
        return
    for each in answer["explanation"]:
        say()
        say(f"{each['policyId']} ({each['action']}): {each['summary']}", "bold" if each["matched"] else "dim")
        for condition in each["conditions"]:
            say(f"  {_SIGNS[condition['result']]}: {condition['message']}")
            say(f"    to turn it over: {condition['flip']['text']}", "dim")
