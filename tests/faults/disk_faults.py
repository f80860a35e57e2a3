"""The test's side of `disk_faults.c`: builds it, says which step fails and how, and reads what happened."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from tests.harness.compiler import compile_c

SOURCE = Path(__file__).with_suffix(".c")
_LAYOUT = struct.Struct("<qiiii16s64s256s")

KINDS = {"fails": 1, "full": 2, "short": 3, "late": 4, "dies": 5}
"""An I/O error; no space; half is written, then no space; an I/O error although it was written; half is
written, then `kill -9`."""


class DiskFaults:
    """Steers processes that were started with `environment`; `below` is the folder whose files fail."""

    def __init__(self, place: Path, below: Path) -> None:
        library = place / "disk_faults.so"
        if not library.exists():
            compile_c(SOURCE, library, "-shared", "-fPIC", "-ldl")
        control = place / "disk_faults.control"
        control.write_bytes(bytes(_LAYOUT.size))
        control.chmod(0o666)
        with control.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), _LAYOUT.size)
        self.environment = {
            "LD_PRELOAD": str(library),
            "FAULTS_CONTROL": str(control),
            "FAULTS_BELOW": f"{below}/",
        }

    def arm(self, step: int, kind: str, *, stays: bool = False, call: str = "", only: str = "") -> None:
        """So many steps pass, the next fails; with `stays` all after it, too. Steps are `only` calls on paths
        that hold this text (with `$` at its end: that end so), and only of this `call`."""
        self._page[:] = _LAYOUT.pack(step, KINDS[kind], stays, 0, 0, call.encode(), only.encode(), b"")

    def clear(self) -> None:
        """The disk is well again; what was reached stays readable."""
        left, _, stays, *rest = _LAYOUT.unpack(self._page[:])
        self._page[:] = _LAYOUT.pack(left, 0, stays, *rest)

    def count(self) -> None:
        """Only count steps."""
        self.arm(1 << 60, "fails")

    @property
    def reached(self) -> bool:
        return bool(_LAYOUT.unpack(self._page[:])[3])

    @property
    def steps(self) -> int:
        return int(_LAYOUT.unpack(self._page[:])[4])

    @property
    def what(self) -> str:
        """The first step that failed."""
        text: bytes = _LAYOUT.unpack(self._page[:])[7]
        return text.rstrip(b"\0").decode()
