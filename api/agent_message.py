"""What the model that asked for a tool call is told of the decision: what was refused, why, and what helps.

Only a call that may not be made now needs words; a yes has none, so that most answers stay short. Everything
is told from what the call's row holds, so the same call is always told of in the same words.

INVARIANT: names and reasons may repeat what a payload holds, and are the words of others. They stand in
quotation marks that they cannot end, on one line, and no longer than is said here.
"""

from __future__ import annotations

from typing import Final

import msgspec

from engine.fields.visible import one_line

MOST_OF_A_REASON: Final = 400
MOST_OF_A_NAME: Final = 80


class _Matched(msgspec.Struct):
    """What is looked at of a matched policy, as the row of a call keeps it."""

    action: str
    unevaluated: bool = False
    freeAt: str | None = None  # noqa: N815


_decode = msgspec.json.Decoder(list[_Matched]).decode

_HELD = (
    "The call of {tool} must not be made yet: a person decides about it (approval {approval}). {why}"
    " Waiting helps; ask again later with exactly the same arguments to learn the outcome. Changing the call"
    " or looking for a way around it does not help."
)
_BLOCKED = (
    "The call of {tool} was refused by policy and must not be made. {why} Neither waiting nor repeating it"
    " helps. Go on without it or in another way that the policy does not forbid; if the task needs exactly"
    " this call, tell your user, who can ask an administrator."
)
_UNEVALUATED = (
    "The call of {tool} was refused, because a policy could not be evaluated for it and what cannot be"
    " checked is not let through. {why} Waiting does not help; arguments that are complete and of the"
    " documented types may. Otherwise tell your user, who can ask an administrator."
)
_LIMITED = (
    "The call of {tool} was refused for now, because too many like it were made. {why} Waiting helps: ask"
    " for it as a new call after {free}, and not before. Changing it only to get around the limit is not"
    " allowed."
)
_OTHER = (
    "The call of {tool} was refused and must not be made. {why} Neither waiting nor changing it helps; tell"
    " your user, who can ask an administrator."
)
_ENDED: Final = (
    (
        "halted by ",
        "The call of {tool} was refused, because a person has stopped this agent. {why} Do not try anything"
        " else: neither repeating nor changing the call helps. Tell your user; only a person can let it go"
        " on.",
    ),
    (
        "rejected by ",
        "A person decided that the call of {tool} must not be made. {why} Neither waiting nor repeating it"
        " helps. A call that answers their objection may be asked for anew; otherwise go on without it, or"
        " ask your user.",
    ),
    (
        "held for approval by ",
        "The call of {tool} needed the decision of a person, and was made without it while nobody could be"
        " asked. {why} It must not be made again. Tell your user what was done; waiting or changing it helps"
        " no more.",
    ),
    (
        "the approval expired ",
        "Nobody decided about the call of {tool} in time, so it must not be made. {why} Waiting longer does"
        " not help. It was not judged to be wrong: if it is still needed, tell your user that nobody"
        " answered, and ask for it as a new call.",
    ),
    (
        "the approval was cancelled",
        "The call of {tool} was withdrawn before anybody decided about it, because its run ended; it must"
        " not be made. {why} Waiting does not help; in a new run it may be asked for again.",
    ),
)
"""How the reason of a call begins that is blocked for something else than a policy, and what to say then."""

_APPROVED = (
    "A person approved the call of {tool}: make it now, once, with exactly the arguments that were asked for."
)


def refused_message(
    tool_name: str, status: str, reason: str, matched: str = "[]", approval_id: str | None = None
) -> str:
    """The message of a call with this status (`blocked` or `awaiting_approval`), reason and list of matched
    policies (JSON)."""
    template, free = _template(status, reason, matched)
    return template.format(
        tool=_quoted(tool_name, MOST_OF_A_NAME),
        why=f"The reason on record: {_quoted(reason, MOST_OF_A_REASON)}.",
        approval=approval_id,
        free=free,
    )


def resolved_reason(status: str, who: str, reason: str | None) -> str:
    """The reason of a call that a person has resolved (`approved`, `rejected`), with their own."""
    return f"{status} by {who}" + (f": {reason}" if reason else "")


def approved_message(tool_name: str) -> str:
    """What an agent reads that has waited for the approval of its call."""
    return _APPROVED.format(tool=_quoted(tool_name, MOST_OF_A_NAME))


def _template(status: str, reason: str, matched: str) -> tuple[str, str]:
    """The words, and when the call is free again where it is limited."""
    if status == "awaiting_approval":
        return _HELD, ""
    for opening, template in _ENDED:
        if reason.startswith(opening):
            return template, ""
    if not reason.startswith("blocked by "):
        return _OTHER, ""
    if not ("freeAt" in matched or "unevaluated" in matched):
        return _BLOCKED, ""  # most calls: nobody need read what else stands there
    deciding = [each for each in _decode(matched) if each.action == "block"]
    free = [each.freeAt for each in deciding if each.freeAt is not None]
    if deciding and len(free) == len(deciding):
        return _LIMITED, max(free)
    if deciding and all(each.unevaluated for each in deciding):
        return _UNEVALUATED, ""
    return _BLOCKED, ""


def _quoted(text: str, most: int) -> str:
    """A text of others as one: on one line, bounded, with no quotation mark and nothing invisible in it."""
    shown = one_line(text[: 2 * most].replace('"', "'"))
    if len(text) > 2 * most and text[2 * most :].strip():
        shown += " …"
    return f'"{shown if len(shown) <= most else shown[: most - 1] + "…"}"'
