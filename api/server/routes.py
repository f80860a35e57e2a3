"""The route table: the rows of every handler module. Routing, the API document and tests all read it.

`GET /` and the console's files are no API and live in `app.py`.
"""

from __future__ import annotations

from api.handlers import (
    agents,
    alerts,
    api_keys,
    approvals,
    audit,
    authzen,
    changes,
    detectors,
    events,
    grants,
    halts,
    health,
    hooks,
    login,
    nodes,
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
    undeclared_tools,
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
    *changes.ROUTES,
    *events.ROUTES,
    *hooks.ROUTES,
    *approvals.ROUTES,
    *grants.ROUTES,
    *authzen.ROUTES,
    *runs.ROUTES,
    *halts.ROUTES,
    *agents.ROUTES,
    *alerts.ROUTES,
    *detectors.ROUTES,
    *audit.ROUTES,
    *stream.ROUTES,
    *health.ROUTES,
    *nodes.ROUTES,
    *policies.ROUTES,
    *simulation.ROUTES,
    *presets.ROUTES,
    *tools.ROUTES,
    *tool_proposals.ROUTES,
    *undeclared_tools.ROUTES,
    *webhooks.ROUTES,
    *notifications.ROUTES,
)

ROUTES = (*_RESOURCES, *docs.routes(_RESOURCES))
"""In the order of the API document."""
