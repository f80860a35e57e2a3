// The agents room: who they are, as the record knows them. Below `/agents/<agentId>` one agent: what it called, what became of
// it, by which keys, models and programs, what halts it, what was noticed, and its runs.

import { arrange, el, when } from "../dom.js";
import { covered } from "../halts.js";
import { listing } from "../listing.js";
import { address, page, place } from "../page.js";
import { said } from "../text.js";
import { alertRow } from "./alerts.js";
import { runRow } from "./runs.js";

const ORDERS = [["newest", "Newest first"], ["id", "By name"]];

export function open(root, context) {
  const stop = new AbortController();
  if (context.place) openOne(root, context, stop.signal);
  else openList(root, context, stop.signal);
  return () => stop.abort();
}

function openList(root, context, signal) {
  const agents = listing(context, {
    path: "/v1/agents", topics: ["decision", "halt", "alert"], signal, label: "Agents", usual: { order: "newest" }, pause: 3000,
    filters: [{ name: "search", label: "Search" }, { name: "order", label: "Order", options: ORDERS }],
    empty: "No agent has reported anything yet.",
    row: (agent) => ({ key: agent.agentId, mark: JSON.stringify(agent), node: () => agentRow(context, agent) }),
  });
  page(root, { title: "Agents", moveFocus: context.moveFocus },
    el("p.hint", {}, "Who called tools, as the record knows them, a second or two behind it."), agents.node);
}

/** A row that leads to an agent. */
export function agentRow(context, agent) {
  const { blocked, awaiting_approval: held } = agent.decisions;
  return place(context, address("agents", agent.agentId),
    el("strong.subject", {}, said(agent.agentId)),
    el("span.time", {}, "first seen ", when(agent.firstSeenAt)),
    el("span.about", {}, `${agent.calls.toLocaleString("en")} ${agent.calls === 1 ? "call" : "calls"}, ${blocked.toLocaleString("en")} blocked, ${held.toLocaleString("en")} held · last `, when(agent.lastSeenAt)),
    el("span.marks", {},
      agent.halted && el("span.note.block", {}, "halted"),
      agent.openAlerts > 0 && el("span.note.warn", {}, `${agent.openAlerts} ${agent.openAlerts === 1 ? "alert" : "alerts"}`),
      agent.enforcementGaps > 0 && el("span.note.block", {}, `${agent.enforcementGaps} ran against the decision`)));
}

function openOne(root, context, signal) {
  const { service, user, place: agentId } = context;
  const content = el("div.one");
  const runs = listing(context, {
    path: `/v1/runs?agentId=${encodeURIComponent(agentId)}`, topics: ["decision"], signal, label: "Runs", empty: "It has no runs that are kept.",
    row: (run) => ({ key: run.runId, mark: JSON.stringify(run), node: () => runRow(context, run) }),
  });
  page(root, { title: ["Agent ", said(agentId)], moveFocus: context.moveFocus, back: place(context, "/agents", "← All agents") },
    content, el("h2", {}, "Runs"), runs.node);
  let drawn = "";
  /** Made anew only when it is halted or resumed: a busy agent must not take the button from under the hand that halts it. */
  let [actions, halted] = [null, null];

  async function load() {
    const found = await service.find(`/v1/agents/${encodeURIComponent(agentId)}`, signal);
    if (!found) return content.replaceChildren(el("p", {}, "No agent of this name was seen yet."));
    if (found.text !== drawn) draw(found.value);
    drawn = found.text;
    return undefined;
  }

  function draw(agent) {
    const { allowed, blocked, awaiting_approval: held } = agent.decisions;
    const row = (name, ...value) => [el("dt", {}, name), el("dd", {}, ...value)];
    const named = (title, list, member) => list.length > 0 && row(title, list.map((each) => el("div", {}, said(each[member]), ", last ", when(each.lastSeenAt))));
    if (halted !== Boolean(agent.halted)) [actions, halted] = [actionsOf(agent), Boolean(agent.halted)];
    arrange(content, [
      ...agent.halts.map((halt) => el("p.missing", {}, "Halted: ", covered(halt), " by ", said(halt.createdBy), " ", when(halt.createdAt), ": ", said(halt.reason))),
      el("dl.known", {},
        row("Seen", "first ", when(agent.firstSeenAt), ", last ", when(agent.lastSeenAt)),
        row("Calls", `${agent.calls.toLocaleString("en")}: ${allowed.toLocaleString("en")} allowed, ${blocked.toLocaleString("en")} blocked, ${held.toLocaleString("en")} held for a person`),
        Object.keys(agent.resolutions).length > 0 && row("Its approvals", Object.entries(agent.resolutions).map(([status, count]) => `${count.toLocaleString("en")} ${status}`).join(", ")),
        agent.enforcementGaps > 0 && row("Against the decision", el("span.note.block", {}, agent.enforcementGaps.toLocaleString("en"))),
        named("API keys", agent.apiKeys, "apiKeyId"), named("Models, as it says", agent.models, "model"), named("Programs", agent.clients, "client")),
      actions,
      el("section", {}, el("h2", {}, "Alerts"), agent.alerts.length
        ? el("ul.rows", { "aria-label": "Alerts" }, agent.alerts.map((alert) => el("li", {}, alertRow(context, alert)))) : el("p.empty", {}, "None is open.")),
      el("section", {}, el("h2", {}, "Tools"), tools(agent)),
    ].filter(Boolean));
  }

  function actionsOf(agent) {
    return user.role === "admin" && el("div.actions", {}, agent.halted
      ? el("button", { type: "button", onclick: () => context.resume() }, "Resume…")
      : el("button.reject", { type: "button", onclick: () => context.halt(agentId) }, "Halt this agent…"),
    place(context, `/audit?agentId=${encodeURIComponent(agentId)}`, "Its records"));
  }

  context.keepFresh(load, ["decision", "halt", "alert"], signal, 2000);
}

function tools(agent) {
  if (!agent.tools.length) return el("p.empty", {}, "It has called none.");
  return el("div.scroll", { tabIndex: 0, role: "region", "aria-label": "Tools" }, el("table", {},
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Tool"), el("th", { scope: "col" }, "Calls"))),
    el("tbody", {}, agent.tools.map((tool) => el("tr", {}, el("th", { scope: "row" }, said(tool.toolName)), el("td", {}, tool.calls.toLocaleString("en")))),
      agent.callsOfOtherTools > 0 && el("tr", {}, el("th", { scope: "row" }, "others"), el("td", {}, agent.callsOfOtherTools.toLocaleString("en"))))));
}
