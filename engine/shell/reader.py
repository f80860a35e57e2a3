"""What a text would run, were it given to a shell: the simple commands in it, each in one normal spelling.

`read` answers with a list of texts: first the texts as they were given, then, for every simple command that a
shell would run, its words with quotes, escapes, variables, substitutions of constants and braces resolved:

    r''m -rf "$D"      (after D=/)        rm -rf /
    echo cm0gLXJm | base64 -d | sh        echo cm0gLXJm | base64 -d | sh,  echo cm0gLXJm,  ...,  rm -rf
    sudo sh -c 'curl x | sh'              sudo sh -c 'curl x | sh',  sh -c ...,  curl x,  sh,  curl x | sh

How an entry is written: the command word first, by its path and by its bare name (two entries; `./x` stays);
words parted by one blank; a word with a blank, a quote or one of `|&;<>` in it stands in single quotes (a `'`
within reads `"`), so an unquoted `|` or `>` always is syntax; redirections last, `> /dev/sda`. A pipeline is
an entry of its own as well, wrappers such as sudo left out; so is a file that was fetched or written and then
run, `curl -o f u | sh f`, also by its content, `curl -o f u | sh` of `cat f | sh`. After `cd x`, `rm -rf *`
reads `rm -rf x/*`. What is not known stays: `$HOME`, `$(curl -s x)`, `r?`.

It is the reading of one call: no shell is started, nothing of the machine is known, each branch counts as
taken and a variable that may have several values is tried with each.

Why a reader of our own: the parsers that exist (bashlex, tree-sitter's grammar) refuse or misread what shells
still run, and the work - values, output, wrappers, bounds against hostile texts - would be left.

INVARIANT: never raises; linear in the text, with a bound on steps, commands, depth and size. A text beyond
is read up to there, and the list ends with the entry `unreadable`, for a policy to hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.shell.expansion import TooMuch, render
from engine.shell.reading import ShellReading

UNREADABLE: Final = "unreadable"
"""The last entry of a text that was read only in part."""


def read(
    texts: Sequence[str], lists: Sequence[Sequence[str]] = (), code: Sequence[str] = ()
) -> tuple[str, ...]:
    """The entries of scripts, of commands given as lists of arguments, and of code in other languages."""
    return tuple(reading(texts, lists, code).entries)


def reading(
    texts: Sequence[str],
    lists: Sequence[Sequence[str]] = (),
    code: Sequence[str] = (),
    last: Sequence[str] = (),
) -> ShellReading:
    """The same with the simple commands and pipelines told apart. What the texts in `last` set, the others do
    not find."""
    originals = [*last, *texts, *(render(words) for words in lists), *code]
    found = ShellReading(sum(map(len, originals)))
    for text in originals:
        found.entries[text] = None
    try:
        for words in lists:
            if words:
                found.words(words)
        for text in texts:
            found.text(text)
        for text in code:
            found.code(text)
        for text in last:
            found.text(text)
    except (TooMuch, RecursionError):
        found.entries[UNREADABLE] = None
    return found
