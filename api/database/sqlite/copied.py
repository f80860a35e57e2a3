"""The note beside an SQLite database that was copied to PostgreSQL: from then on the record goes on there.

A start without the address of the new database, or a command that lacks it, would go on with the old one:
halts, people and keys of since then would not count. So whoever opens it is told where it went.
"""

from __future__ import annotations

import os
from pathlib import Path

from api.database.errors import DatabaseUnavailable
from engine.worktree.ownership import new_file


def note_of(path: Path) -> Path:
    """Of the database at that place."""
    return Path(f"{path}.copied")


def note(path: Path, place: str, at: str) -> None:
    """It was copied to that place. Raises OSError."""
    note_of(path).unlink(missing_ok=True)
    with os.fdopen(new_file(note_of(path)), "w", encoding="utf-8") as file:
        file.write(f"{place}, on {at}\n")


def refuse_copied(path: Path) -> None:
    """Raises DatabaseUnavailable when it was copied, and nobody has said that it is used again. INVARIANT: to
    see that it was not takes no file descriptor, as each transaction asks."""
    if not os.access(note_of(path), os.F_OK):
        return
    try:
        where = note_of(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        where = f"that `{note_of(path)}` names ({error.strerror})"
    raise DatabaseUnavailable(
        f"`{path}` was copied to the PostgreSQL database {where}, and what was recorded since is there: name "
        "that one with GOVERNANCE_DATABASE_URL or --database-url. To go on with this one, and without what "
        f"was recorded there, delete `{note_of(path)}`"
    )
