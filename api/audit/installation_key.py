"""The Ed25519 key that signs checkpoints of the audit log: one for an installation, shared by its nodes.

It is a file of its own (`audit-key`, mode 0600), not a row of the database: whoever can change the database,
but cannot read this file, can forge no checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from api.auth.private_file import kept
from api.settings import Settings, SettingsError

FILE: Final = "audit-key"
ALGORITHM: Final = "Ed25519"


@dataclass(frozen=True, slots=True)
class PublicKey:
    """`text` is the 32 bytes of the key in hexadecimal."""

    text: str

    @property
    def key_id(self) -> str:
        """The first 16 hexadecimal digits of the key's sha256."""
        return sha256(bytes.fromhex(self.text)).hexdigest()[:16]

    def verifies(self, signature: str, content: bytes) -> bool:
        try:
            Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.text)).verify(
                bytes.fromhex(signature), content
            )
        except (InvalidSignature, ValueError):
            return False
        return True


def public_key(text: str) -> PublicKey:
    """A key as it is written in a file or a checkpoint. Raises ValueError."""
    written = text.strip().lower()
    Ed25519PublicKey.from_public_bytes(bytes.fromhex(written))
    return PublicKey(written)


class InstallationKey:
    """The private key; it says nothing of itself."""

    def __init__(self, secret: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(secret)
        self.public = PublicKey(self._key.public_key().public_bytes_raw().hex())

    def sign(self, content: bytes) -> str:
        return self._key.sign(content).hex()


def installation_key(settings: Settings) -> InstallationKey:
    """The key of the data folder, or of `GOVERNANCE_AUDIT_KEY_FILE`; made at the first call. Raises
    SettingsError when it must not be used."""
    path = key_file(settings)
    otherwise = "move it to another one, and name it in GOVERNANCE_AUDIT_KEY_FILE"
    text = kept(path, "the key of the audit log", new_key, otherwise)
    try:
        return InstallationKey(bytes.fromhex(text))
    except ValueError:
        raise SettingsError(
            f"the key of the audit log `{path}` is not 32 bytes in hexadecimal; put the right file back"
        ) from None


def key_file(settings: Settings) -> Path:
    named: Path | None = settings.audit_key_file
    return named or settings.data_dir / FILE


def kept_file(path: Path, key: PublicKey) -> Path:
    """Where a key of before is kept beside the one of now."""
    return path.with_name(f"{path.name}.{key.key_id}")


def new_key() -> str:
    """The text of the file of a new private key."""
    return Ed25519PrivateKey.generate().private_bytes_raw().hex()
