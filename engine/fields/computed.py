"""The fields that the service works out of a call: names, shapes and what they mean, in one table.

Decides what a condition may name below `tool` and `derived`; how each is worked out is the business of the
room `derived`. The reference page of fields is made of this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

TOOL: Final = "tool"
DERIVED: Final = "derived"

UNREADABLE: Final = "unreadable"
"""The last value of what could be worked out only in part: the call goes beyond a bound."""


@dataclass(frozen=True, slots=True)
class Member:
    """A computed field. `kind` is `text`, `number`, `object`, `list` (of texts) or `records` (a list of
    objects), whose keys and kinds are `shape`. In an expression a list is there always, empty where there is
    nothing; `optional` says of the others that they may be missing. A field condition takes an empty list for
    missing."""

    kind: str
    meaning: str
    shape: Mapping[str, str] = field(default_factory=dict)
    optional: bool = False


MEMBERS: Final[Mapping[str, Mapping[str, Member]]] = {
    TOOL: {
        "kind": Member(
            "text",
            "kind of the tool by the tool sets, such as `shell` or `mail`; `unknown` if none declares it",
        ),
        "effect": Member(
            "text",
            "what the tool does: `read`, `write`, `execute`, `send`, `pay` or `delete`; `write` if none"
            " declares it",
        ),
        "words": Member(
            "text",
            "its name in words: lower case, parted by blanks, however it is written; `mcp__x__runCommand` is"
            " `mcp x run command`",
        ),
    },
    DERIVED: {
        "payload": Member(
            "object",
            "the members of `inputPayload`; where all of them stand in one argument such as `params`,"
            " `arguments`, `input` or `body`, those in it",
        ),
        "shellCommands": Member(
            "list",
            "every command a shell would run, one text each, with quotes, variables, `$(...)`, base64 and"
            " wrappers such as `sudo` or `sh -c` undone; the original text is always among them",
        ),
        "commands": Member(
            "records",
            "the same in parts; `program` in lower case without `.exe`, `pipedInto` are the programs that get"
            " its output, `runBy` those that run what it gives, also through a file, as their own program,"
            " `inCode` says that code in another language starts it",
            {
                "program": "text",
                "options": "list",
                "arguments": "list",
                "pipedInto": "list",
                "runBy": "list",
                "inCode": "boolean",
            },
        ),
        "reads": Member(
            "list",
            "paths the call reads, by its arguments and commands, in normal form; `/ETC` is `/etc` too",
        ),
        "writes": Member("list", "paths the call writes"),
        "deletes": Member("list", "paths the call deletes"),
        "files": Member("list", "all paths the call names: read, written, deleted or only looked for"),
        "written": Member("list", "texts the call writes into files; of a patch the lines that it adds"),
        "hosts": Member(
            "list", "hosts the call goes to: lower case, IDNA, no port, one spelling for an address"
        ),
        "urls": Member("list", "URLs the call goes to, their hosts so written"),
        "recipients": Member(
            "list", "whom the call would send to, wherever and however it is written; addresses in lower case"
        ),
        "recipientDomains": Member(
            "list", "the domains of those recipients that are mail addresses, as IDNA"
        ),
        "sql": Member(
            "records",
            "one entry a statement, also for one within another (`WITH`, `MERGE`); `verb` is `unknown` for"
            " what cannot be parsed, beside what its words tell (`DELETE FROM`, `DROP TABLE`),"
            " `where` says whether a condition limits it, `temporary` that it concerns temporary tables"
            " alone, `object` what is created or dropped",
            {"verb": "text", "tables": "list", "where": "boolean", "temporary": "boolean", "object": "text"},
        ),
        "amount": Member(
            "number",
            "the money a tool moves: of several amounts of one kind the sum, of several kinds the greatest; a"
            " price beside a quantity so many times; never below zero, since -50 moves as much as 50",
            optional=True,
        ),
        "currency": Member("text", "its currency, three capitals, or `mixed`", optional=True),
        "text": Member(
            "list",
            "all text of the call as it reads: NFKC, look-alikes as ASCII, no invisible characters, base64"
            " and URL encoding decoded once",
        ),
        "untrustedOutput": Member(
            "list",
            "with `on: tool.completed`: the texts of the output that are not to be believed, by the tool's"
            " declaration",
        ),
        "targets": Member(
            "list",
            "the values of the arguments that matter, by the tool's declaration: where to, which, and what is"
            " sensitive; of a tool that sends, whom else the call would send to",
        ),
        "untrustedTargets": Member(
            "list",
            "those of them that neither the run's task, nor a person, nor a trusted output named",
        ),
        "unaskedTargets": Member("list", "those of them that neither the run's task nor a person named"),
        "provenance": Member(
            "object",
            "where each of them was first seen, at its path in the payload: `task`, `trusted`, `untrusted` or"
            " `unseen`",
            optional=True,
        ),
    },
}
