"""The sentences that a model reads when the hook itself has to speak: what waits, what nobody could decide,
and what is wrong with the hook are different things, and each says what helps.

What was refused is told in the service's own words (`agentMessage`).
"""

from __future__ import annotations

from typing import Final

ASK_AGAIN: Final = "call the same tool again with exactly the same arguments"
PROBED: Final = "Refused: this was a probe of `governance doctor`, which is always denied; the gate is live."
WAITED: Final = f"Not run yet: there is news of this call; {ASK_AGAIN} to go on."


def waiting(approval_id: str, agent_message: str) -> str:
    return f"Not run yet: approval `{approval_id}` is still open; {ASK_AGAIN} to go on. {agent_message}"


def undecided(why: str) -> str:
    return (
        f"Not run: the governance service could not decide ({why}). Nothing was refused; {ASK_AGAIN} in a"
        " while, and tell your user if it goes on."
    )


def not_taken(why: str) -> str:
    return (
        f"Not run: the governance service does not take the call ({why}). Asking again with the same"
        " arguments does not help; change the call, or tell your user."
    )


def unreachable(url: str, why: str) -> str:
    return (
        f"Not run: the governance service at {url} cannot be reached ({why}). Nothing was refused;"
        f" {ASK_AGAIN} in a while, and tell your user that the service is away."
    )


def key_refused(why: str) -> str:
    return (
        f"Not run: the governance service does not accept the API key of this hook ({why}). Asking again does"
        " not help; tell your user to run `governance doctor`."
    )


def unreadable(why: str) -> str:
    return (
        f"Not run: the governance hook does not understand what it was told ({why}). Asking again does not"
        " help; tell your user to run `governance doctor`."
    )


def broken(why: str) -> str:
    return (
        f"Not run: the governance hook failed ({why}). Asking again does not help; tell your user to run"
        " `governance doctor`."
    )
