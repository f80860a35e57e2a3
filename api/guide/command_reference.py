"""The page of the reference about the commands, made from the command line as it is parsed."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from api.cli.command_line import parser as command_line
from api.guide.markdown import code, page, sentence, table


def _subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _helps(parser: argparse.ArgumentParser) -> dict[str, str]:
    """Name of a subcommand -> the line that lists it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return {str(each.dest): str(each.help or "") for each in action._choices_actions}
    return {}


def _arguments(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        if isinstance(action, (argparse._SubParsersAction, argparse._HelpAction)):
            continue
        value = action.metavar or (
            "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
        )
        shown = value if isinstance(value, str) else " ".join(value)
        flags = ", ".join(action.option_strings)
        name = f"{flags} {shown}" if flags and action.nargs != 0 else flags or shown
        yield code(name), (action.help or "") % {**vars(action), "prog": parser.prog}


def _command(name: str, about: str, parser: argparse.ArgumentParser, depth: int) -> Iterator[str]:
    yield f"{'#' * depth} {name}"
    yield sentence(parser.description or about)
    if rows := list(_arguments(parser)):
        yield table(("Argument", "What it is"), rows)
    if parser.epilog:
        yield "```text\n" + re.sub(r"\n{3,}", "\n\n", parser.epilog.strip("\n")) + "\n```"
    helps = _helps(parser)
    for below, inner in _subcommands(parser).items():
        yield from _command(f"{name} {below}", helps.get(below, ""), inner, depth + 1)


def commands() -> str:
    whole = command_line()
    helps = _helps(whole)
    rows = [(code(f"governance {name}"), sentence(helps[name])) for name in helps]
    parts = [
        "`governance COMMAND`; each has `--help`. It lies in `.venv/bin`. `DIR` is a folder, `policies.d` "
        "unless said otherwise, or a state in git such as `HEAD~1:policies.d`.",
        table(("Command", "What it does"), rows),
        "```text\n" + (whole.epilog or "").strip() + "\n```",
    ]
    for name, parser in _subcommands(whole).items():
        parts += _command(name, helps.get(name, ""), parser, 2)
    return page("Commands", *parts)
