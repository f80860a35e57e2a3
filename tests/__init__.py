"""What holds for every process of a test run, before anything else is imported.

Tests start hundreds of processes. Where Python may not leave compiled sources beside them
(`PYTHONDONTWRITEBYTECODE`), each of those would compile the whole service again: here they share a folder of
their own for that.
"""

import os
import sys
from pathlib import Path

if sys.dont_write_bytecode and sys.pycache_prefix is None:
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(Path(__file__).parent.parent / ".pytest_cache" / "bytecode")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
