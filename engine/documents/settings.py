"""Settings of an organisation as people write them: strict YAML -> `OrganisationSettings`.

Decides whether a document is one: its shape and values by `schemas/`. What a setting means, and what it is
while nobody has set it, is decided in `conditions.settings`.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.documents.document import API_VERSION, read_document, shape_defects
from engine.errors import DocumentError
from engine.model import Json, OrganisationSettings


def load_settings(source: bytes, file: str = "") -> tuple[OrganisationSettings, int | None]:
    """The settings of a YAML file, and the version it declares. Raises DocumentError with every problem, at
    file:line:column."""
    document = read_document(source, file, "documents/organisation_settings", "organisationId")
    document.refuse(document.defects)
    value = document.value
    settings = OrganisationSettings(value["settings"], organisation_id=value["organisationId"])
    return settings, document.version


def check_settings(values: Mapping[str, Json]) -> None:
    """Raises DocumentError with every problem; pointers are into the values."""
    found = shape_defects("documents/organisation_settings", values, "/$defs/settings")
    if found:
        raise DocumentError(each.problem() for each in found)


def settings_document(organisation_id: str, version: int, values: Mapping[str, Json]) -> dict[str, Json]:
    """The whole document."""
    return {
        "apiVersion": API_VERSION,
        "kind": "OrganisationSettings",
        "organisationId": organisation_id,
        "version": version,
        "settings": dict(values),
    }
