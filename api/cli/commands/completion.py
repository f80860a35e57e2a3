"""`governance completion`: a script by which a shell completes the commands and their flags."""

from __future__ import annotations

import argparse

from api.cli.terminal import Subparsers

SHELLS = ("bash", "zsh", "fish")
EPILOG = """\
put it where your shell looks for it, and start a new one:
  bash   governance completion bash > ~/.local/share/bash-completion/completions/governance
  zsh    governance completion zsh > DIR/_governance    DIR: any folder of $fpath, before `compinit`
  fish   governance completion fish > ~/.config/fish/completions/governance.fish

The script knows the commands of the version that printed it; print it anew after an upgrade.
"""


def register(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "completion",
        help="print the completion script of a shell",
        description="Prints a script that completes commands, flags, their choices, and files.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=EPILOG,
    )
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=f"one of {', '.join(SHELLS)}")
    parser.set_defaults(run=_print)


def _print(arguments: argparse.Namespace) -> int:
    import shtab

    from api.cli.command_line import parser

    whole = parser()
    _name_files(whole)
    print(shtab.complete(whole, shell=arguments.shell))
    return 0


def _name_files(parser: argparse.ArgumentParser) -> None:
    """Which arguments are files and folders, so that the shell completes those: their placeholders say it."""
    import shtab

    kinds = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                _name_files(each)
        elif action.metavar in kinds:
            action.complete = kinds[action.metavar]  # type: ignore[attr-defined]
