"""Whom a call would send to: what `derived.recipients` and `derived.recipientDomains` show.

Decides which arguments name recipients, by the words of their keys (`to`, `cc`, `recipient_email`,
`toAddresses`, `attendees`, ...), and takes the addresses out of what stands there, however it is written.
In doubt an address is taken: of `alice@acme.com <mallory@evil.example>` both are. Who sends, or is answered
to, is no recipient.
"""

from __future__ import annotations

import encodings
import pkgutil
import re
from binascii import a2b_qp
from collections.abc import Iterable, Iterator, Mapping, Sequence
from encodings.aliases import aliases
from functools import cache, lru_cache
from itertools import islice
from typing import Final
from urllib.parse import unquote

import idna

from engine.derived.payload import MOST_FOUND, DistinctTexts, Leaf
from engine.derived.tools import UNDECLARED
from engine.fields.computed import UNREADABLE
from engine.fields.scalars import text_of
from engine.fields.visible import Composing, composed
from engine.fields.words import word_set, words_of
from engine.model import ToolDeclaration
from engine.shell.emulation import decode64

_CERTAIN: Final = word_set(
    "cc bcc recipient recipients attendee attendees invitee invitees guest guests participant "
    "participants addressee addressees mailto receiver receivers subscribers toaddresses tolist "
    "rcpt rcpts grantee grantees"
)
"""Words of a key, or of the key above it, that name recipients whatever the tool is."""
_TO: Final = word_set(
    "to with email emails address addresses mail mails destination destinations forward share invite invites "
    "member members notify copy copies"
)
"""Words that name recipients where the tool sends."""
_ADDRESSED: Final = word_set(
    "to channel channels channel id chat chat id conversation room phone number msisdn user username handle"
)
_NOT: Final = word_set(
    "from sender reply replyto organizer organiser author creator owner return bounce subject body "
    "content text html message title description summary valid until date time due since start end type "
    "format url path file count limit role status ip mac street postal billing headers"
)
_SENDING: Final = frozenset({None, "mail", "chat", "calendar", "agents", "crm", "tickets", "other"})

MOST_READ: Final = 2**17
"""Characters of the domains of one call that are read, though each came again and again ..."""
OF_A_RECIPIENT: Final = 16
"""... and so many more does each count for."""
LONGEST_LIST: Final = 1 << 20
LONGEST_DOMAIN: Final = 253
LONGEST_LABEL: Final = 63
MOST_BLANKS: Final = 16
"""Around a quoted name."""

