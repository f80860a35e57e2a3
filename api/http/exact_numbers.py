"""For readers of JSON: refuses a number that a double does not keep, which another reader might."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation


class InexactNumber(ValueError):
    """What is decided on would be another number than what was written; says which."""


def is_exact(text: str, number: float) -> bool:
    """Whether a number with a fraction or an exponent is kept as it was written."""
    try:
        return Decimal(text) == Decimal(repr(number))
    except InvalidOperation:  # an exponent that even a decimal does not have
        return False


def exact_number(text: str) -> float:
    """The number, for `parse_float`. Raises InexactNumber."""
    number = float(text)
    if not is_exact(text, number):
        raise InexactNumber(f"`{text[:40]}` has more digits than a number keeps; send it as text")
    return number
