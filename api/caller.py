"""Who asks, as the service itself verified it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

Role = str
ROLES = ("admin", "reviewer", "viewer")
"""The roles of people, strongest first."""


@dataclass(frozen=True)
class Caller:
    """Who asks, as the service itself verified it.

    `kind` is `user` (bearer token), `key` (API key) or `nobody`. For a key, `agent_id` is the agent that it
    is bound to (None: any), `user_id` the user it is bound to.
    """

    kind: str = "nobody"
    organisation_id: str = ""
    role: Role = ""
    user_id: str | None = None
    email: str = ""
    key_id: str = ""
    agent_id: str | None = None
    scopes: tuple[str, ...] = ()
    credential: str = field(default="", repr=False)
    """The digest of the API key, or which generation of a user's tokens it is of: so that what was rotated or
    ended is told from what is new."""

    @property
    def holder(self) -> str:
        """Whose credential it is: the id of the key or of the user; empty for nobody."""
        return self.key_id or self.user_id or ""

    @cached_property
    def actor(self) -> str:
        """How the record names them: the e-mail of a user, `key:<id>` of a key."""
        return self.email if self.kind == "user" else f"key:{self.key_id}"


NOBODY = Caller()