_QUOTED: Final = re.compile(
    r'\\.|"((?>(?:[^"\\]|\\.){0,256}))"(?!@)(?=(\s{0,16}<\s{0,16}[^\s<>,;:"()@]{1,256}@[^\s<>,;:"()@]{1,253}\s{0,16}>)?)',
    re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_BLANK_AT: Final = re.compile(r"(?<=[^\s@,;])@\s+|(?<=[^\s,;])\s+@\s*(?=[^\s<>,;@]{1,253}\.)")
_ENCODED: Final = re.compile(r"=\?([^?\s]{1,40})\?([bBqQ])\?([^?]{0,1024})\?=")
_QUOTED_LOCAL: Final = re.compile(r'\\.|"((?>(?:[^"\\]|\\.){0,256}))"(?=\s{0,16}[@(])', re.DOTALL)
_UNSEEN: Final = re.compile(r"(?<![^\s<>,;:\"()])[^\x00-\x7f]{1,64}(?=@)")
_BRACKET: Final = re.compile(r"[\"()<>\\]")
_COMMENT: Final = re.compile(r"\([^()]*\)")
_BORDER: Final = re.compile(r"\\.|[()]", re.DOTALL)
"""Where a comment begins or ends."""
_ADDRESS: Final = re.compile(
    r"(?<![^\s<>,;:\"()\[\]@])[^\s<>,;:\"()\[\]@]++(?:@++(?:[^\s<>,;:\"()\[\]@]++|\[[^\s\[\]]{1,64}\]))+"
)
_PARTS: Final = re.compile(r"[,;\n\r]+")
_SOURCE: Final = word_set("raw mime rfc822 eml header headers")
"""Words of keys under which a mail stands as it is sent, or its head; perhaps in base64."""
_MAIL: Final = word_set("message mail email data payload")
"""Words of keys under which a mail may stand too, if the text begins as one does."""
_BEGINS_A_MAIL: Final = re.compile(
    r"\A\s*+(?:[\w-]{1,64}:.*\n)*?(?:subject|to|cc|bcc|from|date|mime-version)[ \t]*:", re.IGNORECASE
)
_FIELDS: Final = word_set("subject from sender reply replyto to cc bcc title name")
"""Words of keys whose text becomes one line of the head of a mail; a line break in it begins the next."""
_FORM: Final = re.compile(r"[\w.%+\[\]-]{1,64}=[^&\s]*(?:&[\w.%+\[\]-]{1,64}=[^&\s]*)*")
_SENT_TO: Final = re.compile(
    r"^(?:resent-)?(?:to|cc|bcc)[ \t]*:(.*(?:\n[ \t].*)*)", re.IGNORECASE | re.MULTILINE
)
_COPIED: Final = re.compile(r"(?:amp;)?(?:to|cc|bcc)", re.IGNORECASE)
_PARAMETER: Final = re.compile(r"[?&]")
_MAILTO: Final = re.compile(r"mailto:", re.IGNORECASE)


def recipients_of(leaves: Sequence[Leaf], tool: ToolDeclaration) -> DistinctTexts:
    """The recipients: addresses in lower case, with the domain as IDNA; of anything else its text."""
    found, composing, left = DistinctTexts(), Composing(), MOST_READ
    sends = tool.kind in _SENDING or tool.effect == "send"
    for leaf in _with_forms(leaves, found) if sends else leaves:
        if found.partial:
            break
        if (
            sends
            and isinstance(leaf.value, str)
            and _is_source(leaf.owner.split(), leaf.key.split(), leaf.value)
        ):
            found.partial |= len(leaf.value) > LONGEST_LIST
            left = _added(found, _in_head(leaf.value[:LONGEST_LIST]), left)
        sure = _names_recipient(leaf, sends)
        if sure is None:
            continue
        text = composing.of(_UNSEEN.sub(_seen, text_of(leaf.value)))
        found.partial |= composing.room < 0
        if isinstance(leaf.value, bool) or len(text) > LONGEST_LIST:
            found.partial |= not isinstance(leaf.value, bool)
            continue
        left = _added(found, _in(text, sure and sends and tool is not UNDECLARED), left)
    return found


def _added(found: DistinctTexts, recipients: Iterable[str], most: int) -> int:
    """Add what takes so much at most; how much more may follow."""
    for recipient in recipients:
        found.add(recipient)
        _, at, domain = recipient.rpartition("@")
        most -= len(domain) + OF_A_RECIPIENT if at else OF_A_RECIPIENT
        if most < 0:
            found.partial = True
            break
    return most


def beside(found: DistinctTexts, texts: Iterable[str]) -> list[str]:
    """The recipients that none of these texts names, such as the arguments that are known to name some."""
    others = found.texts()
    if not others:
        return others
    known: set[str] = set()
    for text in texts:
        known |= {text, *_in(composed(text), sure=True)}
        if all(each in known for each in others):
            return []
    return [each for each in others if each not in known]


def domains_of(recipients: DistinctTexts) -> DistinctTexts:
    found = DistinctTexts()
    found.partial = recipients.partial
    for recipient in recipients.texts():
        if "@" in recipient and not recipient.startswith("@"):
            found.add(recipient.rpartition("@")[2].strip("[]"))
    return found


def _names_recipient(leaf: Leaf, sends: bool) -> bool | None:
    """Whether what stands there is a recipient in any case (True), if it is an address (False), or never."""
    words, above = leaf.key.split(), leaf.owner.split()
    if words[:2] == ["new", "owner"] and "name" not in words:
        return False
    if not _NOT.isdisjoint(words) and "to" not in words[:1]:
        return None
    if (
        not _NOT.isdisjoint(above)
        and _CERTAIN.isdisjoint(words)
        and "to" not in words
        and above != ["message"]
    ):
        return None
    if "name" in words or ("id" in words[1:] and not sends):
        return None
    if not _CERTAIN.isdisjoint(words):
        return True
    if not _CERTAIN.isdisjoint(above) or "to" in above:
        return "email" in words or "address" in words or "to" in words
    if not sends:
        return None
    if words in (["to"], ["send", "to"], ["channel"], ["channel", "id"], ["chat", "id"], ["phone", "number"]):
        return True
    if not _TO.isdisjoint(words) or not _ADDRESSED.isdisjoint(words):
        return False
    return None


def _in(text: str, sure: bool) -> Iterator[str]:
    """The recipients in a text: addresses, and (`sure`) whatever else stands between commas."""
    text = _ENCODED.sub(_decoded, text)
    if _MAILTO.match(text.strip()):
        text = _linked(text.strip()[7:])
    if "@" not in text:
        if sure:
            yield from (part for each in _PARTS.split(text) if (part := each.strip()))
        return
    bare = _QUOTED.sub(_unquoted, _QUOTED_LOCAL.sub(_local, text))
    if "@" not in bare:
        bare = text.replace('"', " ")
    bare = _BLANK_AT.sub("@", _uncommented(bare))
    end = 0
    for found in _ADDRESS.finditer(bare):
        if sure and bare[found.start() - 1 : found.start()] != "<":
            yield from _names(bare[end : found.start()], first=not end)
        end = found.end()
        local, *domains = found[0].split("@")
        for domain in filter(None, domains):
            yield f"{local.strip(chr(39)).lower()}@{domain_of(domain)}"
    if sure and end:
        yield from _names(bare[end:] + ",")


def _linked(link: str) -> str:
    """Whom `a@b.example?subject=x&cc=c@d.example` names."""
    to, *parameters = _PARAMETER.split(link)
    parts = (each.partition("=") for each in parameters)
    copied = [
        value if at else name for name, at, value in parts if not at or _COPIED.fullmatch(unquote(name))
    ]
    return unquote(",".join([to, *copied]))


def _uncommented(text: str) -> str:
    """A text without its comments, which may lie within one another."""
    kept: list[str] = []
    at = begin = depth = 0
    for border in _BORDER.finditer(text):
        if border[0] == "(":
            begin = begin if depth else border.start()
            depth += 1
        elif border[0] == ")" and depth:
            depth -= 1
            if not depth:
                kept.append(text[at:begin])
                at = border.end()
    return "".join(kept) + _COMMENT.sub("", text[at:])


def _names(text: str, first: bool = False) -> Iterator[str]:
    """What stands alone between commas beside the addresses, such as the name of a group."""
    for part in _PARTS.split(text)[not first : -1]:
        if word := part.strip(" <>:\t"):
            yield word


def _seen(local: re.Match[str]) -> str:
    """What stands before the sign of an address, with something that is seen where nothing would be."""
    return local[0] if composed(local[0]).strip("@") else f"_{local[0]}"


def _local(quoted: re.Match[str]) -> str:
    """A quoted text before the sign of an address, or a comment, as one word; behind an address that stands
    in it, which is where some readers send to."""
    if quoted[1] is None:
        return quoted[0]
    inside = f"{_BRACKET.sub(' ', quoted[1])}, " if "@" in quoted[1] else ""
    return inside + _token(quoted[1])


def _unquoted(quoted: re.Match[str]) -> str:
    """A quoted text is a name where it stands alone before an address in angles; an address that stands in
    quotes counts else."""
    if quoted[1] is None:
        return quoted[0]
    before = quoted.string[max(0, quoted.start() - MOST_BLANKS) : quoted.start()].rstrip(" \t")[-1:]
    is_name = bool(quoted[2]) and before in ("", *",;\n\r")
    return " " if is_name or "@" not in quoted[1] else f" {_ESCAPE.sub(lambda found: found[1], quoted[1])} "


@cache
def _charsets() -> Mapping[str, str]:
    """Those that Python can decode. It is asked for no other: it would look for a file, and remember the name
    for good, whether there is one or not."""
    modules = {each.name: each.name for each in pkgutil.iter_modules(encodings.__path__)}
    return modules | {name.replace(".", "_"): charset for name, charset in aliases.items()}


def _decoded(word: re.Match[str]) -> str:
    """An encoded word of a head, `=?utf-8?q?m=40b.example?=`, as the text that it stands for."""
    charset = _charsets().get(encodings.normalize_encoding(word[1]).lower().replace(".", "_"))
    if charset is None:
        return word[0]
    try:
        text = word[3].encode()
        octets = decode64(text) if word[2] in "bB" else a2b_qp(text, header=True)
        return composed(octets.decode(charset, errors="replace"))
    except (ValueError, LookupError):
        return word[0]


def _with_forms(leaves: Iterable[Leaf], found: DistinctTexts) -> Iterator[Leaf]:
    """The leaves; of a text that is a form, `to=a%40b.example&subject=x`, its fields too."""
    for leaf in leaves:
        yield leaf
        if isinstance(leaf.value, str) and _FORM.fullmatch(leaf.value):
            fields = dict.fromkeys(leaf.value.split("&"))
            found.partial |= len(fields) > MOST_FOUND
            for field in islice(fields, MOST_FOUND):
                name, _, value = field.replace("+", " ").partition("=")
                above, _, key = unquote(name).replace("]", "").rpartition("[")
                yield Leaf(words_of(above) or leaf.key, words_of(key), unquote(value))


def _is_source(above: Sequence[str], words: Sequence[str], text: str) -> bool:
    """Whether a text is a mail as it is sent, its head, or a field of it with more lines than one."""
    if not _SOURCE.isdisjoint(words) or "raw" in above:
        return True
    if not _FIELDS.isdisjoint(words) and ("\n" in text or "\r" in text):
        return True
    return not _MAIL.isdisjoint(words) and _BEGINS_A_MAIL.match(text) is not None


def _in_head(text: str) -> Iterator[str]:
    """The recipients that the head of a mail names."""
    if ":" not in text[:1024]:
        try:
            text = decode64("".join(text.split()).encode()).decode(errors="replace")
        except ValueError:
            return
    head, _, _ = text.replace("\r\n", "\n").replace("\r", "\n").lstrip().partition("\n\n")
    for field in _SENT_TO.finditer(head):
        yield from _in(composed(field[1].replace("\n", " ")), sure=False)


def _token(quoted: str) -> str:
    """A quoted local part as one word."""
    return re.sub(r"[\s<>,;:\"()\[\]@\\]", "_", quoted) or "_"


def domain_of(text: str) -> str:
    """A domain as it is compared: lower case, NFKC, IDNA, no dot at the end.
    What is too long for a domain is `UNREADABLE`."""
    return _domain(text) if len(text) <= LONGEST_DOMAIN else UNREADABLE


@lru_cache(maxsize=4096)
def _domain(text: str) -> str:
    domain = composed(text).strip().strip(".'").lower()
    if domain.isascii() or len(domain) > LONGEST_DOMAIN:
        return domain
    try:
        mapped = idna.uts46_remap(domain, std3_rules=False, transitional=False).strip(".")
        # A label in IDNA is longer than it was by the four of `xn--` at least.
        lengths = [len(label) + (0 if label.isascii() else 4) for label in mapped.split(".")]
        if max(lengths) > LONGEST_LABEL or sum(lengths) + len(lengths) - 1 > LONGEST_DOMAIN:
            return domain
        return idna.encode(mapped).decode()
    except (idna.IDNAError, UnicodeError, IndexError):
        return domain
