"""Where things lie in the repository."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent.parent
TESTS: Final = ROOT / "tests"
CASES: Final = TESTS / "cases"
CORPUS: Final = TESTS / "corpus"
SHIPPED: Final = ROOT / "policies.d"
