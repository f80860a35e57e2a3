"""Live policies that no file and no API changes, for a service that is about something else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from engine.documents.policy import policy_from_json
from engine.live import LivePolicies
from engine.matching.ruleset import Ruleset
from engine.model import Policy
from engine.repository.snapshot import Snapshot


class FixedPolicies(LivePolicies):
    """Policies by organisation; those without an entry have `everybody`."""

    def __init__(self, policies: Mapping[str, Iterable[Policy]], everybody: Iterable[Policy] = ()) -> None:
        self._rulesets = {name: Ruleset.build(each, 1) for name, each in policies.items()}
        self._everybody = Ruleset.build(everybody, 1)

    @classmethod
    def of(cls, *policies: Policy) -> FixedPolicies:
        """The same for every organisation."""
        return cls({}, policies)

    @classmethod
    def of_shapes(cls, shapes: Iterable[Mapping[str, Any]]) -> FixedPolicies:
        """From the API's shape, each with its `organisationId`."""
        found: dict[str, list[Policy]] = defaultdict(list)
        for shape in shapes:
            body = {"enabled": True, **shape}
            organisation_id = body.pop("organisationId", "default")
            found[organisation_id].append(policy_from_json(body, organisation_id=organisation_id))
        return cls(found)

    @property
    def revision(self) -> int:
        return 1

    @property
    def snapshot(self) -> Snapshot:
        return Snapshot()

    def ruleset(self, organisation_id: str) -> Ruleset:
        return self._rulesets.get(organisation_id, self._everybody)

    def catch_up(self, revision: int) -> None:
        raise AssertionError("these policies never change")

    def replaced(self) -> list[Any]:
        return []

    def health(self) -> dict[str, Any]:
        count = sum(len(each.policies) for each in self._rulesets.values())
        return {"revision": 1, "count": count, "stale": False, "inactive": [], "errors": [], "warnings": []}
