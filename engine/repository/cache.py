"""What earlier starts have already checked, so that a restart does not parse and validate it all again.

Keyed by the digest of a policy file's exact bytes and trusted only under the same engine: the cache's name
holds a digest of the engine's own source, of the grammar and of the schemas. It lies in the service's data
folder, is plain JSON below one line that seals it, and losing it costs nothing but time. Problems are never
cached.

INVARIANT: what the cache says of a policy was written by who has the key of the seal: else a damaged or
edited one would decide other than the files, with nothing in the record to show it.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from engine.documents.policy import policy_as_json, policy_from_state
from engine.model import Policy


@cache
def engine_version() -> str:
    """A digest of all that decides whether a document is valid and what it means."""
    root = Path(__file__).parent.parent.parent
    digest = hashlib.sha256()
    for package in ("engine", "grammar", "schemas"):
        for path in sorted((root / package).rglob("*")):
            if path.suffix in (".py", ".lark", ".json"):
                digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


class DocumentCache:
    """Checked policies by digest. Without a folder it remembers nothing."""

    def __init__(self, folder: Path | None = None, key: bytes = b"") -> None:
        """`key` is a secret that seals what is written; what is sealed otherwise is not read."""
        self._path = None if folder is None else folder / f"policies-{engine_version()}.json"
        self._key = key
        self._states: dict[str, Any] = {}
        self._fresh: dict[str, Policy] = {}
        if self._path is not None:
            with contextlib.suppress(OSError, ValueError):
                seal, _, content = self._path.read_bytes().partition(b"\n")
                states = (
                    msgspec.json.decode(content) if hmac.compare_digest(seal, self._seal(content)) else {}
                )
                self._states = states if isinstance(states, dict) else {}

    def get(self, digest: str, policy_id: str, organisation_id: str, version: int) -> Policy | None:
        """A policy that was checked before; the same bytes under another name are another policy."""
        state = self._states.get(digest)
        if state is None or state.get("policyId") != policy_id:
            return None
        return policy_from_state(state, organisation_id, version)

    def put(self, digest: str, policy: Policy) -> None:
        if self._path is not None and digest not in self._states:
            self._fresh[digest] = policy

    def save(self, digests: Iterable[str]) -> None:
        """Write the cache down, holding just these digests, if there is anything new; forget it all."""
        if self._path is not None and self._fresh:
            wanted = set(digests)
            states = {digest: state for digest, state in self._states.items() if digest in wanted}
            states |= {d: policy_as_json(policy) for d, policy in self._fresh.items() if d in wanted}
            aside = self._path.with_suffix(".tmp")
            with contextlib.suppress(OSError, ValueError):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                aside.touch(mode=0o600)
                content = msgspec.json.encode(states)
                aside.write_bytes(self._seal(content) + b"\n" + content)
                aside.replace(self._path)
                for old in self._path.parent.glob("policies-*.json"):
                    if old != self._path:
                        old.unlink()
        self._states, self._fresh = {}, {}
        self._path = None

    def _seal(self, content: bytes) -> bytes:
        return hmac.digest(self._key, content, "sha256").hex().encode()
