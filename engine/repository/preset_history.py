"""The history of a policy beside the history of its preset: what `upgrade` reads its bases from.

Decides where the life of a policy from its preset begins: at its activation, at the version that named this
preset, or anew after a deletion. It reads the archive and decides nothing about members.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.derived.tools import Tools
from engine.documents.preset_upgrade import Step, Upgrade, origin_of, plan
from engine.documents.presets import Preset, load_preset
from engine.errors import DocumentError, PresetNotFound
from engine.repository.archive import Records, VersionRecord
from engine.repository.snapshot import Snapshot, Stored


@dataclass(frozen=True, slots=True)
class UpgradeOffer:
    """What upgrading a policy to its preset would do. `etag` names this state of both."""

    stored: Stored
    preset: Preset
    upgrade: Upgrade

    @property
    def etag(self) -> str:
        return f"{self.stored.etag}-{self.preset.digest[:16]}"


def offer(records: Records, head: Snapshot, stored: Stored) -> UpgradeOffer:
    """The preset of a policy, and what an upgrade to it would do. Raises PresetNotFound."""
    policy = stored.policy
    preset_id = policy.preset_id
    if preset_id is None:
        raise PresetNotFound(f"`{policy.policy_id}` was not made from a preset")
    preset = head.presets.get(preset_id)
    if preset is None:
        raise PresetNotFound(f"`{policy.policy_id}` was made from the preset `{preset_id}`, which is gone")
    versions = records.versions(policy.organisation_id, policy.policy_id)
    tools = Tools(head.tools_of(policy.organisation_id))
    origin = origin_of(_steps(records, versions, preset_id), policy.preset_parameters or {}, tools)
    return UpgradeOffer(stored, preset, plan(origin, preset, policy, tools))


def _steps(records: Records, versions: Sequence[VersionRecord], preset_id: str) -> list[Step]:
    """Oldest first; `versions` are newest first."""
    life: list[VersionRecord] = []
    for version in versions:
        if version.state.get("presetId") != preset_id or (life and version.deleted):
            break
        life.append(version)
    past = records.preset_history(preset_id)
    known: dict[str, Preset | None] = {}
    steps: list[Step] = []
    for version in reversed(life):
        digest = _digest_at(past, version.revision)
        if digest is not None and digest not in known:
            known[digest] = _loaded(records, digest)
        steps.append(Step(version.state, known[digest] if digest else None))
    return steps


def _digest_at(past: Sequence[tuple[int, str]], revision: int) -> str | None:
    """What a preset was at a revision; a policy may be older than the preset it names."""
    earlier = [digest for at, digest in past if at <= revision]
    return earlier[-1] if earlier else past[0][1] if past else None


def _loaded(records: Records, digest: str) -> Preset | None:
    """None for a preset that this version of the service does not accept."""
    try:
        return load_preset(records.blob(digest))
    except (DocumentError, KeyError):
        return None
