"""Every error the engine raises, each with a position a person can go to.

Texts are lower case, quote the user's own words in backticks, name no Python, and say what to do instead.
Nothing here knows of HTTP: `api/http/problems.py` maps these to statuses.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    `pointer` is a JSON pointer into the document (`/matchConditions/1/value`), `code` a stable
    snake_case name of the kind of problem. Lines and columns count from 1; 0 means unknown.
    """

    message: str
    pointer: str = ""
    code: str = "invalid"
    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        where = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        return f"{where}: {self.message}" if where else self.message


class EngineError(Exception):
    """The root of all engine errors."""


class ArchiveUnavailable(Exception):
    """The place where history is kept cannot be used now; whoever has to do with it tries again."""

    operator_message = ""
    """Which one and why, for the person at the command line."""


class ConditionError(EngineError):
    """A condition that cannot be compiled.

    `offset` is the position in the expression's or pattern's text, counted from 0, or None.
    `part` says which member of the condition is wrong: `field`, `operator`, `value` or `expression`.
    """

    def __init__(self, message: str, *, part: str = "", offset: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.part = part
        self.offset = offset


class DocumentError(EngineError):
    """One or many problems in documents, all collected before failing."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class RepositoryError(EngineError):
    """A write that the repository refuses; subclasses name the reason."""


class NewerDocuments(EngineError):
    """What is in force was written by a newer version of the service, which this one cannot read."""


class PolicyNotFound(RepositoryError):
    """No policy has this id (in this organisation)."""


class PolicyExists(RepositoryError):
    """A policy with this id exists already."""


class PolicyFileInvalid(RepositoryError):
    """The file on disk does not load or is a link, so it is left untouched; `problems` says why."""

    def __init__(self, message: str, problems: Iterable[Problem] = ()) -> None:
        super().__init__(message)
        self.problems: tuple[Problem, ...] = tuple(problems)


class PreconditionFailed(RepositoryError):
    """The caller's `If-Match` names another version than the current one."""


class ToolSetExists(RepositoryError):
    """A set of tools with this id exists already."""


class DetectorExists(RepositoryError):
    """There is a detector with this id already."""


class DetectorNotFound(RepositoryError):
    """The organisation has no detector with this id."""


class ToolSetNotFound(RepositoryError):
    """No set of tools has this id (in this organisation)."""


class VersionNotFound(RepositoryError):
    """The policy has no such version."""


class PresetNotFound(RepositoryError):
    """The policy was not made from a preset, or its preset is gone."""


class StorageError(RepositoryError):
    """A file could not be written (full disk, read-only, I/O error); nothing was changed."""


class RefusedToStart(RepositoryError):
    """There is no good set of policies to start with; `problems` says why."""

    def __init__(self, message: str, problems: Iterable[Problem] = ()) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join([message, *map(str, self.problems)]))
