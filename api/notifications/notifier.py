"""Sends the notices of a channel, as one message, the way its type asks for.

What a channel needs and lacks is an outcome like any other, in words for the record. It must not know tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec

from api.clock import Clock
from api.notifications.chats import SHAPES
from api.notifications.mail import Mailer
from api.notifications.texts import compose
from api.store.notifications.channels import Channel
from api.store.webhooks.deliveries import Claimed
from api.webhooks.address import problem_with
from api.webhooks.sender import PostResult, Sender

A_PAGE: Final = "the answer is a page for people; set the secret to the address of an incoming webhook"


def problem_of(channel: Channel, allowed: frozenset[str]) -> str | None:
    """Why nothing can be sent, in words, as far as can be said without trying; `allowed` as in `address`."""
    config = msgspec.json.decode(channel.config)
    if "secret" in config and channel.secret is None:
        return f"the secret `{config['secret']}` is not set"
    if channel.type == "email":
        return None
    found = problem_with(channel.secret or "", allowed)
    if found is None:
        return None
    # The address itself is a secret: what is wrong with it is said without it.
    return f"the secret `{config['secret']}` is not an address that may be called: write an https address"


class Notifier:
    """Over the sender of webhooks; `frontend` is where links lead."""

    def __init__(self, sender: Sender, frontend: str, clock: Clock, mailer: Mailer | None = None) -> None:
        self._sender, self._frontend, self._clock = sender, frontend, clock
        self._mailer = mailer or Mailer(sender.addresses, sender.tls)

    async def send(self, notices: Sequence[Claimed]) -> PostResult:
        """One attempt for notices of one channel, oldest first; never raises for what a receiver does."""
        channel = notices[0].channel
        assert channel is not None
        problem = problem_of(channel, self._sender.addresses.allowed)
        if problem is not None:
            return PostResult(error=problem)
        message = compose((each.payload for each in notices), self._frontend)
        if channel.type == "email":
            settings = msgspec.json.decode(channel.config)
            return await self._mailer.send(
                settings, channel.secret, message, notices[0].delivery_id, self._clock()
            )
        body = msgspec.json.encode(SHAPES[channel.type](message))
        answer = await self._sender.post(channel.secret or "", {}, body)
        return replace(answer, error=A_PAGE) if answer.acknowledged and _is_page(answer.body) else answer


def _is_page(body: str) -> bool:
    """Whether people would see it in a browser: no incoming webhook answers so, but a login does, and the
    address that a browser shows of a chat."""
    begin = body.lstrip("\ufeff \t\r\n")[: len("<!doctype html")].lower()
    return begin.startswith(("<!doctype html", "<html"))
