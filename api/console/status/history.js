// The last hour of the installation as plots, and its nodes. Both are for people of the organisation that runs it; for
// others there is nothing here.

import { el, when } from "../dom.js";
import { said } from "../text.js";
import { plot } from "./plot.js";

const PLOTS = [
  { title: "Events a second", lines: [["allowedPerSecond", "allowed"], ["blockedPerSecond", "blocked"], ["heldPerSecond", "held"], ["eventsPerSecond", "all events"]] },
  { title: "Milliseconds until an event is answered", unit: "ms", lines: [["p50Ms", "half of them"], ["p99Ms", "99 of 100"]] },
  { title: "Approvals that wait for a person", lines: [["approvals", "approvals"]] },
  { title: "What waits to be written or sent", lines: [["writer", "to be written"], ["webhooks", "webhooks"], ["notifications", "notices"]] },
];

/** `{node, load}`; `load` asks the service, and shows nothing where it is not told. */
export function lastHour(context, signal) {
  const { service } = context;
  const plots = PLOTS.map(plot);
  const rows = el("tbody");
  const node = el("section", { hidden: true },
    el("h2", {}, "The last hour"), el("div.plots", {}, plots.map((each) => each.node)),
    el("h2", {}, "Nodes"),
    el("div.scroll", { tabIndex: 0, role: "region", "aria-label": "Nodes" }, el("table.nodes", {},
      el("thead", {}, el("tr", {}, ["Node", "Heard of", "Version", "Policies", "Started"].map((name) => el("th", { scope: "col" }, name)))), rows)));
  let refused = false;

  async function load() {
    if (refused) return;
    try {
      const [history, nodes] = await Promise.all(
        ["/v1/health/history", "/v1/nodes"].map((path) => service.request("GET", path, undefined, signal)));
      const { points, seconds } = history.value;
      for (const each of plots) each.draw(points, seconds);
      rows.replaceChildren(...nodes.value.map((each) => row(each, nodes.value)));
      node.hidden = false;
    } catch (error) {
      refused = error.status === 403;
      if (!refused) throw error;
    }
  }

  return { node, load };
}

function row(node, all) {
  const here = all.find((each) => each.answering) ?? node;
  const differs = node.policyRevision === here.policyRevision && node.policyDigest !== here.policyDigest;
  return el("tr", {},
    el("th", { scope: "row" }, said(node.host), ` · ${node.processId}`, node.answering && " (this one)"),
    el("td", {}, when(node.seenAt), " ", node.silent ? el("span.note.block", {}, "silent") : el("span.note.allow", {}, "serving")),
    el("td", {}, node.version, node.version !== here.version && [" ", el("span.note.warn", {}, "another version")]),
    el("td", {}, `revision ${node.policyRevision.toLocaleString("en")}, `, el("code", { title: node.policyDigest }, node.policyDigest.slice(0, 12)),
      node.stale && [" ", el("span.note.block", {}, "stale")], differs && [" ", el("span.note.block", {}, "differs")]),
    el("td", {}, when(node.startedAt)));
}
