"""The command line: `governance <command>`.

`governance hook HOST` is what agents start before each tool call, so nothing is loaded before it but itself.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

BEGUN = time.monotonic()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. Wrong usage ends in SystemExit(2), as argparse does it."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if len(words) > 1 and words[0] == "hook":
        from api.hosts.table import NAMES

        if words[1] in NAMES:
            from api.hosts import hook

            return hook.main(words[1:], BEGUN)
    from api.cli import command_line

    return command_line.run(words)
