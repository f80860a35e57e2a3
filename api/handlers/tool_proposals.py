"""Proposed tools: agents tell what the tools of a server are, an admin admits or dismisses it.

A proposal decides nothing. It answers, tool by tool, whether its definition is the one that was admitted, so
that whoever stands before the server can hold what has changed. Admitting writes a tool set, as an admin's
edit, and then the definitions; should the second fail, it is done again by admitting again.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec

from api.caller import Caller
from api.context import Context
from api.handlers.tools import shape_of
from api.http import bodies
from api.http.exchange import Reply, TimeAndId, Values, decode_cursor, page
from api.http.problems import invalid, need, not_found
from api.http.route import ADMIN, AGENT, Query, Route, page_query
from api.store.tools import proposals
from api.store.tools.admitted import SHOWN, Proposed
from engine.derived.tools import Tools, of_tool
from engine.documents.tool_proposals import ServerTool
from engine.repository.admission import admit_tools

HINTS = ("title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
"""Of MCP's annotations, those that are kept."""


async def propose_tools(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/tool-proposals"""
    told = await context.intake.done(caller.key_id, len(values.body), partial(_told, values.body))
    proposal_id = await context.reads.read(caller, proposals.find_same, caller, told)
    if proposal_id is None:
        # What is committed for a key counts as its time, too.
        timed = context.intake.processor_time.timed
        proposal_id = await context.write(
            lambda transaction: timed(caller.key_id, partial(proposals.propose, transaction, caller, told))
        )
    return await _reply(caller, proposal_id, context)


async def list_tool_proposals(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/tool-proposals"""
    items, total, position = await context.reads.read(
        caller,
        proposals.list_proposals,
        caller,
        values.query.get("server"),
        values.query.get("status"),
        values.query["limit"],
        decode_cursor(values, TimeAndId),
    )
    return page(items, total, position, values)


async def get_tool_proposal(caller: Caller, values: Values, context: Context) -> Reply:
    """GET /v1/tool-proposals/:id"""
    return await _reply(caller, values.path["id"], context)


async def admit_tool_proposal(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/tool-proposals/:id/admit"""
    proposal_id, body = values.path["id"], values.body
    found = await context.store.read(proposals.read_proposal, caller, proposal_id, body["digest"])
    server, tools = need(found, "proposal", proposal_id)
    chosen = body.get("declare", {})
    names = body.get("tools", [tool["name"] for tool in tools])
    _refuse_unknown("/tools", names, tools)
    _refuse_unknown("/declare", chosen, tools)
    told = [ServerTool(tool["name"], _destroys(tool)) for tool in tools if tool["name"] in names]
    stored = await context.write_policies(
        lambda policies: admit_tools(
            policies, caller.organisation_id, server, told, chosen, author=caller.actor
        )
    )
    admitted = await context.write(
        lambda transaction: proposals.admit_proposal(transaction, caller, proposal_id, body["digest"], names)
    )
    if not admitted:
        raise not_found("proposal", proposal_id)
    await context.newest()
    now_declared = context.live.ruleset(caller.organisation_id).tools
    shown = await context.reads.read(caller, _shown, caller, proposal_id, now_declared)
    return Reply(shown if stored is None else shown | {"toolSet": shape_of(stored)})


async def dismiss_tool_proposal(caller: Caller, values: Values, context: Context) -> Reply:
    """POST /v1/tool-proposals/:id/dismiss"""
    proposal_id = values.path["id"]
    if not await context.write(
        lambda transaction: proposals.dismiss_proposal(transaction, caller, proposal_id)
    ):
        raise not_found("proposal", proposal_id)
    return await _reply(caller, proposal_id, context)


async def _reply(caller: Caller, proposal_id: str, context: Context) -> Reply:
    await context.newest()
    tools = context.live.ruleset(caller.organisation_id).tools

    def written() -> bytes:
        return msgspec.json.encode(_shown(caller, proposal_id, tools))

    return Reply(await context.reads.read(caller, written))


def _shown(caller: Caller, proposal_id: str, tools: Tools) -> dict[str, Any]:
    """The proposal, each tool with what is declared of it now."""
    found = need(proposals.find_proposal(caller, proposal_id), "proposal", proposal_id)
    for tool in found["tools"]:
        said = {"toolName": tool["name"], "toolAnnotations": tool.get("annotations")}
        tool |= {"kind": of_tool(tools, said, "kind"), "effect": of_tool(tools, said, "effect")}
    return found


def _told(raw: bytes) -> proposals.ProposedTools:
    """What a checked body says; raises 400 or 422."""
    body = bodies.decode_unique(raw)
    bodies.validate("tool-proposal-create", body)
    tools = [_kept(tool) for tool in body["tools"]]
    _refuse_twice(tool["name"] for tool in tools)
    return proposals.ProposedTools.of(body["server"], tools)


def _kept(tool: dict[str, Any]) -> Proposed:
    kept: Proposed = {name: tool[name] for name in ("name", "definition", *SHOWN) if name in tool}
    if "annotations" in kept:
        kept["annotations"] = {
            name: kept["annotations"][name] for name in HINTS if name in kept["annotations"]
        }
    return kept


def _destroys(tool: Proposed) -> bool:
    return tool.get("annotations", {}).get("destructiveHint") is True


def _refuse_twice(names: Iterable[str]) -> None:
    seen: set[str] = set()
    for number, name in enumerate(names):
        if name in seen:
            raise invalid(f"/tools/{number}/name", f"`{name[:60]}` stands here twice; a server has it once")
        seen.add(name)


def _refuse_unknown(pointer: str, names: Iterable[str], tools: list[Proposed]) -> None:
    known = {tool["name"] for tool in tools}
    for number, name in enumerate(names):
        if name not in known:
            place = number if pointer == "/tools" else bodies.escape(name[:60])
            raise invalid(f"{pointer}/{place}", f"the proposal has no tool `{name[:60]}`")


ROUTES = (
    Route(
        "POST",
        "/v1/tool-proposals",
        AGENT,
        propose_tools,
        "Tell what the tools of a server are",
        "tools",
        body="tool-proposal-create",
        body_as_sent=True,
        reply="tool-proposal",
        errors=("conflict",),
        description="Decides nothing: an admin admits or dismisses it. A key has one proposal for each"
        " server; telling the same again changes nothing. `state` says of each tool whether its definition"
        " is the one that was admitted.",
    ),
    Route(
        "GET",
        "/v1/tool-proposals",
        ADMIN | AGENT,
        list_tool_proposals,
        "List proposed tools, newest first",
        "tools",
        reply="tool-proposal-summary",
        reply_is_array=True,
        query=(
            Query("server", {"type": "string", "minLength": 1, "maxLength": 150}, "Only of this server."),
            Query("status", {"type": "string", "enum": list(proposals.STATUSES)}, "Only those."),
            *page_query(100, 1_000),
        ),
        description="An API key sees those that it made.",
    ),
    Route(
        "GET",
        "/v1/tool-proposals/:id",
        ADMIN | AGENT,
        get_tool_proposal,
        "Read proposed tools, and how they differ from what was admitted",
        "tools",
        reply="tool-proposal",
    ),
    Route(
        "POST",
        "/v1/tool-proposals/:id/admit",
        ADMIN,
        admit_tool_proposal,
        "Admit proposed tools",
        "tools",
        body="tool-proposal-admit",
        reply="tool-proposal-admitted",
        errors=("precondition_failed", "policy_file_invalid", "conflict"),
        description="Declares, in one revision, those that nobody has declared: with the effect `delete`"
        " where the server says that they destroy, else `write`; or as `declare` says. What is declared"
        " already stays. `digest` is that of the proposal as it was read: another one is a 412.",
        second_admin=True,
    ),
    Route(
        "POST",
        "/v1/tool-proposals/:id/dismiss",
        ADMIN,
        dismiss_tool_proposal,
        "Dismiss proposed tools, until they change",
        "tools",
        reply="tool-proposal",
    ),
)
