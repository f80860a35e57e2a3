"""The test's side of `database_proxy.c`: the network between nodes and PostgreSQL, slow or cut as one likes.

    with DatabaseProxy(postgres.socket, round_trip=0.005) as proxy:
        address = proxy.url(database)
        proxy.stall()

What happens to the bytes is said in the C file.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from tests.harness.compiler import compile_c

SOURCE = Path(__file__).with_suffix(".c")
_TICK = os.sysconf("SC_CLK_TCK")


class DatabaseProxy:
    """One port of 127.0.0.1 before a server's Unix socket. `round_trip` in seconds."""

    def __init__(self, target: Path, round_trip: float = 0) -> None:
        with tempfile.TemporaryDirectory(prefix="governance-proxy-") as place:
            program = Path(place) / "database_proxy"
            compile_c(SOURCE, program)
            self.process = subprocess.Popen(
                [program, str(target), _one_way(round_trip)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
            self.port = int(self._answer())

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the proxy has ended"
        return line

    def _order(self, order: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(order + "\n")
        assert self._answer() == "ok\n"

    def round_trip(self, seconds: float) -> None:
        self._order(f"delay {_one_way(seconds)}")

    def stall(self) -> None:
        """As a cable pulled: nobody is told."""
        self._order("stall")

    def refuse(self) -> None:
        """As a host that is up, with nothing listening: open connections are reset, new ones too."""
        self._order("refuse")

    def go(self) -> None:
        """The network is well again."""
        self._order("go")

    def close_all(self) -> None:
        self._order("close")

    def reset_all(self) -> None:
        self._order("reset")

    def target(self, socket: Path) -> None:
        """Another server takes its place; open connections are reset."""
        self._order(f"target {socket}")
        self._order("reset")

    def url(self, address: str) -> str:
        """The address of a database of `Postgres`, by way of this port."""
        head, _, host = address.partition("?host=")
        assert host and "@/" in head, address
        return head.replace("@/", f"@127.0.0.1:{self.port}/") + "?sslmode=disable"

    def cpu(self) -> float:
        """Seconds of processor time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICK

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _one_way(round_trip: float) -> str:
    return str(round(round_trip * 500_000))
