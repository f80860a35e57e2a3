"""What changed in the definition of a tool, for the person who is to admit it.

The text is a server's, which would like to be admitted: what cannot be seen is shown as an escape.
"""

from __future__ import annotations

import difflib
import json

from api.mcp_proxy.tools.definitions import Definition


def told(name: str, before: Definition | None, now: Definition) -> str:
    """The lines that differ, or the whole definition of a tool that was never admitted."""
    old = [] if before is None else _lines(before)
    title = f"{json.dumps(name)} {'changed' if before is not None else 'was never admitted'}:"
    lines = difflib.unified_diff(old, _lines(now), "admitted", "now", lineterm="", n=2)
    return "\n".join([title, *(f"  {line}" for line in lines)])


def _lines(definition: Definition) -> list[str]:
    return json.dumps(definition, indent=2, sort_keys=True).splitlines()
