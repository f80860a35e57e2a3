"""Which values a text holds, so that one text can be found again in another: as a whole, and its tokens.

A value is compared as the 64-bit hash of its normal form: NFKC, nothing invisible, case folded, one blank
between words, no punctuation around it. Tokens are mail addresses, URLs and their hosts, account numbers,
ids, amounts of money, what stands in quotes, single words, and of what a person wrote also phrases of two to
six words. A bare number of one to three digits is a value only where it is the whole. Never raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from engine.fields.scalars import text_of
from engine.fields.visible import composed
from engine.model import Json

LONGEST: Final = 2**14
"""Characters of one text that are looked at, as it is composed, where one may become eighteen; of a longer
one the rest is unseen."""
MOST_BYTES: Final = 2**16
"""Of all texts of one call together, where each is looked at. INVARIANT: what nobody has looked at comes from
nowhere that could be believed."""
LONGEST_PHRASE: Final = 6
LONGEST_KEPT: Final = 128
"""Characters of a text whose hashes are remembered."""

_AROUND: Final = " \t\r\n.,;:!?\"'`()[]{}<>«»“”‘’„*"
_BLANKS: Final = re.compile(r"\s+")
_TOKEN: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9@.+%/:#_-]{0,254}[A-Za-z0-9])?")
"""What is in normal form but for its case."""
_PLAIN: Final = re.compile(r"[a-z][a-z0-9.+_]*+(?:@[a-z0-9._-]++)?")
"""What has one form only: a word, an address, a host."""
_SCHEME: Final = re.compile(r"(?:https?|ftp)://")
_WORD: Final = re.compile(r"\w+(?:['’_-]\w+)*")
_SHORT_NUMBER: Final = re.compile(r"\d{1,3}")
_MARKED: Final = (
    re.compile(r"(?<![\w.+%-])[\w.+%-]{1,64}+@[\w-]{1,63}+(?:\.[\w-]{1,63}+)+"),
    re.compile(r"(?:https?|ftp)://[^\s\"'<>\])}]++"),
    re.compile(r"(?<![\w.@-])(?:[\w-]{1,63}+\.){1,8}[a-z][\w-]{1,62}+(?::\d{1,5}+)?(?:/[^\s\"'<>\])}]*+)?"),
    re.compile(r"(?<![\w./~-])(?:~|\.{1,2})?/[^\s\"'<>\])};,]++"),
    re.compile(r"(?<!\w)[a-z]{2}\d{2}(?:[ -]?[a-z0-9]{2,4}){2,8}(?!\w)"),
    re.compile(r"(?<![\w.])\+?\d(?:[ -]?\d){3,30}(?!\w)"),
    re.compile(r"(?<![\w-])(?=[\w-]{0,64}\d)(?=[\w-]{0,64}[a-z_-])[\w-]{2,64}+(?![\w-])"),
    re.compile(
        r"[$€£¥]\s?\d[\d.,]{0,30}|(?<![\w.,])\d[\d.,]{0,30}\s?(?:[$€£¥]|(?:usd|eur|gbp|chf|jpy|euros?|dollars?)(?!\w))"
    ),
    re.compile(r"(?<![\w.,])\d{1,30}+[.,]\d{1,30}+(?![\w.,])"),
)
"""Addresses, URLs, hosts, paths, account numbers, other numbers, ids, amounts."""
_QUOTED: Final = re.compile(
    r"\"([^\"\n]{1,200})\"|(?<!\w)'([^'\n]{1,200})'(?!\w)|[“«„]([^“«„”»\n]{1,200})[”»“]|`([^`\n]{1,200})`"
)
_PHONE: Final = re.compile(r"(?<![\w.])\+?\d{0,3}[ .-]?\(\d{1,5}\)[ .-]?\d(?:[ .-]?\d){3,14}(?!\w)")
"""One with its area in brackets."""
_BETWEEN_DIGITS: Final = re.compile(r"[ ().-]")
_MONEY: Final = re.compile(r"[$€£¥\s]|usd|eur|gbp|chf|jpy|euros?|dollars?")
_SEPARATED: Final = re.compile(r"[ -]")
_ACCOUNT: Final = re.compile(r"\+?[a-z]{0,2}\d(?>(?:[a-z0-9 -]*[ -])?)[a-z]*+\d[a-z0-9]*+")
_DECIMALS: Final = re.compile(r"(\d+)\.(\d*[1-9])?0+")


def normal(value: Json) -> str:
    """The normal form of a scalar."""
    text = value if isinstance(value, str) else text_of(value)
    if _TOKEN.fullmatch(text):  # as most are
        return text.lower()
    return _normal(beginning(text))


def beginning(text: str) -> str:
    """The first `LONGEST` characters of a text, composed (NFKC) and case-folded: what it is compared by."""
    return _composed(text[:LONGEST])[:LONGEST]


def is_whole(text: str) -> bool:
    """Whether `beginning` leaves nothing of a text out."""
    return len(text) <= LONGEST and (text.isascii() or len(_composed(text)) <= LONGEST)


def size(value: Json) -> int:
    """What a scalar takes of `MOST_BYTES`: one byte of UTF-8 becomes six characters at most."""
    if not isinstance(value, str):
        return 8
    return len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))


@lru_cache(maxsize=16)
def _composed(text: str) -> str:
    """NFKC without invisible characters, case-folded; of a text that is longer than `LONGEST` its
    beginning."""
    return composed(text, LONGEST).casefold()


def hashed(normal_form: str) -> int:
    """64 bits, signed, as databases keep them."""
    digest = blake2b(normal_form.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


def whole(value: Json) -> tuple[int, ...]:
    """A value as a whole, in each way that it may be found by. INVARIANT: a text of which only the beginning
    is looked at is found by none: it is another value than its beginning."""
    if isinstance(value, str):
        if len(value) <= LONGEST_KEPT:
            return _whole(value)
        if not is_whole(value):
            return ()
    return tuple(dict.fromkeys(hashed(each) for each in _ways(normal(value))))


@lru_cache(maxsize=16_384)
def _whole(text: str) -> tuple[int, ...]:
    """What is asked of again and again."""
    form = normal(text)
    if _PLAIN.fullmatch(form):
        return (hashed(form),)
    return tuple(dict.fromkeys(hashed(each) for each in _ways(form)))


def marked(value: Json) -> Iterator[int]:
    """The values within a text that say much: addresses, numbers, ids, quoted text; some come twice."""
    if not isinstance(value, str):
        return
    text = _plain(value)
    for pattern in _MARKED:
        for found in pattern.finditer(text):
            yield from _marked(found[0])
    for found in _PHONE.finditer(text):
        yield hashed(_BETWEEN_DIGITS.sub("", found[0]))
    for found in _QUOTED.finditer(text):
        yield from map(hashed, _ways(_normal(next(filter(None, found.groups()), ""))))


def words(value: Json, *, phrases: bool = False) -> Iterator[int]:
    """The single words of a text, and with `phrases` those of two to six words; some come twice."""
    if not isinstance(value, str):
        return
    found = _WORD.findall(_plain(value))
    yield from (hashed(word) for word in found if not _SHORT_NUMBER.fullmatch(word))
    if phrases:
        for length in range(2, LONGEST_PHRASE + 1):
            for at in range(len(found) - length + 1):
                yield hashed(" ".join(found[at : at + length]))


def _plain(text: str) -> str:
    return _BLANKS.sub(" ", beginning(text))


def _normal(text: str) -> str:
    return _BLANKS.sub(" ", text).strip(_AROUND)


def _marked(token: str) -> Iterator[int]:
    form = _normal(token)
    for each in _ways(form):
        if not _SHORT_NUMBER.fullmatch(each) or each != form:
            yield hashed(each)
    if "@" not in form and (scheme := _SCHEME.match(form)):
        host = re.split(r"[/?#]", form[scheme.end() :])[0]
        yield hashed(host)
        yield hashed(host.partition(":")[0])


def _ways(form: str) -> Iterator[str]:
    """The forms under which one value may be written: a URL without its scheme, an account number without
    blanks, an amount without its currency, a channel or a user without its sign, a phone number by its
    digits, a phrase by its words alone."""
    if not form:
        return
    yield form
    plain = _SCHEME.sub("", form, count=1).rstrip("/")
    if plain != form:
        yield plain
    if _ACCOUNT.fullmatch(form) and _SEPARATED.search(form):
        yield _SEPARATED.sub("", form)
    money = _MONEY.sub("", form).replace(",", "")
    if money and money[0].isdigit() and money.replace(".", "", 1).isdigit():
        yield from {money, _whole_number(money)} - {form}
    if form[0] in "#@" and len(form) > 1:
        yield form[1:]
    if ")" in form and _PHONE.fullmatch(f"({form}" if "(" not in form else form):
        yield _BETWEEN_DIGITS.sub("", form)
    if " " in form:
        phrase = " ".join(_WORD.findall(form))
        if phrase and phrase != form:
            yield phrase


def _whole_number(digits: str) -> str:
    """`50.00` and `50.0` are 50; `12.50` is `12.5`."""
    found = _DECIMALS.fullmatch(digits)
    return digits if found is None else f"{found[1]}.{found[2] or ''}".rstrip(".")


_ID: Final = re.compile(r"[\w:-]{1,64}", re.ASCII)
_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?"
    r"|\d\d?:\d\d(?::\d\d)?",
    re.ASCII,
)
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_PLACE: Final = re.compile(
    r"[A-Za-z]{2}-?\d{2}[\w-]{8,}|0x[0-9a-fA-F]{40}|bc1[0-9a-z]{20,}|[13][1-9A-HJ-NP-Za-km-z]{25,34}"
)
"""An account number with its country, or a wallet."""


def id_shaped(value: Json) -> bool:
    """Whether a scalar can be an id or a time, and is no place to send anything to that looks like one. What
    else is written in other letters or with blanks may be read as something else."""
    if not isinstance(value, str) or _TIME.fullmatch(value) or _UUID.fullmatch(value):
        return True
    return _ID.fullmatch(value) is not None and _PLACE.fullmatch(value) is None
