"""What happened, as detectors count it: like things of one minute together.

Decides nothing; whoever reads the log makes them, and so does an example of a detector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from engine.model import Watched

MOST_EVIDENCE: Final = 20


class Happening(msgspec.Struct):
    """Things that happened alike within one `minute` (since the epoch); members that have no value are empty.

    `order` says where each stands among all that is observed together, ascending, and `audit_id` by which
    record each is known. `what` of an agent changed, with `agent.changed`.
    """

    on: Watched
    minute: int
    order: Sequence[int]
    audit_id: Callable[[int], str] | None = None
    agent_id: str = ""
    key_id: str = ""
    run_id: str = ""
    user_id: str = ""
    tool_name: str = ""
    what: str = ""
    value: str = ""
    """What it changed to."""
    count: int = 0
    """How many they are; 0: as many as `order` has."""

    @property
    def times(self) -> int:
        return self.count or len(self.order)

    def evidence(self, most: int = MOST_EVIDENCE) -> list[str]:
        """The audit ids of the newest of them."""
        return [] if self.audit_id is None else [self.audit_id(number) for number in self.order[-most:]]


MEMBERS: Final = {
    "agentId": "agent_id",
    "apiKeyId": "key_id",
    "runId": "run_id",
    "userId": "user_id",
    "toolName": "tool_name",
}
"""What `per` and `distinct` name."""
