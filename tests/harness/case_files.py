"""Cases and corpora in YAML, read by libyaml where it is there: ten times as fast, and there are hundreds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(path: Path) -> Any:
    return yaml.load(path.read_bytes(), Loader=_LOADER)
