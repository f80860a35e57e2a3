"""What the records of one organisation say of everything but calls and events.

Each thing by its name, with what must be found of it in the tables now. It is heard from the records, or
taken over from what earlier ones said that are gone (`retention/`). It must not know the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from api.audit import alerted, granted, in_force
from api.database.audit_chain import FIRST_CHAIN

Name = tuple[str, str]
"""What kind of thing, and its id, in the words of a problem."""
APPROVAL: Final = "approval"
REQUEST: Final = "request for approval"
APPROVERS: Final = "approvers so far of approval"
TOLD: Final = "what reviewers are told of approval"
CREDENTIAL: Final = "credential"
RULE: Final = "rule for the user tokens of organisation"
DEFINITION: Final = "admitted definition of tool"
UNNAMED: Final = "tools that no record names of server"
"""Of a server of which more tools were admitted at once than records of before name."""
CONTENT: Final = "content of change"
REQUESTED: Final = "request of change"
WORDS: Final = "words of halt"
NOTED_SINCE: Final = frozenset((TOLD, CREDENTIAL, RULE, CONTENT, REQUESTED, WORDS, in_force.SHOWN))
"""Of these, records of before may say nothing."""
CARRIED_SINCE: Final = frozenset((*in_force.CARRIED_SINCE, DEFINITION))
"""And of these certificates of before, see `carried.WORDS`."""

OF_EVENTS: Final = frozenset(("decision", "event", "decision.repeated", "decision.doubtful"))
TELLING: Final = OF_EVENTS | {
    *("approval.progressed", "approval.resolved", *in_force.DOCUMENTS),
    *("user.created", "user.updated", "organisation.created", "organisation.updated", "tools.admitted"),
    *("key.created", "key.rotated", "key.revoked", "agent.halted", "agent.resumed"),
    *("webhook.created", "webhook.updated", "webhook.disabled", "webhook.deleted"),
    *("change.requested", "change.resolved", "change.applied", "change.failed"),
    *("channel.changed", "alert.raised", "alert.acknowledged"),
    *("grant.created", "grant.revoked"),
}
"""Types of records that say how something in the tables is."""
_BEGINNING: Final = frozenset(
    (
        *("change.requested", "user.created", "key.created", "agent.halted", "webhook.created"),
        *("grant.created", "organisation.created"),
    )
)
"""Those that come before all others about the same thing, whatever the clocks of two nodes said."""


def tool_of(server: str, tool: str = "") -> str:
    """The id of a tool, or how those of a server begin. Names have blanks, but no server has a `>`."""
    return f"{server} > {tool}"


class Testimony:
    """What was heard so far.

    `owner` says whose an API key is, for records of versions that did not note it. `ends` are the ends of the
    chains when the tables were read: what later records are about has moved since.
    """

    def __init__(self, owner: Callable[[str], Any], ends: Mapping[int, int] | None = None) -> None:
        self._owner = owner
        self._ends = ends
        self.state: dict[Name, tuple[Any, ...]] = {}
        """What they say."""
        self.moved: set[Name] = set()
        """What records behind the noted ends are about."""
        self.changed: set[Name] = set()
        """What was heard of here, and not taken over."""
        self._later: list[tuple[bool, int, str, int, int, dict[str, Any]]] = []
        """Records whose order counts across chains, and by what: clocks say it only of those that have no
        number of their own (`transaction.IN_ORDER`)."""

    def told(self, record: dict[str, Any]) -> None:
        """The next record of a chain, of a type that is `TELLING`."""
        type = record["type"]
        if type == "decision":
            self._decision(record)
        elif type not in OF_EVENTS:
            order = (record.get("details") or {}).get("order", 0)
            if type in in_force.DOCUMENTS:
                order = record.get("policyRevision", 0)
            place = order, record["at"], record.get("chain", FIRST_CHAIN), record["sequence"]
            self._later.append((type not in _BEGINNING, *place, record))

    def finish(self) -> None:
        """All were told."""
        for *_, record in sorted(self._later, key=lambda heard: heard[:5]):
            self._hear(record)
        self._later.clear()

    def _decision(self, record: dict[str, Any]) -> None:
        details = record["details"]
        approval_id = details.get("approvalId")
        if approval_id is not None:
            said: tuple[Any, ...] = ("pending", None, None, None, "awaiting_approval")
            self._say((APPROVAL, approval_id), said, record)
            said = (*(record[name] for name in ("runId", "agentId", "toolCallId", "toolName", "reason")),)
            said += (details.get("approvalTerms"), details["payloadDigest"])
            self._say((REQUEST, approval_id), said, record)
            if "shown" in details:
                self._say((TOLD, approval_id), (details["shown"],), record)
        for used in details.get("grants", ()):
            uses = granted.USES, used["grantId"]
            self._say(uses, (self.state.get(uses, (0,))[0] + 1,), record)

    def _hear(self, record: dict[str, Any]) -> None:
        """A record about anything but a call or an event; earlier ones were heard before."""
        details = record.get("details") or {}
        said: tuple[Any, ...]
        match record["type"]:
            case "approval.resolved":
                status, resolved_by = record["decision"], details.get("resolvedBy")
                reason, call = record.get("reason"), details["toolCallStatus"]
                said = (status, record.get("actor"), resolved_by, reason, call)
                self._say((APPROVAL, details["approvalId"]), said, record)
                self._approved(details, record)
            case "approval.progressed":
                self._approved(details, record)
            case "policy.changed" | "tools.changed" | "detector.changed" | "settings.changed":
                for name, now in list(in_force.of_record(record, self.state)):
                    self._say(name, now or (), record)
                    if now is None:
                        del self.state[name]
            case "tools.admitted":
                if details["count"] > len(details["definitions"]):
                    self._unnamed(details["server"], record)
                for tool, definition in details["definitions"].items():
                    name = (DEFINITION, tool_of(details["server"], tool))
                    self._say(name, (definition, record["actor"]), record)
            case "change.requested" | "change.resolved" | "change.applied" | "change.failed":
                names = ("operation", "subject", "requestedBy", "state", "status")
                said = tuple(details[name] for name in names)
                self._say(("change", details["changeId"]), said, record)
                if (digests := details.get("digests")) is not None:
                    content = digests["shown"], digests["requestedById"]
                    self._say((CONTENT, details["changeId"]), content, record)
                    self._say((REQUESTED, details["changeId"]), (digests["request"],), record)
            case "agent.halted" | "agent.resumed":
                target = record.get("agentId") or record.get("runId") or ""
                said = (details["scope"], target, record["type"] == "agent.resumed")
                self._say(("halt", details["haltId"]), said, record)
                words = (WORDS, details["haltId"])
                if record["type"] == "agent.halted":
                    self._say(words, (record.get("reason"), record["actor"], None), record)
                elif (halted := self.state.get(words)) is not None:
                    self._say(words, (*halted[:2], record["actor"]), record)
            case "grant.created" | "grant.revoked":
                self._say((granted.GRANT, details["grantId"]), granted.of_record(record), record)
            case "alert.raised" | "alert.acknowledged":
                name = (alerted.ALERT, details["alertId"])
                self._say(name, alerted.of_record(record, self.state.get(name)), record)
            case _:
                self._hear_of_access(record)
                self._hear_of_receivers(record)

    def _hear_of_access(self, record: dict[str, Any]) -> None:
        """Organisations, users and API keys."""
        details = record.get("details") or {}
        said: tuple[Any, ...]
        match record["type"]:
            case "organisation.created":
                self._say((RULE, record["organisationId"]), (None,), record)
            case "organisation.updated":
                self._credential(RULE, record["organisationId"], details, record)
            case "key.rotated":
                self._credential(CREDENTIAL, details["keyId"], details, record)
            case "user.created":
                self._credential(CREDENTIAL, details["userId"], details, record)
                said = (details["email"], details["role"], True)
                self._say(("user", details["userId"]), said, record)
            case "user.updated":
                if "password" in details:
                    self._credential(CREDENTIAL, details["userId"], details, record)
                email, role, enabled = self.state.get(("user", details["userId"]), ("", "", True))
                said = (email, details.get("role", role), details.get("enabled", enabled))
                self._say(("user", details["userId"]), said, record)
            case "key.created":
                self._credential(CREDENTIAL, details["keyId"], details, record)
                name = ("API key", details["keyId"])
                user_id = details.get("userId") if "userId" in details else self._owner(name[1])
                said = (record.get("agentId"), tuple(details["scopes"]), details.get("expiresAt"), user_id)
                self._say(name, (*said, False), record)
            case "key.revoked":
                made = self.state.get(("API key", details["keyId"]), (None, (), None, None, False))
                self._say(("API key", details["keyId"]), (*made[:-1], True), record)

    def _hear_of_receivers(self, record: dict[str, Any]) -> None:
        """Webhooks and channels."""
        details = record.get("details") or {}
        said: tuple[Any, ...]
        match record["type"]:
            case "webhook.created":
                said = (details["receiver"], tuple(details["events"]), details.get("enabled", True))
                self._say(("webhook", details["webhookId"]), said, record)
            case "webhook.updated":
                place, events, enabled = self.state.get(("webhook", details["webhookId"]), ("", (), True))
                said = (
                    details.get("receiver", place),
                    tuple(details.get("events", events)),
                    details.get("enabled", enabled),
                )
                self._say(("webhook", details["webhookId"]), said, record)
            case "webhook.disabled":
                place, events, _ = self.state.get(("webhook", details["webhookId"]), ("", (), True))
                self._say(("webhook", details["webhookId"]), (place, events, False), record)
            case "webhook.deleted":
                self._say(("webhook", details["webhookId"]), (), record)
                del self.state["webhook", details["webhookId"]]
            case "channel.changed" if details["change"] == "deleted":
                self._say(("channel", details["channelId"]), (), record)
                del self.state["channel", details["channelId"]]
            case "channel.changed":
                said = (details["name"], tuple(details["events"]), True, details["digest"])
                self._say(("channel", details["channelId"]), said, record)

    def _credential(
        self, kind: str, identifier: str, details: Mapping[str, Any], record: dict[str, Any]
    ) -> None:
        """What somebody is known by from now on; after one of before, which does not say it, nobody knows."""
        self._say((kind, identifier), (details.get("digest"),), record)
        if "digest" not in details:
            del self.state[kind, identifier]

    def _unnamed(self, server: str, record: dict[str, Any]) -> None:
        """From now on only those of its tools are known that records name."""
        self._say((UNNAMED, server), (True,), record)
        for name in [name for name in self.state if name[0] == DEFINITION]:
            if name[1].startswith(tool_of(server)):
                self._say(name, (), record)
                del self.state[name]

    def _approved(self, details: dict[str, Any], record: dict[str, Any]) -> None:
        """They only become more, whatever the clocks of two nodes said."""
        name = (APPROVERS, details["approvalId"])
        approvers = details.get("approvedBy", ())
        if len(approvers) > len(self.state.get(name, ())):
            self._say(name, tuple(approvers), record)

    def _say(self, name: Name, said: tuple[Any, ...], record: dict[str, Any]) -> None:
        self.state[name] = said
        self.changed.add(name)
        chain = record.get("chain", FIRST_CHAIN)
        if self._ends is not None and record["sequence"] > self._ends.get(chain, 0):
            self.moved.add(name)
