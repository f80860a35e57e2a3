"""Signs the audit log once a second, while there is something to sign."""

from __future__ import annotations

import asyncio
import logging

from api.audit.checkpoints import EVERY_SECONDS, Checkpointer, KeyDiffers
from api.audit.installation_key import PublicKey, installation_key, kept_file, key_file
from api.audit.mark import AuditMark
from api.database.connection import Database
from api.database.outage import Outage
from api.database.writer import Writer
from api.settings import Settings, SettingsError

log = logging.getLogger("governance")

OTHER_KEY = (
    "this node does not sign the audit log: the checkpoints of its database are signed with another key; "
    "copy the file `audit-key` from the data folder of the node that began, or name it with "
    "GOVERNANCE_AUDIT_KEY_FILE, and start again; if that key is lost for ever, begin with a new one: "
    "`governance audit rekey --lost`"
)


KEPT_KEY = (
    "this node does not sign the audit log: its database is of before the key was changed (`governance audit"
    " rekey`), such as a backup that was restored; put `{kept}`, the key of then, in the place of `{path}`,"
    " and start again"
)

CHANGED_KEY = (
    "this process does not sign the audit log any more: its key was changed (`governance audit rekey`); "
    "start the service again"
)


async def keep_signing(
    checkpointer: Checkpointer, store: Database, writer: Writer, mark: AuditMark, settings: Settings
) -> None:
    """For ever. A node with another key than the installation's leaves signing to the others."""
    outage = Outage("signing of the audit log")
    while True:
        await asyncio.sleep(EVERY_SECONDS)
        try:
            if await store.read(checkpointer.anything_new, store):
                await writer.write(checkpointer.sign)
                await store.read(mark.follow, checkpointer, store)
                checkpointer.complete = checkpointer.complete and not mark.behind
        except KeyDiffers as differs:
            checkpointer.signs = False
            changed = _was_changed(checkpointer, settings)
            log.error("%s", CHANGED_KEY if changed else _other(settings, differs.signer))
            return
        except Exception as error:
            outage.met(error)
        else:
            outage.over()


def _other(settings: Settings, signer: PublicKey | None) -> str:
    """Why this node does not sign: a change of the key leaves that of before beside it, under its id."""
    path = key_file(settings)
    if signer is not None and (kept := kept_file(path, signer)).exists():
        return KEPT_KEY.format(kept=kept, path=path)
    return OTHER_KEY


def _was_changed(checkpointer: Checkpointer, settings: Settings) -> bool:
    """Whether the file of the key holds another one than this process began with."""
    try:
        return key_file(settings).exists() and installation_key(settings).public != checkpointer.public_key
    except SettingsError:
        return False
