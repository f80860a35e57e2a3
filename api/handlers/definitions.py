"""What handlers of tool sets and detectors have in common: documents that files own, by id, with versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from api.caller import Caller
from api.context import Context
from api.handlers.policies import own, writer
from api.http.exchange import Reply, Values
from api.http.problems import not_found
from engine.documents.yaml import read
from engine.repository import definitions
from engine.repository.archive import DocumentVersion, FileRecord
from engine.repository.definitions import D, Defined, Definitions
from engine.worktree.paths import Kind


async def change(
    caller: Caller,
    values: Values,
    context: Context,
    kind: Definitions[D],
    what: str,
    changes: Mapping[str, Any],
) -> Defined[D]:
    """Only what is named is changed; null removes an optional member."""
    return await context.write_policies(
        lambda policies: kind.change(policies, *own(caller, values, what), changes, **writer(caller, values))
    )


async def delete(caller: Caller, values: Values, context: Context, kind: Definitions[D], what: str) -> Reply:
    """The versions stay readable."""
    await context.write_policies(
        lambda policies: kind.delete(policies, *own(caller, values, what), **writer(caller, values))
    )
    return Reply(status=204)


async def versions(caller: Caller, values: Values, context: Context, kind: Kind, what: str) -> Reply:
    """Newest first, also of a document that is gone."""
    organisation_id, document_id = own(caller, values, what)

    def written() -> bytes:
        found = definitions.versions_of(context.live.repository, kind, organisation_id, document_id)
        if not found:
            raise not_found(what, document_id)
        return msgspec.json.encode(
            [version_as_json(each, state=read(each.content).root.value) for each in found]
        )

    return Reply(await context.reads.read(caller, written))


def version_as_json(version: DocumentVersion, **content: Any) -> dict[str, Any]:
    """A version, with what it says under the name that its kind has for it."""
    return {
        "version": version.version,
        "policyRevision": version.revision,
        **content,
        "source": version.source,
        "createdAt": version.created_at,
        "createdBy": version.created_by,
        "digest": version.digest,
    }


def kept(organisation_id: str, file: FileRecord) -> dict[str, Any]:
    """What is told of a document beside what it says itself."""
    return {
        "organisationId": organisation_id,
        "file": file.path,
        "updatedAt": file.updated_at,
        "source": file.source,
    }
