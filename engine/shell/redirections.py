"""Reads redirections and here-documents. Knows nothing of what commands do with them."""

from __future__ import annotations

import re
from typing import Final

from engine.shell.commands import SimpleCommand
from engine.shell.expansion import QUOTED, TooMuch, plain
from engine.shell.variables.choices import Raw, every, together
from engine.shell.words import IN_DOCUMENT, WordReader

_BLANK: Final = re.compile(r"(?>(?:[ \t\r]++|\\\r?\n){0,2000})(?>(?:#[^\n]*+)?)")
_DELIMITER: Final = re.compile(r"[ \t]*((?:'[^'\n]*'|\"[^\"\n]*\"|\\.|[^ \t\n;&|<>()'\"\\])+)")
LONGEST_DELIMITER: Final = 256
"""Of a here-document: it becomes a pattern, which is kept, and takes many times as much."""


class RedirectionReader(WordReader):
    """Reads what follows a redirection in `text`."""

    def _is_substitution(self, found: re.Match[str]) -> bool:
        return found[2] in ("<", ">") and not found[1] and self.text.startswith("(", found.end())

    def _redirect(self, simple: SimpleCommand, found: re.Match[str]) -> None:
        self.at = found.end()
        operator = found[2] or found[3]
        if operator in ("<<", "<<-"):
            simple.document = self._document(operator == "<<-")
            self._describe(found[1], simple.document)
            return
        target = self._spaced_word()
        if operator == "<<<":
            simple.document = [*target, QUOTED + "\n"]
            self._describe(found[1], simple.document)
        simple.redirections.append(((found[1] or "") + operator.replace(">|", ">"), target))

    def _describe(self, descriptor: str, text: Raw | None) -> None:
        """Remember what a descriptor gives to read: `exec 3<<< x; sh <&3`."""
        if descriptor:  # `<&$fd` after `{fd}<`
            descriptor = f"${descriptor[1:-1]}" if descriptor[0] == "{" else descriptor
            texts = [None] if text is None else [plain(each) for each in every(text)]
            self.runner.substituted(f"/dev/fd/{descriptor}", together(texts), ())

    def _document(self, tabs: bool) -> Raw | None:
        """The here-document announced here, which begins on the next line."""
        found = _DELIMITER.match(self.text, self.at)
        if found is None:
            return None
        self.at = found.end()
        delimiter = re.sub(r"['\"\\]", "", found[1])
        if len(delimiter) > LONGEST_DELIMITER:
            raise TooMuch
        literal = delimiter != found[1]
        if self.line_end < self.at:
            end = self.text.find("\n", self.at)
            self.line_end = len(self.text) if end < 0 else end
        start = self.documents_to.get(self.line_end, self.line_end + 1)
        self.runner.step()
        last = re.compile("^" + ("\t*" if tabs else "") + re.escape(delimiter) + "$", re.MULTILINE)
        close = last.search(self.text, start)
        stop = close.start() if close else len(self.text)
        self.documents_to[self.line_end] = min(close.end() + 1, len(self.text)) if close else len(self.text)
        body = self.text[start:stop]
        if tabs:
            body = re.sub(r"(?m)^\t+", "", body)
        if literal or not re.search(r"[\\$`]", body):
            return [QUOTED + body]
        return type(self)(self.runner, body, self.depth)._quoted(IN_DOCUMENT, "")

    def _after_blanks(self) -> int:
        found = _BLANK.match(self.text, self.at)
        return found.end() if found else self.at

    def _spaced_word(self) -> Raw:
        self.at = self._after_blanks()
        return self._word()
