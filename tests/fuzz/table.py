"""All targets by name."""

from __future__ import annotations

from typing import Final

from tests.fuzz import beside_agents, calls, documents, language, requests
from tests.fuzz.target import Target

TARGETS: Final[dict[str, Target]] = {
    target.name: target
    for room in (documents, language, calls, requests, beside_agents)
    for target in room.TARGETS
}
