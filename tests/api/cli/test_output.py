"""What commands write arrives whole, in whatever letters the output takes, or they fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest

WRITES = """
from api.cli import command_line
from api.cli.commands import openapi
from api.cli.terminal import print_json

def _run(arguments):
    {}
    return 0

openapi._openapi = _run
raise SystemExit(command_line.run(["openapi"]))
"""


def command(statement: str) -> list[str]:
    return [sys.executable, "-c", WRITES.format(statement)]


@pytest.mark.skipif(os.name == "nt", reason="pipes of Windows wait")
def test_a_pipe_that_takes_only_what_fits_gets_all_of_it() -> None:
    length = 1_000_000
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    with subprocess.Popen(command(f"print('x' * {length})"), stdout=writes) as process:
        os.close(writes)
        found = bytearray()

        def read() -> None:
            while piece := os.read(reads, 4_096):
                found.extend(piece)

        reader = threading.Thread(target=read)
        reader.start()
        assert process.wait(60) == 0
        reader.join(60)
    os.close(reads)
    assert len(found) == length + 1


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_output_of_few_letters_gets_escapes_that_json_knows(encoding: str) -> None:
    value = {"name": "Ünïcode Ω 😀"}
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        command(f"print_json({value!r})"),
        env=environment,
        encoding=encoding,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == value
