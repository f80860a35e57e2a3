"""Hooks of the schemathesis runs of `test_schemathesis.py`, which hand over by the environment.

They choose among requests and give known ids to some of them; no answer is looked at here.
"""

from __future__ import annotations

import ipaddress
import itertools
import json
import os
from typing import Any

import requests
import schemathesis

OWN_ID = os.environ.get("TEST_OWN_USER_ID")
KNOWN: dict[str, dict[str, str]] = json.loads(os.environ.get("TEST_KNOWN_IDS", "{}"))
"""Path template -> path parameters of something that exists."""
_turn = itertools.count()
_address = itertools.count(int(ipaddress.ip_address("198.18.0.0")))


def _from_elsewhere(_: Any, request: requests.PreparedRequest, **__: Any) -> None:
    """Each request comes from an address of its own: `ignored_auth` tries one wrong key after another and
    takes nothing for a refusal but 401 and 403, while an address that tries many is told to wait (429)."""
    request.headers["X-Forwarded-For"] = str(ipaddress.ip_address(next(_address)))


requests.adapters.HTTPAdapter.add_headers = _from_elsewhere  # a request as it goes out; no case knows of it


@schemathesis.hook
def filter_case(context: Any, case: Any) -> bool:
    if OWN_ID is not None and OWN_ID in (case.path_parameters or {}).values():
        return False  # the run must not change the very user that it is, whose token would end
    # A cursor is an opaque text of the service; only the service can make one up.
    return not (case.meta.generation.mode.is_positive and "cursor" in (case.query or {}))


@schemathesis.hook
def map_case(context: Any, case: Any) -> Any:
    """Every other well-formed request goes to something that exists."""
    known = KNOWN.get(case.operation.path)
    if known and case.meta.generation.mode.is_positive and next(_turn) % 2:
        case.path_parameters = dict(known)
    return case


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """A request that may wait for minutes does not wait; what is no number stays as it is."""
    wait = (case.query or {}).get("wait")
    if not isinstance(wait, bool) and str(wait).isdecimal() and 0 < int(str(wait)) <= 240:
        case.query["wait"] = 0
