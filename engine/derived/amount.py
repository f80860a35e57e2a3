"""The money a call moves: what `derived.amount` and `derived.currency` show.

Only of tools that pay, and of those that nobody declared. Amounts under one key are summed, since many small
payments in one call are one large one, and a negative one among them takes nothing from the others; of
several keys the greatest sum counts. A price beside a quantity counts so many times. What is below zero moves
as much the other way, so an amount never is. Knows nothing of
policies.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import inf, isfinite, isinf
from typing import Final

from engine.derived.payload import Leaf
from engine.derived.tools import UNDECLARED
from engine.fields.computed import UNREADABLE
from engine.fields.scalars import MAX_NUMERIC_TEXT, numbers_of
from engine.fields.visible import composed
from engine.fields.words import word_set, words_of
from engine.model import Json, ToolDeclaration

_AMOUNT: Final = word_set("amount amounts amt sum total price cost fee budget payment payout")
_BARE: Final = frozenset({"value", "number", "units"})
"""Keys that hold an amount below a key that names one; the first also by itself, of a tool that pays."""
_OWNING: Final = frozenset({"amount", "amounts", "amt"})
"""Keys below which a number is an amount, whatever its own key (`{"amount": {"EUR": 5}}`), but for ..."""
_SCALE: Final = word_set(
    "nanos fraction fractional exponent scale precision decimals digits index position"
    " code chain version timestamp created updated"
)
"""... what says how a number is to be read, of what, or since when."""
_MINOR: Final = word_set("cents cent minor pence pennies")
_NOT: Final = word_set(
    "id type currency unit count max min limit name description method intent status date tax rate"
)
_PRICES: Final = frozenset(
    ["price", "unit price", "limit price", "item price", "share price", "unit cost", "price each"]
    + [f"{what} per {one}" for what in ("price", "cost") for one in ("unit", "item", "share")]
)
"""Keys of what one of several costs."""
_QUANTITIES: Final = frozenset(
    ["quantity", "qty", "shares", "contracts", "lots", "number of shares", "num shares", "share count"]
    + [f"{what} {many}" for what in ("order", "item", "share", "total") for many in ("quantity", "qty")]
)
_COUNTED: Final = re.compile(
    r"\s?\b(?:x|pieces?|units?|items?|shares?|box(?:es)?|bottles?|bags?|licen[sc]es?|seats?|hours?|days?|months?|kg)\s?\Z"
    r"|(?<=\d)(?:x|kg)\s?\Z",
    re.IGNORECASE,
)
"""What is counted, at the end of a quantity."""
_CURRENCY: Final = frozenset(["currency", "ccy"])
_SYMBOLS: Final = {
    "€": "EUR",
    "$": "USD",
    "£": "GBP",
    "¥": "JPY",
    "₹": "INR",
    "₽": "RUB",
    "₿": "BTC",
    "₩": "KRW",
}
_PRICE_ID: Final = re.compile(r"price_\w{1,64}")
"""What some services call a price by."""
_CODE: Final = re.compile(r"(?<![A-Za-z])[A-Za-z]{3}(?![A-Za-z])")
_MANIFOLD: Final = word_set("mio mil mln mrd bil bln tsd doz")
"""Three letters that are no currency, but say how many times the number before them is meant."""
_DIGITS: Final = re.compile(r"[+-]?[0-9][0-9.,' _]*(?:[eE][+-]?[0-9]{1,3})?")


_GROUPED: Final = re.compile(r"\A([+-]?[1-9][0-9]{0,2})\.([0-9]{3})\Z")
"""A lone point before three digits, in a text that is no plain number: some write thousands so."""


def amount_of(leaves: Sequence[Leaf], tool: ToolDeclaration, unreadable: bool) -> tuple[Json, str | None]:
    """Amount and currency; None for what is not there, `UNREADABLE` for an amount that cannot be read, as
    where the leaves are not all (`unreadable`)."""
    if tool is not UNDECLARED and tool.kind != "payments" and tool.effect != "pay":
        return None, None
    found: dict[tuple[str, str], list[float]] = {}
    currencies: dict[str, None] = {}
    times = _times(leaves)
    for leaf in leaves:
        words = set(leaf.key.split())
        if not words.isdisjoint(_CURRENCY) and isinstance(leaf.value, str):
            currencies[composed(leaf.value[:64]).strip().upper()] = None
        elif _is_amount(leaf, words) or (leaf.key == "value" and not leaf.owner and tool.effect == "pay"):
            number = _number(leaf.value, currencies)
            if number is not None and leaf.key in _PRICES and (many := times.get(leaf.owner)):
                number = _product(number, many.pop() if len(many) > 1 else many[0])
            elif number is not None and leaf.owner in _PRICES and times:
                number = _product(number, max(map(max, times.values())))
            if number is None:
                unreadable = True
            else:
                parts = found.setdefault((leaf.owner, leaf.key), [])
                parts.append(number / (1 if words.isdisjoint(_MINOR) else 100))
    currencies.pop("", None)
    currency = next(iter(currencies)) if len(currencies) == 1 else "mixed" if currencies else None
    greatest = max(map(_moved, found.values()), default=0)
    if unreadable or isinf(greatest):
        return UNREADABLE, currency
    if not found:
        return None, None
    return (int(greatest) if greatest < 2**53 and greatest == int(greatest) else greatest), currency


def _times(leaves: Sequence[Leaf]) -> dict[str, list[float]]:
    """How many of each are meant, the last first, by the key above: for each price there one; where they are
    not as many as the prices, the most of them. What cannot be read is too many."""
    many: dict[str, list[float]] = {}
    prices: dict[str, int] = {}
    for leaf in leaves:
        if leaf.key in _QUANTITIES and not isinstance(leaf.value, bool):
            told = leaf.value
            if isinstance(told, str) and len(told) <= MAX_NUMERIC_TEXT:
                told = _COUNTED.sub(" pcs", told).strip()
            if told is None or told == "":
                continue
            number = _number(told, {})
            many.setdefault(leaf.owner, []).insert(0, inf if number is None else abs(number) or 1)
        elif leaf.key in _PRICES:
            prices[leaf.owner] = prices.get(leaf.owner, 0) + 1
    return {
        owner: found if len(found) == prices.get(owner) else [max(found)] for owner, found in many.items()
    }


def _product(price: float, times: float) -> int | float | None:
    return None if isinf(times) else _bounded(price * times)


def _moved(parts: list[float]) -> float:
    """What amounts under one key come to, whichever way each goes: at least each of them."""
    return max(abs(sum(parts)), sum(part for part in parts if part > 0), -min(parts))


def _is_amount(leaf: Leaf, words: set[str]) -> bool:
    if isinstance(leaf.value, bool) or (leaf.key not in _PRICES and not _NOT.isdisjoint(words)):
        return False
    if words == {"price"} and isinstance(leaf.value, str) and _PRICE_ID.fullmatch(leaf.value):
        return False
    named = not _AMOUNT.isdisjoint(words) or bool(words & _MINOR)
    if leaf.owner in _OWNING and words.isdisjoint(_SCALE | _CURRENCY) and numbers_of(leaf.value):
        return True
    return named or (not words.isdisjoint(_BARE) and not _AMOUNT.isdisjoint(leaf.owner.split()))


def names_amount(path: Sequence[str]) -> bool:
    """Whether what stands there is an amount, or one of a list, by its name."""
    name = next((part for part in reversed(path) if not part.isdigit()), "")
    return not _AMOUNT.isdisjoint(words_of(name).split())


def _number(value: Json, currencies: dict[str, None]) -> int | float | None:
    """The number of `1250`, `"1,250.00 EUR"`, `"€1.250,00"`, `"1.250 EUR"`; of `1.250` as JSON has it."""
    number = _greatest(value)
    if number is not None or not isinstance(value, str):
        return _bounded(number)
    text = composed(value[: MAX_NUMERIC_TEXT + 1]).strip()
    if len(text) > MAX_NUMERIC_TEXT:
        return None
    for symbol, code in _SYMBOLS.items():
        if symbol in text:
            currencies[code] = None
            text = text.replace(symbol, " ")
    codes = _CODE.findall(text)
    if not _MANIFOLD.isdisjoint(map(str.lower, codes)):
        return None
    for found in codes:
        currencies[found.upper()] = None
    digits = _DIGITS.findall(text)
    rest = _CODE.sub("", _DIGITS.sub("", text)).strip(" -+.")
    if len(digits) != 1 or rest:
        return None
    return _bounded(_greatest(_plain(_GROUPED.sub(r"\1\2", digits[0].rstrip(" .,")))))


def _greatest(value: Json) -> int | float | None:
    """The number of a value; of a text that has more digits than are kept rather more than less."""
    return max(numbers_of(value), key=abs, default=None)


def _plain(digits: str) -> str:
    """Without the separators of thousands, the decimal mark as a point. A lone comma is one before one or two
    digits; before more, the greater number counts."""
    digits = re.sub(r"[' _]", "", digits).rstrip(".,")
    point, comma = digits.rfind("."), digits.rfind(",")
    if point >= 0 and comma >= 0:
        thousands, mark = (",", ".") if point > comma else (".", ",")
        return digits.replace(thousands, "").replace(mark, ".")
    if digits.count(",") == 1 and len(digits) - comma < 4:
        return digits.replace(",", ".")
    digits = digits.replace(",", "")
    return digits if digits.count(".") <= 1 else digits.replace(".", "")


def _bounded(number: int | float | None) -> int | float | None:
    if number is None:
        return None
    try:
        return number if isfinite(number) else None
    except OverflowError:
        return None
