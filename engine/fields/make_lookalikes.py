"""Makes `lookalikes.txt` of Unicode's `confusables.txt` (UTS #39): `python -m
engine.fields.make_lookalikes FILE`.

Kept is what looks like ASCII and is no ASCII, and what NFKC does not resolve already. Unicode gives `l` as
the picture of `I`; a capital letter among them is an `I` here, so that words stay words in any case, and
two strokes `''` are a quotation mark.
"""

from __future__ import annotations

import sys
import unicodedata
from collections import defaultdict
from pathlib import Path
from typing import Final

TABLE: Final = Path(__file__).with_name("lookalikes.txt")


def table(source: str) -> str:
    """One line for each ASCII text: the text, a tab, the characters that look like it."""
    version = next(line for line in source.splitlines() if line.startswith("# Version"))
    found: defaultdict[str, str] = defaultdict(str)
    for line in source.splitlines():
        fields = line.lstrip("\ufeff").split("#")[0].split(";")
        if len(fields) < 3:
            continue
        character = chr(int(fields[0], 16))
        picture = "".join(chr(int(code, 16)) for code in fields[1].split())
        if picture == "l" and unicodedata.category(character) == "Lu":
            picture = "I"
        picture = picture.replace("''", '"')
        composed = unicodedata.normalize("NFKC", character)
        if not character.isascii() and picture.isascii() and picture.isprintable() and not composed.isascii():
            found[picture] += character
    head = f"# Made by make_lookalikes.py of Unicode's confusables.txt, {version[2:]} (© Unicode, Inc.;\n"
    head += (
        "# https://www.unicode.org/license.txt): an ASCII text, a tab, the characters that look like it.\n"
    )
    return head + "".join(f"{text}\t{''.join(sorted(found[text]))}\n" for text in sorted(found))


if __name__ == "__main__":
    TABLE.write_text(table(Path(sys.argv[1]).read_text(encoding="utf-8")), encoding="utf-8")
