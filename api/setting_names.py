"""Which variables of an environment are meant as settings and name none.

A misspelt safety setting must not be ignored, wherever the slip is: in its name, in the word that all of them
begin with, or in what an editor has put before it. It must not know which settings there are.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from api.setting_values import visible
from schemas.suggestion import closest

PREFIX: Final = "GOVERNANCE_"
_BETWEEN: Final = re.compile(r"[^A-Z0-9]+")
_LIKE_PREFIX: Final = range(7, 14)
"""Letters before the first `_` of a name that may be ours with a slip in them."""
_OF_KUBERNETES: Final = PREFIX + "SERVICE_HOST"


def problems_with_names(names: Collection[str], known: Iterable[str]) -> list[str]:
    """A line for each that is meant as one of the known and is none."""
    known = frozenset(known)
    if _OF_KUBERNETES in names:
        return [
            f"{_OF_KUBERNETES}, {PREFIX}PORT and the like come from Kubernetes, for a Service named "
            "`governance`: set `enableServiceLinks: false` in the pod, or give the Service another name"
        ]
    return [
        f"{visible(name)}: no such setting; {meant}see the guide's page of settings"
        for name in sorted(names)
        if name not in known and _is_meant(spelled := _BETWEEN.sub("_", name.upper()).strip("_"), known)
        for near in [closest(spelled, sorted(known), cutoff=0.8)]
        for meant in [f"did you mean {near}? " if near else ""]
    ]


def _is_meant(spelled: str, known: Iterable[str]) -> bool:
    """Names of others are told from slips by how like one of ours they are as a whole."""
    if spelled.startswith(PREFIX):
        return True
    is_like = spelled.startswith("G") and len(spelled.partition("_")[0]) in _LIKE_PREFIX
    return is_like and closest(spelled, known, cutoff=0.9) is not None
