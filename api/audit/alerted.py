"""What the log and the tables say of alerts, in one shape for both, so that they can be compared.

How much an alert counts moves without a record, and old alerts go: that one is not there says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from api.database.connection import Database

ALERT: Final = "alert"

_ALERTS: Final = (
    "SELECT alert_id, detector_id, severity, per, subject, acknowledged_by FROM alerts"
    " WHERE organisation_id = ?"
)


def of_tables(store: Database, organisation_id: str) -> dict[tuple[str, str], tuple[Any, ...]]:
    """Of each alert what it is about, and who acknowledged it."""
    return {(ALERT, row[0]): tuple(row[1:]) for row in store.rows(_ALERTS, (organisation_id,))}


def of_record(record: Mapping[str, Any], before: tuple[Any, ...] | None) -> tuple[Any, ...]:
    """The same of a record that it was raised, or, as it was `before`, acknowledged."""
    details = record["details"]
    if record["type"] == "alert.acknowledged":
        return (*(before or (details["detectorId"], details["severity"], "", "", None))[:-1], record["actor"])
    return (details["detectorId"], details["severity"], details["per"], details["subject"], None)
