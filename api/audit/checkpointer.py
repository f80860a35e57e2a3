"""Signs the audit log once a second, while there is something to sign."""

from __future__ import annotations

import asyncio
import logging

from api.audit.checkpoints import EVERY_SECONDS, Checkpointer, KeyDiffers
from api.audit.mark import AuditMark
from api.database.connection import Database
from api.database.outage import Outage
from api.database.writer import Writer

log = logging.getLogger("governance")

OTHER_KEY = (
    "this node does not sign the audit log: the checkpoints of its database are signed with another key; "
    "copy the file `audit-key` from the data folder of the node that began, or name it with "
    "GOVERNANCE_AUDIT_KEY_FILE, and start again; if that key is lost for ever, begin with a new one: "
    "`governance audit rekey --lost`"
)


async def keep_signing(checkpointer: Checkpointer, store: Database, writer: Writer, mark: AuditMark) -> None:
    """For ever. A node with another key than the installation's leaves signing to the others."""
    outage = Outage("signing of the audit log")
    while True:
        await asyncio.sleep(EVERY_SECONDS)
        try:
            if await store.read(checkpointer.anything_new, store):
                await writer.write(checkpointer.sign)
                await store.read(mark.follow, checkpointer, store)
                checkpointer.complete = checkpointer.complete and not mark.behind
        except KeyDiffers:
            checkpointer.signs = False
            log.error(OTHER_KEY)
            return
        except Exception as error:
            outage.met(error)
        else:
            outage.over()
