"""Detectors: what is watched for, and how each stands. Files own them, as they own policies."""

from __future__ import annotations

from typing import Any, Final

from api.caller import Caller
from api.context import Context
from api.database.connection import Database
from api.handlers import definitions
from api.http.exchange import Reply, Values
from api.http.problems import ApiError, need
from api.http.route import ADMIN, VIEWER, Route
from api.store.alerts import alerts, log_reader
from engine.detectors.watch import name_of
from engine.documents.detectors import detector_as_json
from engine.model import Detector
from engine.repository.archive import FileRecord
from engine.repository.definitions import DETECTORS, Defined
from engine.repository.repository import Repository
from engine.repository.sync import WriteResult

WHAT: Final = "detector"
MOST: Final = 100
"""Detectors that count in one organisation: each looks at each record, and those of all take turns."""

_States = tuple[dict[str, tuple[int, int, str]], dict[str, int]]


async def list_detectors(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/detectors: those that count in the organisation, by id."""
    snapshot = await context.newest()
    states = await context.reads.read(caller, _states, context.store, caller.organisation_id)
    paths = snapshot.detectors_of(caller.organisation_id).values()
    return Reply([_shape(snapshot.detectors[path], snapshot.files[path], states) for path in paths])


async def get_detector(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/detectors/:id: the one that counts in the organisation."""
    snapshot, detector_id = await context.newest(), values.path["id"]
    path = need(snapshot.detectors_of(caller.organisation_id).get(detector_id), WHAT, detector_id)
    return await _reply(Defined(snapshot.detectors[path], snapshot.files[path]), caller, context)


async def create_detector(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/detectors."""
    members = {key: value for key, value in values.body.items() if key != "detectorId"}
    organisation_id = caller.organisation_id

    def create(policies: Repository) -> WriteResult[Defined[Detector]]:
        if len(policies.snapshot.detectors_of(organisation_id)) >= MOST:
            raise ApiError("conflict", f"there are {MOST} detectors, as many as may be; delete or change one")
        return DETECTORS.create(
            policies, organisation_id, values.body["detectorId"], members, author=caller.actor
        )

    stored = await context.write_policies(create)
    return await _reply(stored, caller, context, 201)


async def update_detector(caller: Caller, values: Values, context: Context) -> Reply:
    """PATCH /v1/detectors/:id: only what is sent is changed; null removes an optional field."""
    stored = await definitions.change(caller, values, context, DETECTORS, WHAT, values.body)
    return await _reply(stored, caller, context)


async def delete_detector(caller: Caller, values: Values, context: Context) -> Reply:
    """DELETE /v1/detectors/:id; its versions stay readable."""
    return await definitions.delete(caller, values, context, DETECTORS, WHAT)


async def list_detector_versions(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/detectors/:id/versions: newest first, also of one that is gone."""
    return await definitions.versions(caller, values, context, "detector", WHAT)


async def _reply(stored: Defined[Detector], caller: Caller, context: Context, status: int = 200) -> Reply:
    states = await context.reads.read(caller, _states, context.store, caller.organisation_id)
    headers = {"ETag": f'"{stored.file.etag}"'}
    if status == 201:
        headers["Location"] = f"/v1/detectors/{stored.document.detector_id}"
    return Reply(_shape(stored.document, stored.file, states), status, headers)


def _states(store: Database, organisation_id: str) -> _States:
    return alerts.by_detector(organisation_id), log_reader.count_subjects(store, organisation_id)


def _shape(detector: Detector, file: FileRecord, states: _States) -> dict[str, Any]:
    raised, subjects = states
    count, still_open, last = raised.get(detector.detector_id, (0, 0, None))
    return (
        detector_as_json(detector)
        | definitions.kept(detector.organisation_id, file)
        | {
            "state": {
                "alerts": count,
                "openAlerts": still_open,
                "lastAlertAt": last,
                "subjects": subjects.get(name_of(detector), 0),
            },
        }
    )


_REFUSED = ("policy_file_invalid", "precondition_failed", "conflict")

ROUTES = (
    Route(
        "GET",
        "/v1/detectors",
        VIEWER,
        list_detectors,
        "What is watched for, and how each detector stands",
        "alerts",
        reply="detector",
        reply_is_array=True,
    ),
    Route(
        "GET",
        "/v1/detectors/:id",
        VIEWER,
        get_detector,
        "A detector that counts in the organisation",
        "alerts",
        reply="detector",
        headers=("ETag",),
    ),
    Route(
        "POST",
        "/v1/detectors",
        ADMIN,
        create_detector,
        "Watch for something else",
        "alerts",
        status=201,
        body="detector-create",
        reply="detector",
        errors=("policy_file_invalid", "conflict"),
        headers=("ETag", "Location"),
        description="What the default organisation has counts for all; one of an organisation's own with the "
        "same id takes its place there.",
        second_admin=True,
    ),
    Route(
        "PATCH",
        "/v1/detectors/:id",
        ADMIN,
        update_detector,
        "Change a detector, or switch it off",
        "alerts",
        body="detector-update",
        reply="detector",
        errors=_REFUSED,
        headers=("ETag",),
        description="Only the fields sent are changed; null removes an optional one. Changing what everybody "
        "has makes one of the organisation's own. `If-Match` is honoured.",
        second_admin=True,
    ),
    Route(
        "DELETE",
        "/v1/detectors/:id",
        ADMIN,
        delete_detector,
        "Delete a detector of the organisation's own",
        "alerts",
        status=204,
        errors=_REFUSED,
        description="Its versions stay readable. What everybody has counts again then.",
        second_admin=True,
    ),
    Route(
        "GET",
        "/v1/detectors/:id/versions",
        VIEWER,
        list_detector_versions,
        "All versions of a detector of the organisation's own, newest first",
        "alerts",
        reply="detector-version",
        reply_is_array=True,
    ),
)
