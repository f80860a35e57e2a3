"""The version of the service. A leaf, so that whoever asks for it imports nothing else."""

from importlib.resources import files
from typing import Final

VERSION: Final = "0.1.0"

_built = files("api").joinpath("revision.txt")
REVISION: Final = _built.read_text(encoding="utf-8").strip() if _built.is_file() else "unknown"
"""The commit that a wheel was built from."""
