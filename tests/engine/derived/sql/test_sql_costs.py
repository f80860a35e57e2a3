"""How often the parser of SQL begins anew for one call is bounded, however the statements are given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from engine.derived.sql import parser
from engine.derived.sql.statements import statements_of

TEXTS = {
    "many texts": [f"a{number}" for number in range(8_000)],
    "statements that cannot be read": ["(;" * 8_000],
    "several readings of each": ["[`;" * 5_000],
    "with backquotes": ["`a`(;" * 3_000],
}


@pytest.mark.parametrize("texts", TEXTS.values(), ids=TEXTS)
def test_how_often_it_begins(texts: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    begun = 0
    reader = parser._reader

    def counted(dialect: str) -> tuple[Any, Any]:
        nonlocal begun
        begun += 1
        return reader(dialect)

    monkeypatch.setattr(parser, "_reader", counted)
    _, is_partial = statements_of(texts)
    assert is_partial, "what is not read is said"
    assert begun < 6_000


def test_a_long_script_is_read_whole() -> None:
    script = "".join(f"insert into t{number} values (1);\n" for number in range(450)) + "create oddly ( ;"
    found, is_partial = statements_of([script])
    assert not is_partial and len(found) == 451
