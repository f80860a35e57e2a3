"""For readers of JSON: refuses a number that a double does not keep, which another reader might."""

from __future__ import annotations

from engine.fields.scalars import is_kept


class InexactNumber(ValueError):
    """What is decided on would be another number than what was written; says which."""


def exact_number(text: str) -> float:
    """The number, for `parse_float`. Raises InexactNumber."""
    number = float(text)
    if not is_kept(text, number):
        raise InexactNumber(f"`{text[:40]}` has more digits than a number keeps; send it as text")
    return number
