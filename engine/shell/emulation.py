"""What a command would print, where that is certain from the command alone.

`echo cm0= | base64 -d | sh` runs what `echo` and `base64` print; so the few commands that people hide text
with are carried out here on constants: echo, printf, cat, base64, base32, xxd, rev, tr, gunzip and their
like. None means unknown. Every output is bounded; what would take too long raises TooMuch. Knows nothing of
scripts or the call.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from engine.shell.expansion import LONGEST_VALUE, TooMuch, unescape
from engine.shell.options import given

LONGEST_OUTPUT: Final = 4 * LONGEST_VALUE
_LONGEST_SET: Final = 1_024
"""Characters of a set of `tr`, as it is written."""

_SILENT_NAMES: Final = (
    "true : cd pushd popd export declare local readonly typeset set unset shopt test [ [[ alias trap "
    "mkdir touch chmod sleep wait read eval source . umask return exit break continue shift let false"
)
SILENT: Final = frozenset(_SILENT_NAMES.split())
"""Commands that print nothing of their own."""

_DECODE: Final = re.compile(r"-[^\WdD]*+[dD]\w*+|--decode")
_PLAIN: Final = re.compile(r"[\w /-]*")
_DIRECTIVE: Final = re.compile(r"%(?:%|[-+ 0#]*+\d*+(?>(?:\.\d++)?)([bsdciuxXoq]))")


DECODERS: Final = frozenset({"base64", "base32", "basenc", "xxd", "openssl", "rev", "uudecode"})
"""Commands that make readable text of text that was not."""

COMMANDLET: Final = re.compile(r"[A-Za-z]+-[A-Za-z]+")
"""How commands of PowerShell are called."""


def output_of(name: str, words: Sequence[str], stdin: str | None, files: Mapping[str, str]) -> str | None:
    """What the command `name` with arguments `words` prints, given its input (None: unknown)."""
    if name in SILENT:
        return ""
    rule = _RULES.get(name)
    if rule is None and not words and " " in name and COMMANDLET.fullmatch(name.partition(" ")[0]):
        return f"{name}\n"  # a text, which PowerShell prints
    try:
        found = rule(words, stdin, files) if rule is not None else None
    except (ValueError, zlib.error, OverflowError, IndexError):
        return None
    return found if found is None or len(found) <= LONGEST_OUTPUT else None


def _unescape(text: str) -> str:
    return unescape(text, null="\0")


Emulation = Callable[[Sequence[str], "str | None", Mapping[str, str]], "str | None"]


def _echo(words: Sequence[str], stdin: str | None, files: Mapping[str, str]) -> str | None:
    start = 0
    while start < len(words) and re.fullmatch(r"-[neE]+", words[start]):
        start += 1
    text = " ".join(words[start:])
    # Without -e some shells (dash) read escapes too; what has none reads the same.
    escaped = any("e" in word for word in words[:start])
    end = "" if any("n" in word for word in words[:start]) else "\n"
    return (_unescape(text) if escaped else text) + end


def _print(words: Sequence[str], stdin: str | None, files: Mapping[str, str]) -> str | None:
    """Of zsh and ksh, which read escapes unless they are told not to."""
    start = next((at for at, word in enumerate(words) if not re.fullmatch(r"-[A-Za-z]*-?", word)), len(words))
    letters = "".join(words[:start])
    text = ("\n" if "l" in letters else " ").join(words[start:]) + ("" if "n" in letters else "\n")
    return text if "r" in letters or "R" in letters else _unescape(text)


def _printf(words: Sequence[str], stdin: str | None, files: Mapping[str, str]) -> str | None:
    if words[:1] == ["-v"] or not words:
        return ""
    words = words[1:] if words[0] == "--" else words
    form, arguments = words[0], list(words[1:])
    pieces: list[str] = []
    size = 0
    while True:
        before = len(arguments)

        def one(found: re.Match[str]) -> str:
            kind = found[1]
            if kind is None:
                return "%"
            value = arguments.pop(0) if arguments else ""
            if kind == "b":
                return _unescape(value)
            if kind in "oxX" and re.fullmatch(r"\d{1,9}", value):
                return format(int(value), kind)
            return value[:1] if kind == "c" else value

        # Directives and escapes are read piece by piece, so that neither is found in an argument.
        at = 0
        for found in _DIRECTIVE.finditer(form):
            pieces += (_unescape(form[at : found.start()]), one(found))
            at = found.end()
        pieces.append(_unescape(form[at:]))
        size += len(form) + 1
        if not arguments or len(arguments) == before or size > LONGEST_OUTPUT:
            return "".join(pieces)


def _cat(words: Sequence[str], stdin: str | None, files: Mapping[str, str]) -> str | None:
    names = [word for word in words if word == "-" or not word.startswith("-")]
    if not names:
        return stdin
    parts: list[str] = []
    size = 0
    for name in names:
        part = stdin if name in ("-", "/dev/stdin") else files.get(name.removeprefix("./"))
        if part is None or (size := size + len(part)) > LONGEST_OUTPUT:
            return None
        parts.append(part)
    return "".join(parts)


def _lines(change: Callable[[list[str]], list[str]]) -> Emulation:
    def rule(words: Sequence[str], stdin: str | None, files: Mapping[str, str]) -> str | None:
        text = _cat(words, stdin, files)
        return None if text is None else "".join(f"{line}\n" for line in change(text.splitlines()))

    return rule


def _base(decode: Callable[[bytes], bytes]) -> Emulation:
    def rule(words: Sequence[str], stdin: str | None, files: Mapping[str, str]) -> str | None:
        names = [word for word in words if not word.startswith("-") and not word.isdigit()]
        text = _cat(names, stdin, files)
        if text is None:
            return None
        if not any(_DECODE.fullmatch(word) for word in words):
            return base64.b64encode(text.encode(errors="replace")).decode() + "\n"
        return _text(decode(re.sub(r"[^A-Za-z0-9+/_=-]", "", text).encode()))

    return rule


def decode64(data: bytes) -> bytes:
    """Base64, with or without its padding."""
    data = data.replace(b"-", b"+").replace(b"_", b"/").rstrip(b"=")
    return base64.b64decode(data[: len(data) - (len(data) % 4 == 1)] + b"=" * (-len(data) % 4))


def _decode32(data: bytes) -> bytes:
    data = data.rstrip(b"=")
    return base64.b32decode(data + b"=" * (-len(data) % 8), casefold=True)


def _text(data: bytes) -> str:
    """Bytes as text; what is not UTF-8 keeps its bytes, for a decompressor that may follow."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _xxd(words: Sequence[str], stdin: str | None, files: Mapping[str, str]) -> str | None:
    if not any(re.fullmatch(r"-[^\Wr]*+r\w*+|-revert", word) for word in words):
        return None
    text = _cat([word for word in words if not word.startswith("-")], stdin, files)
    if text is None:
        return None
    if not any("p" in word for word in words if word.startswith("-")):
        text = "".join(re.sub(r"^\w+:|  .*$", "", line) for line in text.splitlines())
    digits = re.sub(r"[^0-9A-Fa-f]", "", text)
    return _text(binascii.unhexlify(digits[: len(digits) // 2 * 2]))


def _openssl(words: Sequence[str], stdin: str | None, files: Mapping[str, str]) -> str | None:
    if not any(word in ("base64", "-base64", "-a") for word in words) or "-d" not in words:
        return None
    return None if stdin is None else _text(decode64(re.sub(r"\s", "", stdin).encode()))


def _inflate(words: Sequence[str], stdin: str | None, files: Mapping[str, str]) -> str | None:
    if stdin is None:
        return None
    data = stdin.encode("latin-1")
    return _text(zlib.decompressobj(47).decompress(data, LONGEST_OUTPUT))


def _gzip(words: Sequence[str], stdin: str | None, files: Mapping[str, str]) -> str | None:
    return _inflate(words, stdin, files) if any(_DECODE.fullmatch(word) for word in words) else None


def _tr(words: Sequence[str], stdin: str | None, files: Mapping[str, str]) -> str | None:
    flags = "".join(word for word in words if re.fullmatch(r"-\w+", word))
    sets = [_characters(word) for word in words if not re.fullmatch(r"-\w+", word)]
    if stdin is None or not sets or "c" in flags.lower():
        return None
    if "d" in flags:
        return stdin.translate(dict.fromkeys(map(ord, sets[0])))
    if len(sets) < 2 or not sets[1]:
        return stdin
    targets = sets[1].ljust(len(sets[0]), sets[1][-1])
    return stdin.translate({ord(old): new for old, new in zip(sets[0], targets, strict=False)})


_CLASSES: Final = {"[:upper:]": "A-Z", "[:lower:]": "a-z", "[:digit:]": "0-9", "[:space:]": " \t\n\r\v\f"}


def _characters(text: str) -> str:
    for name, members in _CLASSES.items():
        text = text.replace(name, members)
    text = _unescape(text)
    if len(text) > _LONGEST_SET:
        raise TooMuch

    def run(found: re.Match[str]) -> str:
        first, last = ord(found[1]), ord(found[2])
        return "".join(map(chr, range(first, last + 1))) if 0 <= last - first < 256 else found[0]

    return re.sub(r"(.)-(.)", run, text, flags=re.DOTALL)


def _sed(words: Sequence[str], stdin: str | None, files: Mapping[str, str]) -> str | None:
    """Substitutions of plain text; any other edit is unknown."""
    edits = [word for word in words if not word.startswith("-")]
    if len(edits) != 1 or stdin is None or edits[0][:1] != "s" or len(edits[0]) < 2:
        return None
    old, *rest = edits[0][2:].split(edits[0][1])
    if (
        len(rest) != 2
        or rest[1] not in ("", "g")
        or not old
        or not all(map(_PLAIN.fullmatch, (old, rest[0])))
    ):
        return None
    return stdin.replace(old, rest[0])


def _command(words: Sequence[str], stdin: str | None, files: Mapping[str, str]) -> str | None:
    """`command -v rm` prints where rm is."""
    return words[-1] + "\n" if words and re.fullmatch(r"-\w*[vV]", words[0]) else None


def _yes(words: Sequence[str], stdin: str | None, files: Mapping[str, str]) -> str | None:
    """One line of what never ends."""
    return " ".join(words or ["y"]) + "\n"


def _passed(name: str) -> Emulation:
    """What passes on what it reads: known files, else its input. Which lines of it is not asked."""

    def rule(words: Sequence[str], stdin: str | None, files: Mapping[str, str]) -> str | None:
        operands = [option.value for option in given(name, words) if not option.name]
        named = [word for word in operands if word.removeprefix("./") in files]
        return _cat(named or ["-"], stdin, files)

    return rule


def _ends(name: str) -> Emulation:
    """`head -c 8` and `tail -c 8`: so much of the text; of lines all."""
    passed = _passed(name)

    def rule(words: Sequence[str], stdin: str | None, files: Mapping[str, str]) -> str | None:
        text = passed(words, stdin, files)
        counts = [option.value for option in given(name, words) if option.name == "bytes"]
        if text is None or not counts or not re.fullmatch(r"[-+]?\d{1,9}", counts[-1]):
            return text
        count = int(counts[-1])
        if name == "head":
            return text[:count]
        return text[max(0, count - 1) :] if counts[-1][0] == "+" else text[max(0, len(text) - abs(count)) :]

    return rule


def _seq_words(words: Sequence[str], stdin: str | None, files: Mapping[str, str]) -> str | None:
    return (words[-1] if words else "") + "\n"


def _dirname(words: Sequence[str], stdin: str | None, files: Mapping[str, str]) -> str | None:
    path = words[-1] if words else ""
    if path.startswith("$") or path == "~":
        return "/home\n"  # of a home folder, the folder of homes
    head = path.rstrip("/").rpartition("/")[0]
    return (head or ("/" if path.startswith("/") else ".")) + "\n"


def _basename(words: Sequence[str], stdin: str | None, files: Mapping[str, str]) -> str | None:
    return (words[0].rstrip("/").rpartition("/")[2] if words else "") + "\n"


_RULES: Final[Mapping[str, Emulation]] = {
    "echo": _echo,
    "print": _print,
    "printf": _printf,
    "cat": _cat,
    "tac": _lines(lambda lines: lines[::-1]),
    "rev": _lines(lambda lines: [line[::-1] for line in lines]),
    "base64": _base(decode64),
    "base32": _base(_decode32),
    "basenc": _base(decode64),
    "xxd": _xxd,
    "openssl": _openssl,
    "gunzip": _inflate,
    "zcat": _inflate,
    "gzip": _gzip,
    "tr": _tr,
    "sed": _sed,
    "command": _command,
    "yes": _yes,
    "head": _ends("head"),
    "tail": _ends("tail"),
    **{name: _passed(name) for name in ("sort", "uniq", "pv", "fold", "grep")},
    **dict.fromkeys(("tee", "dd", "psub"), lambda words, stdin, files: stdin),
    "which": _seq_words,
    "realpath": _seq_words,
    "readlink": _seq_words,
    "dirname": _dirname,
    "basename": _basename,
}
