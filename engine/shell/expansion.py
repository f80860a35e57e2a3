"""What a shell does with the text of one word: escapes, braces, fields, `${x...}` of a known value.

Also how a word is written in a normalised command (`quote`). A word on its way is one text with marks in it
(characters that the reader has taken out of its input first), so that what was quoted, came from a variable
or may still be split stays known until the end. Pure functions; knows nothing of commands or scripts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate
from itertools import pairwise
from typing import Final

OPEN, COMMA, CLOSE, BREAK, QUOTED, NAMED = "\x01", "\x02", "\x03", "\x04", "\x05", "\x06"
"""Marks: an unquoted `{`, `,`, `}`; the end of a field; a quoted part was here; end of an unknown `$name`."""

MARKS: Final = re.compile("[\x00-\x06]")
MOST_BRACED: Final = 64
LONGEST_VALUE: Final = 65_536
LONGEST_REPLACED: Final = 4_096
LONGEST_TRIMMED: Final = 256
MOST_SEPARATORS: Final = 64

_NEEDS_QUOTES: Final = re.compile(r"[\s|&;<>'\"]")
_BLANKS: Final = re.compile(r"[ \t\n]+")
_SEQUENCE: Final = re.compile(r"(-?\d{1,9}|[A-Za-z])\.\.(-?\d{1,9}|[A-Za-z])")
_GLUED: Final = re.compile(f"\\$(\\w+){NAMED}(?=\\w)")
_UNKNOWN: Final = re.compile(f"\\$(?:\\([^{NAMED}]*\\){NAMED}|[\\w!]+{NAMED}|\\{{\\w+\\}})")
_ESCAPE: Final = re.compile(
    r"\\(?:x\{?([0-9A-Fa-f]{1,2})\}?|u\{?([0-9A-Fa-f]{1,6})\}?|U([0-9A-Fa-f]{1,8})|(0?[0-7]{1,3})|c(.)|(.))",
    re.DOTALL,
)
_LETTERS: Final = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b"} | {
    "f": "\f",
    "v": "\v",
}
_SINGLE: Final = re.compile(r"\[([^\]\[!^-])\]")


class TooMuch(Exception):
    """A bound was reached: the text cannot be read to its end."""


def quote(word: str) -> str:
    """A word of a normalised command: as it is, or in single quotes when it holds a blank, a quote or what
    could be taken for syntax. A single quote within reads `"`, so that `'[^']*'` always is one word."""
    if word and not _NEEDS_QUOTES.search(word):
        return word
    return "'" + word.replace("'", '"') + "'"


def render(words: Sequence[str]) -> str:
    return " ".join(map(quote, words))


def unmark(text: str, null: str = "") -> str:
    """`text` without the characters that serve as marks, and with `null` for each that is none."""
    if MARKS.search(text):
        text = text.replace("\0", null)
        for mark in (OPEN, COMMA, CLOSE, BREAK, QUOTED, NAMED):
            text = text.replace(mark, "")
    return text


def effort(text: str) -> int:
    """Steps of going through a text, and of reading its escapes."""
    return len(text) // 1024 + text.count("\\") // 4


def unescape(text: str, null: str = "") -> str:
    """`\\x72`, `\\162`, `\\u0072`, `\\n` ... as `$'..'`, `echo -e`, `printf` read them; `\\0` is `null`."""
    if "\\" not in text:
        return text

    def one(found: re.Match[str]) -> str:
        code = found[1] or found[2] or found[3]
        number = int(code, 16) if code else int(found[4], 8) if found[4] else None
        if number is not None:
            return chr(number) if 6 < number < 0x110000 else "" if number else null
        if found[5]:
            return chr(max(ord(found[5][0]) & 31, 7))
        return _LETTERS.get(found[6], found[6] if found[6] in "\\'\"?" else found[0])

    return _ESCAPE.sub(one, text)


def split_value(value: str, separators: str | None = None) -> str:
    """A variable's value where it stands unquoted: it falls apart at blanks (or at `$IFS`). Raises TooMuch
    for separators that take long to be looked for."""
    if separators is not None:
        if len(separators) > MOST_SEPARATORS:
            raise TooMuch
        return re.sub(f"[{re.escape(separators)}]+", BREAK, value) if separators else value
    return _BLANKS.sub(BREAK, value)


def plain(raw: str) -> str:
    """One text, never split nor braced: the value of an assignment, a here-document, a target."""
    if not MARKS.search(raw):
        return raw
    raw = raw.replace(OPEN, "{").replace(COMMA, ",").replace(CLOSE, "}").replace(BREAK, " ")
    return _GLUED.sub(r"${\1}", raw.replace(QUOTED, "")).replace(NAMED, "")


def fields(raw: str) -> list[str]:
    """The words that one word of the source becomes."""
    if not MARKS.search(raw):
        return [raw] if raw else []
    found: list[str] = []
    for braced in braces(raw) if OPEN in raw else (raw,):
        found += (plain(field) for field in braced.split(BREAK) if field)
    return found


def written_to(raw: str) -> str:
    """Where a redirection goes: braces count where they make one word."""
    words = fields(raw) if OPEN in raw else []
    return words[0] if len(words) == 1 else plain(raw)


def without_unknown(raw: str) -> str:
    """The word as it is when all that is unknown of it is empty."""
    if f"}}{NAMED}" in raw:  # `${x#a}`
        *parts, rest = raw.split(NAMED)
        raw = "".join(_emptied(part) if part[-1:] == "}" else part + NAMED for part in parts) + rest
    return _UNKNOWN.sub("", raw) if "$" in raw else raw


def _emptied(part: str) -> str:
    """What stands before an expansion at the end."""
    begin = part.find("${")
    return part if begin < 0 else part[:begin].removesuffix(QUOTED)


def braces(raw: str) -> list[str]:
    """`a{b,c}d` as `abd`, `acd`; raises TooMuch where that would be many."""
    if raw.count(OPEN) > 32:
        raise TooMuch
    return _braces(raw)


def _braces(raw: str) -> list[str]:
    start = raw.find(OPEN)
    if start < 0:
        return [raw]
    depth, commas, end = 0, [start], -1
    for at in range(start, len(raw)):
        char = raw[at]
        if char == OPEN:
            depth += 1
        elif char == CLOSE:
            depth -= 1
            if depth == 0:
                end = at
                break
        elif char == COMMA and depth == 1:
            commas.append(at)
    if end < 0:
        return [raw[:start] + "{" + tail for tail in _braces(raw[start + 1 :])]
    commas.append(end)
    parts = [raw[one + 1 : two] for one, two in pairwise(commas)]
    if len(parts) > 1:
        middle = [each for part in parts for each in _braces(part)]
    else:
        middle = _sequence(parts[0]) or ["{" + each + "}" for each in _braces(parts[0])]
    tails = _braces(raw[end + 1 :])
    if len(middle) * len(tails) > MOST_BRACED or len(raw) * len(middle) * len(tails) > LONGEST_VALUE:
        raise TooMuch
    return [raw[:start] + each + tail for each in middle for tail in tails]


def _sequence(text: str) -> list[str]:
    found = _SEQUENCE.fullmatch(text)
    if found is None or found[1].isalpha() is not found[2].isalpha():
        return []
    letters = found[1].isalpha()
    first, last = (ord(found[1]), ord(found[2])) if letters else (int(found[1]), int(found[2]))
    if abs(last - first) >= MOST_BRACED:
        return []
    numbers = range(first, last + 1) if last >= first else range(first, last - 1, -1)
    return [chr(number) if letters else str(number) for number in numbers]


def resolve_classes(word: str) -> str:
    """`r[m]` as `rm`: a class of one character is that character."""
    return _SINGLE.sub(r"\1", word) if "[" in word else word


def transform_effort(value: str, operation: str, operand: str) -> int:
    """Steps that `transform` takes: what is trimmed is tried in each length, a star goes on to the end."""
    length, trims = len(value), operation[0] in "#%"
    if trims or (operation[0] == "/" and "*" in operand):
        return 1 + (length**2 >> 13 if length <= (LONGEST_TRIMMED if trims else LONGEST_REPLACED) else 0)
    return 1 + length // 1024


def transform(value: str, operation: str, operand: str) -> str | None:
    """`${x<operation><operand>}` of a known value; None when it is not one of those understood."""
    if operation == ":":
        numbers = re.fullmatch(r"\s*(-?\d{1,6})\s*(?::\s*(-?\d{1,6})\s*)?", operand)
        if numbers is None:
            return None
        rest = value[int(numbers[1]) :]
        return rest if numbers[2] is None else rest[: int(numbers[2])]
    if operation[0] in "^," and operand not in ("", "?", "*"):
        return None  # only some letters
    if operation in ("^^", ",,"):
        return value.upper() if operation == "^^" else value.lower()
    if operation in ("^", ","):
        head = value[:1].upper() if operation == "^" else value[:1].lower()
        return head + value[1:]
    if operation in ("/", "//"):
        old, _, new = operand.partition("/")
        if not old or len(value) > LONGEST_REPLACED:
            return None
        pattern = _glob(old)
        return None if pattern is None else pattern.sub(lambda _: new, value, 0 if operation == "//" else 1)
    if operation in ("#", "##", "%", "%%"):
        return _trim(value, operation, operand)
    return _as_told(value, operand) if operation == "@" else None


def _as_told(value: str, letter: str) -> str | None:
    """`${x@L}`."""
    if letter in ("L", "U"):
        return value.lower() if letter == "L" else value.upper()
    if letter == "u":
        return value[:1].upper() + value[1:]
    return unescape(value) if letter == "E" else value if letter == "P" else None


def _trim(value: str, operation: str, operand: str) -> str | None:
    """Without the shortest (`#`, `%`) or longest (`##`, `%%`) match of the pattern at one end."""
    pattern = _glob(operand)
    if pattern is None or len(value) > LONGEST_TRIMMED:
        return None
    lengths = range(len(value) + 1) if len(operation) == 1 else range(len(value), -1, -1)
    for length in lengths:
        part = value[:length] if operation[0] == "#" else value[len(value) - length :]
        if pattern.fullmatch(part):
            return value[length:] if operation[0] == "#" else value[: len(value) - length]
    return value


def _glob(pattern: str) -> re.Pattern[str] | None:
    """A glob of a few stars as an expression; more of them could make it slow."""
    if len(pattern) > 64 or pattern.count("*") > 2:
        return None
    if not any(char in pattern for char in "*?["):
        return re.compile(re.escape(pattern))
    body = translate(pattern).removesuffix("\\Z").removesuffix("\\z")
    return re.compile(body)
