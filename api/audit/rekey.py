"""A new key for the checkpoints of the audit log: the change is itself a checkpoint.

The old key signs which key follows (`nextKey`). Where it is lost the new one says so itself (`lostKey`),
which proves less: whoever verifies is told. At a start a lost key is a refusal, no reason to make another.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from api.audit import checkpoints
from api.audit.checkpoints import Body
from api.audit.installation_key import InstallationKey, PublicKey, installation_key, key_file, new_key
from api.auth.private_file import create
from api.database.audit_chain import tips
from api.database.connection import Database
from api.database.transaction import Transaction
from api.settings import Settings, SettingsError

Write = Callable[[Callable[[Transaction], PublicKey]], PublicKey]
"""Runs a job in a transaction of its own."""


def check_key(settings: Settings, store: Database) -> None:
    """Asked at a start. Raises SettingsError when the file of the key cannot be used, or one that a setting
    names, or that has signed the SQLite database beside it, is gone: with a new key in its place the log
    would not be signed any more. A new node of PostgreSQL may begin without."""
    named = settings.audit_key_file
    if key_file(settings).exists():
        installation_key(settings)
    elif (named is not None or store.is_sqlite) and store.read_here(checkpoints.newest, store) is not None:
        setting = "GOVERNANCE_AUDIT_KEY_FILE: " if named is not None else ""
        raise SettingsError(
            f"{setting}there is no file `{key_file(settings)}`, but the audit log of this database is "
            "signed already; put the file back from the backup or from another node, or, if it is lost for "
            "ever, begin with a new key: `governance audit rekey --lost`"
        )


class NoHandover(Exception):
    """Why no new key can begin, and what to do instead."""


def begin(settings: Settings, write: Write, actor: str, lost: bool) -> tuple[str, str, Path | None]:
    """Begin with a new key; `lost` when the one of before cannot be used any more. Returns the ids of the old
    and the new key, and where the file of before is kept now. Raises NoHandover, SettingsError, OSError."""
    path = key_file(settings)
    old = installation_key(settings) if path.exists() else None
    aside = path.with_name(f"{path.name}.new")
    aside.unlink(missing_ok=True)
    create(aside, text := new_key())
    new = InstallationKey(bytes.fromhex(text))
    try:
        before = write(partial(_hand_over, path=path, old=old, new=new, lost=lost, actor=actor))
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    # A death in between leaves the old key in place, which may hand over once more.
    kept = path.with_name(f"{path.name}.{old.public.key_id}") if old is not None else None
    if kept is not None:
        path.rename(kept)
    aside.rename(path)
    write(partial(_begin_with, new=new))
    return before.key_id, new.public.key_id, kept


def _begin_with(transaction: Transaction, new: InstallationKey) -> PublicKey:
    """A job: the first checkpoint of the new key, which vouches for those before it."""
    store = transaction.store
    last = checkpoints.newest(store)
    assert last is not None
    number, previous = last.number + 1, last.digest
    body = Body(at=transaction.at, chains={}, number=number, previous=previous, publicKey=new.public.text)
    checkpoints.put(store, body, new)
    return new.public


def _hand_over(
    transaction: Transaction,
    path: Path,
    old: InstallationKey | None,
    new: InstallationKey,
    lost: bool,
    actor: str,
) -> PublicKey:
    """A job: the checkpoint that says which key follows, signed with the old one where it is here."""
    store = transaction.store
    last = checkpoints.newest(store)
    if last is None:
        raise NoHandover("nothing is signed yet; the first start makes the key it needs")
    body = last.read()
    if body is None:
        raise NoHandover("the newest checkpoint was changed; see `governance audit verify`")
    signs = old is not None and old.public.text in (body.publicKey, body.signer_after)
    if not signs and not lost:
        raise NoHandover(
            f"the key that signs the audit log is not in `{path}`; put it back from the backup or from "
            "another node, or, if it is lost for ever, say --lost"
        )
    signer = old if old is not None and signs else new
    before = PublicKey(signer.public.text if signs else body.signer_after)
    checkpoints.put(
        store,
        Body(
            at=transaction.at,
            chains=checkpoints.by_chain(tips(store)),
            lostKey=None if signs else before.text,
            nextKey=new.public.text if signs else None,
            number=last.number + 1,
            previous=last.digest,
            publicKey=signer.public.text,
        ),
        signer,
    )
    details = {"keyId": new.public.key_id, "previousKeyId": before.key_id, "signedByPrevious": signs}
    transaction.audit("default", "audit.rekeyed", actor=actor, details=details)
    return before
