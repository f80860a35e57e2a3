"""Patterns of `matches`: RE2 syntax, unanchored search, bounded memory and bounded time.

Decides what a pattern may be (refusing, with what to write instead, everything that linear-time search
cannot do) and what a search answers. It knows nothing of fields or conditions.

RE2 never backtracks, so time is linear in the text, but the factor can grow to the number of instructions:
`a.{1000}b` over a long text of many `a` costs a thousand steps a character. Counted repetitions are what
brings such factors into patterns that people write. So a text is searched only while repetitions times
bytes stay within `WORK_LIMIT`; beyond it the relaxed pattern, its counts replaced by `+` or `*` (a superset,
and cheap), is asked first. When it does not match the answer is FALSE; when it does, nobody can tell in
bounded time, and the answer is a fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import re2

from engine.errors import ConditionError
from engine.fields.re2_syntax import PIECE
from engine.fields.required_literals import Clause, required, required_in_spaced, spaced
from engine.fields.scalars import shorten as shorten
from engine.fields.scalars import whole
from engine.model import Fault, Verdict

MAX_MEMORY: Final = 8 << 20
"""Bytes that one pattern may use for its program and its search automaton together."""

MAX_LENGTH: Final = 20_000
"""Characters of a pattern."""

WORK_LIMIT: Final = 6_000_000
"""Repeated instructions times bytes of text; up to 50 ms in the worst case."""

REMEMBERED: Final = 1 << 16
REMEMBERED_LONGEST: Final = 64
"""How many answers of all patterns are remembered, and of texts of up to how many characters; some 16 MB."""

SPACED_LONGEST: Final = 1 << 12
MOST_CLAUSES: Final = 2
MOST_LITERALS: Final = 8
SHORTEST_LITERAL: Final = 3
LONG_LITERAL: Final = 8
"""What is looked for in a text before the pattern is: so many clauses, of so many literals, of so many
characters."""

# What only the whole text can decide, or what cannot be told from it at a glance.
_OF_TEXT: Final = re.compile(r"\\[AzCQ]|\(\?[a-zA-Z]*-")

_TWICE = "write the repeated text out"
_ADVICE: Final = tuple(
    (re.compile(piece, re.DOTALL), text)
    for piece, text in (
        (r"\(\?<?[=!]", "lookaround `%s` is not supported; use a second condition, `not_matches` to exclude"),
        (r"\(\?>", "an atomic group `%s` is not supported; write `(?:`, a search never backtracks here"),
        (r"\(\?P=.*", f"the back-reference `%s` is not supported; {_TWICE}"),
        (r"\(\?\(.*", "the conditional group `%s` is not supported; write the cases apart with `|`"),
        (r"\(\?(?:R|&|\d).*", "the recursion `%s` is not supported; write the levels out"),
        (r"\(\?\|", "a branch reset `%s` is not supported; write `(?:`"),
        (r"\(\?#.*", "the comment `%s` is not supported; put it into the description of the policy"),
        (r"\(\?[a-zA-Z-]*x.*", "the flag `x` in `%s` is not supported; write the pattern without blanks"),
        (
            r"\(\?(?![imsU-]+[:)]|P?<\w+>|P$|:).*",
            "`%s` is not supported; of the flags there are `i`, `m`, `s` and `U`",
        ),
        (r"\\[1-9]\d*", f"the back-reference `%s` is not supported; {_TWICE}"),
        (r"\\[kg].*", f"the back-reference `%s` is not supported; {_TWICE}"),
        (r"\\Z", r"`%s` is not supported; write `\z` for the end of the text"),
        (r"\\G", r"`%s` is not supported; write `\A` for the start of the text"),
        (r"\\K", "`%s` is not supported; leave it out, only whether there is a match counts"),
        (
            r"\\u.*",
            r"`%s` is not supported; write the character itself, or `\x{..}` with its hexadecimal code",
        ),
        (r"\\h", r"`%s` is not supported; write `[\t ]`"),
        (r"\\R", r"`%s` is not supported; write `\r?\n`"),
        (r"\\X", "`%s` is not supported; write `.`"),
        (r"\\e", r"`%s` is not supported; write `\x1b`"),
        (
            r"\\c.?",
            r"the control character `%s` is not supported; write `\x` and its two-digit hexadecimal code",
        ),
    )
)

_REASONS: Final = {
    b"missing )": "a `(` is not closed; write `\\(` for the character itself",
    b"unexpected )": "a `)` closes nothing; write `\\)` for the character itself",
    b"missing ]": "a `[` is not closed; write `\\[` for the character itself",
    b"no argument for repetition operator": "`%s` repeats nothing; write `\\%s` for the character itself",
    b"bad repetition operator": "`%s` repeats a repetition; put the inner one into `(?:` and `)`",
    b"invalid repetition size": "`%s` is refused; write `{least,most}` up to 1000, nested counts multiplied",
    b"invalid character class range": "`%s` is no class of characters; check its name or order",
    b"invalid escape sequence": "`%s` has no meaning; write the character without the backslash",
    b"trailing \\": "it ends with a single backslash; write `\\\\` for the character itself",
    b"invalid named capture group": "`%s` is no group name; write `(?P<name>` with letters, digits and `_`",
    b"invalid perl operator": "`%s` is not supported; write `(?:` for a plain group",
    b"pattern too large": "it is too large to be searched with bounded memory; split it into several",
}


Span = tuple[int, int]
"""Where something starts in a text, and where it ends."""


class Pattern:
    """A compiled pattern. `text` is as written; `required` is a pattern that matches whatever `search` does
    not answer FALSE for: the relaxed one where counts are large, else `text` itself. Texts of up to
    `exact_bytes` are searched exactly."""

    __slots__ = ("_across", "_clauses", "_find", "_relaxed", "exact_bytes", "required", "text")

    def __init__(self, text: str) -> None:
        compiled = _compile(text)
        self.text = text
        self.required = text
        self._find = _finder(compiled)
        self._relaxed = self._find
        self.exact_bytes = 1 << 62
        self._across: Callable[[bytes], Span | None] | None = None
        self._clauses: tuple[Clause, ...] | None = None
        relaxed = _relax(text)
        if relaxed != text:
            cheap = _compile(relaxed)
            weight = _weight(text, relaxed, compiled.programsize - cheap.programsize)
            if weight > 5:  # lighter ones stay within the limit on every text that the service accepts
                self.required = relaxed
                self._relaxed = _finder(cheap)
                self.exact_bytes = WORK_LIMIT // weight

    def search(self, subject: str) -> Verdict:
        """Whether the pattern matches anywhere in `subject`. Never raises.

        Of short texts, which are names of tools, programs and options again and again, it is remembered."""
        if len(subject) > REMEMBERED_LONGEST:
            return self.search_bytes(whole(subject).encode())
        return _remembered(self, subject)

    def find(self, subject: str) -> tuple[int, int] | None:
        """Where the first match is, in characters; None when there is none or it would take too long."""
        encoded = whole(subject).encode()
        span = self.span(encoded)
        return None if span is None or isinstance(span, Fault) else in_characters(encoded, span)

    def search_bytes(self, subject: bytes) -> Verdict:
        """`search` on text that is UTF-8 already."""
        span = self.span(subject)
        return span if isinstance(span, Fault) else span is not None

    def span(self, subject: bytes) -> Span | Fault | None:
        """Where the first match is in UTF-8; None for a verdict of FALSE."""
        if len(subject) <= self.exact_bytes:
            return self._find(subject)
        if self._relaxed(subject) is None:
            return None
        return Fault(
            f"a text of {len(subject):,} bytes is too long for the repetition counts of the pattern"
            f" `{shorten(self.text)}`, which is searched up to {self.exact_bytes:,} bytes"
        )

    def may_match(self, text: str) -> bool:
        """False for a text that lacks what every match has, which a look at a few literals tells; for texts
        so short that it is worth its while."""
        if len(text) > SPACED_LONGEST:
            return True
        clauses = self._clauses
        if clauses is None:
            clauses = self._clauses = _telling(self.required)
        for clause in clauses:
            seen = spaced(text)
            for literal in clause:
                if literal in seen:
                    break
            else:
                return False
        return True

    def search_joined(self, joined: bytes) -> int | None:
        """Where the pattern may match in one of many texts, joined by line feeds: None if in none of them,
        -1 if that cannot be told without looking at each.

        Anchors are read as those of lines, and a line feed is no part of a word, so whatever matches a text
        by itself matches here too; what stretches over several texts is found besides.
        """
        if _OF_TEXT.search(self.text):
            return -1
        if self._across is None:
            self._across = _finder(_compile(f"(?m){self.required}"))
        found = self._across(joined)
        return None if found is None else found[0]


@lru_cache(maxsize=REMEMBERED)
def _remembered(pattern: Pattern, subject: str) -> Verdict:
    return pattern.search_bytes(whole(subject).encode())


def _telling(pattern: str) -> tuple[Clause, ...]:
    """The clauses that are worth a look. Of a pattern with a long literal there are none: whoever asks has
    most likely found that already."""
    if any(_shortest(clause) >= LONG_LITERAL for clause in required(pattern)):
        return ()
    clauses = [each for each in required_in_spaced(pattern) if len(each) <= MOST_LITERALS]
    clauses.sort(key=_shortest, reverse=True)
    return tuple(each for each in clauses[:MOST_CLAUSES] if _shortest(each) >= SHORTEST_LITERAL)


def _shortest(clause: Clause) -> int:
    return min(map(len, clause))


def in_characters(text: bytes, span: Span) -> tuple[int, int]:
    """A span of UTF-8, told in characters."""
    start, end = span
    if text.isascii():
        return span
    return len(text[:start].decode(errors="replace")), len(text[:end].decode(errors="replace"))


@lru_cache(maxsize=65536)
def compile_pattern(text: str) -> Pattern:
    """The pattern, ready to search. Raises ConditionError(part="value") with the offset of what is wrong."""
    if len(text) > MAX_LENGTH:
        raise ConditionError(
            f"the pattern has {len(text):,} characters, and at most {MAX_LENGTH:,} are allowed;"
            " split it into several policies",
            part="value",
        )
    return Pattern(text)


_re2_compile: Final[Any] = getattr(re2, "_Regexp", re2.compile)
"""`re2.compile` without its cache of 128, which a large set never finds anything in."""

_ANYWHERE: Final[Any] = re2._Anchor.UNANCHORED


def _finder(compiled: Any) -> Callable[[bytes], Span | None]:
    """Where a compiled pattern first matches in UTF-8: `compiled.search` without the objects it makes, which
    take as long as the search of a short text."""
    match, anywhere = compiled._regexp.Match, _ANYWHERE

    def find(text: bytes) -> Span | None:
        span: Span = match(anywhere, text, 0, len(text))[0]
        return None if span[0] < 0 else span

    return find


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = MAX_MEMORY
    return options


_OPTIONS: Final = _options()
_BYTE_OPTIONS: Final = _options()
_BYTE_OPTIONS.encoding = re2.Options.Encoding.LATIN1


def _compile(text: str) -> Any:
    try:
        return _re2_compile(text, _OPTIONS)
    except UnicodeEncodeError as error:
        raise ConditionError(
            "the pattern has half of a character (a lone surrogate); write the whole character",
            part="value",
            offset=error.start,
        ) from None
    except re2.error as error:
        raise _explain(text, error.args[0] if error.args else b"") from None


_ASCII_ALONE: Final = re.compile(
    r"(?>(?:[^\\.(\[]|\\(?:[bBAzdsw]|[^A-Za-z0-9])|\[(?![\^:])|\((?!\?)|\(\?:)*)", re.DOTALL | re.ASCII
)
"""Patterns that take nothing but ASCII, at a glance: as bytes they are the same program as in characters."""


def _weight(text: str, relaxed: str, in_characters: int) -> int:
    """How many instructions the counts of a pattern add: what one byte of text may cost."""
    if text.isascii() and _ASCII_ALONE.fullmatch(text):
        return in_characters
    try:
        # Read as bytes, a class of many scripts is one instruction, as it is one live state of the search.
        in_bytes = _re2_compile(text.encode(), _BYTE_OPTIONS).programsize
        in_bytes -= _re2_compile(relaxed.encode(), _BYTE_OPTIONS).programsize
    except re2.error:
        return int(in_characters)
    # But a class without a character below U+0100 vanishes from the bytes; its share is estimated.
    return int(max(in_bytes, in_characters // 100))


def _relax(text: str) -> str:
    """The pattern with each counted repetition replaced by `*` or `+`: it matches whatever `text` does."""
    if "{" not in text:
        return text
    return PIECE.sub(
        lambda piece: piece[0] if piece["count"] is None else "*" if int(piece["least"]) == 0 else "+", text
    )


def _explain(text: str, error: bytes) -> ConditionError:
    """What to write instead of what RE2 refused."""
    before = ""
    for piece in PIECE.finditer(text):
        word = piece[0]
        if piece["group"] or piece["escape"]:
            for wrong, advice in _ADVICE:
                if wrong.fullmatch(word):
                    return _refusal(advice.replace("%s", shorten(word)), piece.start())
        if word == "+" and before in ("*", "+", "?", "}"):
            possessive = text[piece.start() - 1 : piece.end()]
            advice = f"the possessive `{possessive}` is not supported; leave the last `+` out"
            return _refusal(advice, piece.start())
        before = "}" if piece["count"] else word if piece["other"] else ""
    kind, _, detail = error.partition(b": ")
    fragment = detail.decode(errors="replace")
    for reason, advice in _REASONS.items():
        if kind.startswith(reason):
            at = _unbalanced(text) if "%s" not in advice else text.find(fragment) if fragment else -1
            return _refusal(advice.replace("%s", shorten(fragment)), at if at >= 0 else None)
    return _refusal(error.decode(errors="replace"), None)


def _unbalanced(text: str) -> int:
    """Where a bracket, parenthesis or backslash has no partner; -1 when all have."""
    opened: list[int] = []
    for piece in PIECE.finditer(text):
        word = piece[0]
        if (piece["class"] and not re.search(r"(?<!\\)(?:\\\\)*\]\Z", word)) or word == "\\":
            return piece.start()
        if word == "(" or (piece["group"] and not word.endswith(")")):
            opened.append(piece.start())
        elif word == ")":
            if not opened:
                return piece.start()
            opened.pop()
    return opened[-1] if opened else -1


def _refusal(advice: str, offset: int | None) -> ConditionError:
    where = "" if offset is None else f" at character {offset + 1}"
    return ConditionError(f"the pattern cannot be used{where}: {advice}", part="value", offset=offset)
