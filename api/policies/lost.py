"""In the log: what an edit of files took out of force that the API had made."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from api.policies.warnings import MOST_ERRORS, approvers
from engine.documents.yaml import read
from engine.repository import definitions
from engine.repository.archive import FileChange, FileRecord
from engine.repository.repository import Repository
from engine.worktree.disk import shown
from engine.worktree.paths import Kind

log = logging.getLogger("governance.policies")


def tell_of_lost(repository: Repository, changes: Sequence[FileChange]) -> None:
    """In the log: what an edit of files took out of force, and how it comes back. A checkout, a reset or a
    rebase that is given up does that to changes through the API, and so does a folder of another
    installation. Who edits what is in force leaves the number of its version."""
    lost = [
        each for each in changes if each.source == "file" and each.before and each.before.kind == "policy"
    ]
    for change in lost[:MOST_ERRORS]:
        before, after = change.before, change.after
        assert before is not None
        if change.moved:
            continue
        if after is None:
            what = f"its file `{shown(change.path)}` is gone"
        elif before.source == "api" and (older := _older(repository, after)) is not None:
            what = f"its file `{shown(change.path)}` says again what version {older} said"
        elif before.source == "api" and (declared := _declared(repository, after)) > before.version:
            what = (
                f"its file `{shown(change.path)}` says that it is version {declared}, which this database "
                "does not know: that of another installation, or what a newer copy of the database had"
            )
        else:
            continue
        log.warning(
            "version %s of the policy `%s` is not in force any more, since %s; it stays in the archive, and "
            '`POST /v1/policies/%s/rollback` with {"version": %s} brings it back',
            before.version,
            before.document_id,
            what,
            before.document_id,
            before.version,
        )


def tell_of_lost_settings(repository: Repository, changes: Sequence[FileChange]) -> None:
    """The same of an organisation's settings: who must agree to changes and who is told stand there, in a
    file that git may not know yet."""
    for change in changes:
        before = change.before
        if change.source != "file" or before is None or before.kind != "settings":
            continue
        mine = before.organisation_id
        versions = definitions.versions_of(repository, "settings", mine, mine)
        contents = [each.content for each in versions if each.version == before.version]
        if not contents:
            continue
        was = read(contents[0]).root.value["settings"]
        now = repository.snapshot.settings_of(mine).values
        alone = approvers(now) < 2 <= approvers(was)
        lost = sorted({name for name in was if name not in now} | ({"changes"} if alone else set()))
        if lost:
            gone = "is gone" if change.after is None else "does not say so any more"
            log.warning(
                "of the settings of `%s`, %s is not in force any more%s, since its file `%s` %s; version %s "
                "stays in `GET /v1/organisation/settings/versions`, and `PUT /v1/organisation/settings` "
                "brings it back",
                mine,
                ", ".join(f"`{name}`" for name in lost),
                ", so that one admin alone may change policies and people" if alone else "",
                shown(change.path),
                gone,
                before.version,
            )


_BACK: Final[Mapping[Kind, tuple[str, str, str]]] = {
    "toolSet": ("tool set", "GET /v1/tools/{id}/versions", "PUT /v1/tools/{id}"),
    "detector": ("detector", "GET /v1/detectors/{id}/versions", "PATCH /v1/detectors/{id}"),
    "settings": ("settings of", "GET /v1/organisation/settings/versions", "PUT /v1/organisation/settings"),
}
"""What has no rollback: how it is called, where its versions are, and what makes one of them anew."""


def tell_of_lost_documents(repository: Repository, changes: Sequence[FileChange]) -> None:
    """The same of tool sets, detectors and settings: a file that says again what it said before may know a
    tool that sends no more, or let more be paid."""
    edited = [
        (each.path, each.before, each.after)
        for each in changes
        if each.source == "file"
        and each.subject.kind in _BACK
        and each.before
        and each.before.source == "api"
    ]
    for path, before, after in edited[:MOST_ERRORS]:
        if after is None:
            continue  # which `accepted` tells
        found = definitions.versions_of(repository, after.kind, after.organisation_id, after.document_id)
        same = (
            each.version for each in found if each.version < before.version and each.digest == after.digest
        )
        if (older := next(same, None)) is None:
            continue
        name, versions, back = (each.format(id=after.document_id) for each in _BACK[after.kind])
        log.warning(
            "version %s of the %s `%s` is not in force any more, since its file `%s` says again what version "
            "%s said; it stays in `%s`, and `%s` brings it back",
            before.version,
            name,
            after.document_id,
            shown(path),
            older,
            versions,
            back,
        )


def _older(repository: Repository, record: FileRecord) -> int | None:
    """The newest earlier version with the same bytes."""
    found = repository.versions(record.organisation_id, record.document_id)
    same = (each.version for each in found if each.version < record.version and each.digest == record.digest)
    return next(same, None)


def _declared(repository: Repository, record: FileRecord) -> int:
    """The version that the file names; 0: none."""
    content = repository.archive.view(lambda records: records.blob(record.digest))
    return int(read(content).root.value.get("version", 0))
