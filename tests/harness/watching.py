"""The detectors of a running service, looking at once instead of every second."""

from __future__ import annotations

from typing import Any

from api.alerts.detection import Detection
from api.alerts.worker import take_step
from api.context import Context
from tests.harness.application import Installation, Service
from tests.harness.places import SHIPPED

DETECTORS = {
    f"detectors/{path.name}": path.read_text(encoding="utf-8")
    for path in sorted((SHIPPED / "detectors").glob("*.yaml"))
}
"""The shipped ones, as files of a service."""
TOOLS = {
    path.relative_to(SHIPPED).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted((SHIPPED / "tools").rglob("*.yaml"))
}


def another(context: Context) -> Detection:
    """That of another process, which reads all from the log."""
    return Detection(context.store, context.live, context.clock, context.ids)


async def look(service: Installation, watching: Detection | None = None) -> None:
    """Have all that is committed looked at, by the service or as by another process."""
    watching = watching or service.context.detection
    while await take_step(watching, service.context.store, service.context.writer):
        pass


async def alerts(service: Service, who: str = "admin", query: str = "") -> list[dict[str, Any]]:
    """The alerts, oldest first."""
    answer = await service.call(who, "GET", f"/v1/alerts?order=asc{query}")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()
    return found


def files(*names: str) -> dict[str, str]:
    """The shipped detectors, or some of them, with the shipped tools."""
    chosen = {f"detectors/{name}.yaml" for name in names} or DETECTORS.keys()
    return {path: text for path, text in DETECTORS.items() if path in chosen} | TOOLS
