"""The route table: the rows of every handler module. Routing, the API document and tests all read it.

`GET /` and the console's files are no API and live in `app.py`.
"""

from __future__ import annotations

from api.handlers import (
    api_keys,
    approvals,
    audit,
    authzen,
    events,
    halts,
    health,
    hooks,
    login,
    notifications,
    organisations,
    policies,
    presets,
    runs,
    settings,
    simulation,
    stream,
    tool_proposals,
    tools,
    users,
    webhooks,
)
from api.server import docs

_RESOURCES = (
    *login.ROUTES,
    *users.ROUTES,
    *api_keys.ROUTES,
    *organisations.ROUTES,
    *settings.ROUTES,
    *events.ROUTES,
    *hooks.ROUTES,
    *approvals.ROUTES,
    *authzen.ROUTES,
    *runs.ROUTES,
    *halts.ROUTES,
    *audit.ROUTES,
    *stream.ROUTES,
    *health.ROUTES,
    *policies.ROUTES,
    *simulation.ROUTES,
    *presets.ROUTES,
    *tools.ROUTES,
    *tool_proposals.ROUTES,
    *webhooks.ROUTES,
    *notifications.ROUTES,
)

ROUTES = (*_RESOURCES, *docs.routes(_RESOURCES))
"""In the order of the API document."""
