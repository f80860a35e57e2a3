"""What the log says of a batch of files that came into force.

Decides what is worth a warning: a policy that no longer acts because its file went. It changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from engine.repository.archive import FileChange

log = logging.getLogger("governance.policies")

MOST_NAMES: Final = 50


def tell(changes: Sequence[FileChange], revision: int) -> None:
    """One line for the batch, and a warning for the policies that it ended."""
    kinds: dict[str, list[str]] = {"created": [], "changed": [], "moved": [], "deleted": []}
    ended: list[str] = []
    for change in changes:
        if change.after is None:
            if change.moved:
                continue  # its new path says so
            kinds["deleted"].append(_name(change))
            if _acts(change):
                ended.append(_name(change))
        elif change.before is None:
            kinds["created"].append(_name(change))
        elif change.before.digest == change.after.digest:
            kinds["moved"].append(_name(change))
        else:
            kinds["changed"].append(_name(change))
    told = "; ".join(f"{what} {_listed(names)}" for what, names in kinds.items() if names)
    if told:
        log.info("revision %s is in force, from the policy files: %s", revision, told)
    if ended:
        log.warning(
            "revision %s: the files of policies that were enforced are gone, and with them the policies: %s",
            revision,
            _listed(ended),
        )


def _acts(change: FileChange) -> bool:
    """True when the policy that went did more than to allow or to be watched."""
    state = change.state
    return (
        isinstance(state, dict)
        and state.get("enabled") is not False
        and state.get("mode") != "shadow"
        and state.get("action") != "allow"
    )


def _name(change: FileChange) -> str:
    record = change.subject
    place = "" if record.organisation_id == "default" else f"{record.organisation_id}/"
    kind = "" if record.kind == "policy" else f"{record.kind} "
    return f"{kind}`{place}{record.document_id}`"


def _listed(names: Sequence[str]) -> str:
    shown = sorted(names)[:MOST_NAMES]
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(shown) + more
