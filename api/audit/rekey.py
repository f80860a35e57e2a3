"""A new key for the checkpoints of the audit log: the change is itself a checkpoint.

The old key signs which key follows (`nextKey`). Where it is lost the new one says so itself (`lostKey`),
which proves less: whoever verifies is told. At a start a lost key is a refusal, no reason to make another.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from api.audit import checkpoints
from api.audit.checkpoints import Body
from api.audit.installation_key import (
    InstallationKey,
    PublicKey,
    installation_key,
    kept_file,
    key_file,
    new_key,
)
from api.auth.private_file import create, sync_folder
from api.database.audit_chain import tips
from api.database.connection import Database
from api.database.transaction import Transaction
from api.settings import Settings, SettingsError

T = TypeVar("T")


class Write(Protocol):
    """Runs a job in a transaction of its own."""

    def __call__(self, job: Callable[[Transaction], T]) -> T: ...


def check_key(settings: Settings, store: Database) -> None:
    """Asked at a start. Raises SettingsError when the file of the key cannot be used, or one that a setting
    names, or that has signed the SQLite database beside it, is gone: with a new key in its place the log
    would not be signed any more. A new node of PostgreSQL may begin without."""
    try:
        store.read_here(finish, settings, store)
    except OSError as error:
        raise SettingsError(
            f"the new key of the audit log cannot be put in the place of `{key_file(settings)}`, as `"
            f"governance audit rekey` was about to: {error.strerror}"
        ) from None
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
    write(partial(_finish, settings=settings))
    path = key_file(settings)
    old = installation_key(settings) if path.exists() else None
    text = new_key()
    new = InstallationKey(bytes.fromhex(text))
    aside = _aside(path, new.public)
    create(aside, text)
    try:
        before = write(partial(_hand_over, settings=settings, old=old, new=new, lost=lost, actor=actor))
    except NoHandover:
        aside.unlink()
        raise
    # After any other error it stays: it may have been committed that it is the key. What is left undone by a
    # death is done by the next start, or by the next of these commands.
    kept = _put_in_place(settings, new.public)
    return before.key_id, new.public.key_id, kept


def finish(settings: Settings, store: Database) -> None:
    """What a change of the key left undone that died, or is about to do. Raises SettingsError, OSError."""
    follows = checkpoints.signer(store)
    if follows is not None and _aside(key_file(settings), follows).exists():
        _put_in_place(settings, follows)


def _finish(transaction: Transaction, settings: Settings) -> None:
    """A job."""
    finish(settings, transaction.store)


def _aside(path: Path, key: PublicKey) -> Path:
    """Where a new key lies until it is the key: each has a name of its own, so that of two changes at once
    neither takes away the other's."""
    return path.with_name(f"{path.name}.{key.key_id}.new")


def _put_in_place(settings: Settings, key: PublicKey) -> Path | None:
    """The key that was handed over to becomes the key; returns where the one of before is kept.

    INVARIANT: at each moment there is a whole key under the name, and no key is lost.
    """
    path, kept = key_file(settings), None
    if path.exists():
        installation_key(settings)  # or it must not be used
        text = path.read_text("ascii").strip()
        old = InstallationKey(bytes.fromhex(text)).public
        if old != key:
            create(kept := kept_file(path, old), text)
    with contextlib.suppress(FileNotFoundError):  # another process was faster
        _aside(path, key).replace(path)
    sync_folder(path.parent)
    return kept


def _hand_over(
    transaction: Transaction,
    settings: Settings,
    old: InstallationKey | None,
    new: InstallationKey,
    lost: bool,
    actor: str,
) -> PublicKey:
    """A job: the checkpoint that says which key follows, signed with the old one where it is here, and the
    first of the new key, which vouches for those before it and gives up what that had given up."""
    store = transaction.store
    last = checkpoints.newest(store)
    if last is None:
        raise NoHandover("nothing is signed yet; the first start makes the key it needs")
    body = last.read()
    if body is None:
        raise NoHandover("the newest checkpoint was changed; see `governance audit verify`")
    path, follows = key_file(settings), PublicKey(body.signer_after)
    signs = old is not None and old.public == follows
    if not signs and (_aside(path, follows).exists() or _is_there(settings, follows)):
        raise NoHandover("somebody else has just begun with a new key; see `governance audit key`")
    if not signs and (kept := kept_file(path, follows)).exists():
        raise NoHandover(
            f"the key that signs the audit log is `{kept}`; put it in the place of `{path}`, and run this "
            "again"
        )
    if not signs and not lost:
        raise NoHandover(
            f"the key that signs the audit log is not in `{path}`; put it back from the backup or from "
            "another node, or, if it is lost for ever, say --lost"
        )
    signer = old if old is not None and signs else new
    before, known = follows, checkpoints.known_gaps(store)
    handed_over = checkpoints.put(
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
    number, previous = handed_over.number + 1, handed_over.digest
    first = Body(
        at=transaction.at,
        chains={},
        givenUp=known,
        number=number,
        previous=previous,
        publicKey=new.public.text,
    )
    checkpoints.put(store, first, new)
    details = {"keyId": new.public.key_id, "previousKeyId": before.key_id, "signedByPrevious": signs}
    transaction.audit("default", "audit.rekeyed", actor=actor, details=details)
    return before


def _is_there(settings: Settings, key: PublicKey) -> bool:
    return key_file(settings).exists() and installation_key(settings).public == key
