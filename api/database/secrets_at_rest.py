"""Secrets in the database - of webhooks, and keys of user tokens - are encrypted, and its files are closed.

One random data key encrypts them (AES-256-GCM). It lies in the database too, wrapped with a key that is
derived (HKDF-SHA256) from the signing secret, so that a copy of the database alone gives nothing away, and a
new signing secret means wrapping one key anew.

INVARIANT: a secret that cannot be decrypted is an error, never an empty one.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from api.clock import seconds

log = logging.getLogger("governance")

PREFIX: Final = "sealed:1:"
"""Begins every encrypted value; one without it was kept by a version that did not encrypt."""
_CLOSED: Final = "`%s` could be read by other users of this machine; it is closed to them now"
_OPEN: Final = (
    "`%s` may be read by other users of this machine, and cannot be closed to them; give it to the user of "
    "the service, or move the data folder where the file system has no modes"
)
_NONCE: Final = 12
_PURPOSE: Final = b"agent-governance-service: secrets at rest"


class SecretsLocked(Exception):
    """The data key cannot be had with this signing secret."""


class Vault:
    """Encrypts and decrypts; locked until it is given the data key."""

    def __init__(self) -> None:
        self._cipher: AESGCM | None = None

    def unlock(self, data_key: bytes) -> None:
        self._cipher = AESGCM(data_key)

    def seal(self, text: str) -> str:
        """Raises SecretsLocked."""
        return PREFIX + _encrypted(self._open_cipher(), text.encode())

    def open(self, kept: str) -> str:
        """The text of a kept value, encrypted or of before. Raises SecretsLocked."""
        if not kept.startswith(PREFIX):
            return kept
        return _decrypted(self._open_cipher(), kept.removeprefix(PREFIX)).decode()

    def _open_cipher(self) -> AESGCM:
        if self._cipher is None:
            raise SecretsLocked(
                "the secrets of this database are encrypted, and the signing secret is not here"
            )
        return self._cipher


VAULT: Final = Vault()
"""Of this process, as its database is."""


MOST_REPLACED: Final = 4
"""Secrets of a webhook that sign along; each is a signature in a header of each delivery."""


def signing(secret: str, replaced: str | None, until: str | None, now: float) -> list[str]:
    """The secrets of a webhook, newest first: that in force, and for a day those that rotations replaced. Of
    several in a day a receiver may have missed any, as after a second click. Raises SecretsLocked."""
    along = VAULT.open(replaced).split() if replaced and until and seconds(until) > now else []
    return [each for each in (VAULT.open(secret), *along) if each]


def sealed(replaced: Sequence[str]) -> str | None:
    """What is kept of those that are replaced now. Raises SecretsLocked."""
    return VAULT.seal(" ".join(replaced[:MOST_REPLACED])) if replaced else None


def new_data_key() -> bytes:
    return secrets.token_bytes(32)


def wrapped(data_key: bytes, signing_secret: bytes) -> str:
    return _encrypted(_wrapping(signing_secret), data_key)


def unwrapped(kept: str, signing_secret: bytes) -> bytes:
    """Raises SecretsLocked when it was wrapped with another secret."""
    return _decrypted(_wrapping(signing_secret), kept)


def _wrapping(signing_secret: bytes) -> AESGCM:
    return AESGCM(HKDF(algorithm=SHA256(), length=32, salt=None, info=_PURPOSE).derive(signing_secret))


def _encrypted(cipher: AESGCM, content: bytes) -> str:
    nonce = secrets.token_bytes(_NONCE)
    return base64.b64encode(nonce + cipher.encrypt(nonce, content, _PURPOSE)).decode()


def _decrypted(cipher: AESGCM, kept: str) -> bytes:
    try:
        content = base64.b64decode(kept, validate=True)
        return cipher.decrypt(content[:_NONCE], content[_NONCE:], _PURPOSE)
    except (InvalidTag, ValueError):
        raise SecretsLocked("a secret in the database was encrypted under another signing secret") from None


def close_to_others(path: Path) -> None:
    """The database holds secrets: nobody but its owner may read it, nor the files that SQLite puts beside it,
    which get its mode. An older one that others could read is closed."""
    with contextlib.suppress(OSError):  # what cannot be made says so when it is opened
        # Not one that is there: to close it would take away the locks that SQLite has on it in this process.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    for each in (path, *(path.with_name(path.name + ending) for ending in ("-wal", "-shm"))):
        with contextlib.suppress(OSError):
            mode = each.stat().st_mode
            if os.name != "nt" and stat.S_ISREG(mode) and stat.S_IMODE(mode) & 0o077:
                with contextlib.suppress(OSError):
                    each.chmod(0o600)
                log.warning(_OPEN if stat.S_IMODE(each.stat().st_mode) & 0o077 else _CLOSED, each)
