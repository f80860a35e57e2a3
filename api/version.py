"""The version of the service. A leaf, so that whoever asks for it imports nothing else."""

from typing import Final

VERSION: Final = "0.1.0"
