// The tools room: what is declared of tools by patterns of their names, which tools agents called that nobody has
// declared, and for admins the tools of servers that agents propose. Below `/tools/<proposalId>` one proposal, to admit or to dismiss.

import { el, when } from "../dom.js";
import { listing } from "../listing.js";
import { address, page, place } from "../page.js";
import { said } from "../text.js";
import { proposal } from "../tools/proposal.js";
import { undeclared } from "../tools/undeclared.js";

const STATUSES = [["pending", "Wait for you"], ["admitted", "Admitted"], ["dismissed", "Dismissed"], ["", "All"]];
const TONE = { pending: "warn", admitted: "allow", dismissed: "plain" };

export function open(root, context) {
  const stop = new AbortController();
  if (context.place && context.user.role === "admin") proposal(root, context, stop.signal);
  else openList(root, context, stop.signal);
  return () => stop.abort();
}

function openList(root, context, signal) {
  const sets = listing(context, {
    path: "/v1/tools", paged: false, topics: ["policy"], signal, label: "Tool sets",
    empty: "Nothing is declared; policies know tools by their names alone.",
    row: (set) => ({ key: `${set.organisationId} ${set.toolSetId}`, mark: JSON.stringify(set), node: () => setOf(set) }),
  });
  const isAdmin = context.user.role === "admin";
  const proposals = isAdmin && listing(context, {
    path: "/v1/tool-proposals", topics: [], signal, label: "Proposed tools",
    filters: [{ name: "status", label: "Which", options: STATUSES }], usual: { status: "pending" },
    empty: "Nothing is proposed. Proxies and agents propose the tools of servers that they meet.",
    row: (each) => ({ key: each.proposalId, mark: JSON.stringify(each), node: () => proposed(context, each) }),
  });
  page(root, { title: "Tools", moveFocus: context.moveFocus },
    el("p.hint", {}, "What tools are: their kind and effect, and which arguments say whom or what a call is about. Policies go by it."),
    isAdmin && [el("h2", {}, "Proposed tools"), proposals.node],
    el("h2", {}, "Undeclared tools seen"),
    el("p.hint", {}, "Agents called them, and policies know no more of them than their names."), undeclared(context, signal, sets.refresh),
    el("h2", {}, "Declared tools"), sets.node);
}

function proposed(context, each) {
  const { counts } = each;
  return place(context, address("tools", each.proposalId),
    el("strong.subject", {}, said(each.server)), el("span.time", {}, when(each.updatedAt)),
    el("span.about", {}, [counts.new && `${counts.new} new`, counts.changed && `${counts.changed} changed`, counts.admitted && `${counts.admitted} as admitted`]
      .filter(Boolean).join(", ") || "no tools"),
    el("span.marks", {}, counts.changed > 0 && el("span.note.block", {}, "changed since"), el(`span.note.${TONE[each.status]}`, {}, each.status)));
}

function setOf(set) {
  const count = set.tools.reduce((sum, each) => sum + each.names.length, 0);
  const box = el("details.row", {
    ontoggle() {
      if (box.open && !box.querySelector("table")) box.append(tableOf(set));
    },
  }, el("summary", {}, el("strong", {}, said(set.name)), " ", el("span.about", {}, `${count.toLocaleString("en")} ${count === 1 ? "name" : "names"} · `,
    set.organisationId === "default" ? "counts for all" : "your organisation’s"), " ", el("span.time", {}, when(set.updatedAt))),
  set.description && el("p.description", {}, said(set.description.trim())),
  el("p.hint", {}, el("code", {}, said(set.file)), `, version ${set.version}`));
  return box;
}

function tableOf(set) {
  const argumentsOf = ({ targets = {}, sensitive = [] }) => [
    targets.where && `where: ${targets.where.join(", ")}`, targets.which && `which: ${targets.which.join(", ")}`, sensitive.length > 0 && `sensitive: ${sensitive.join(", ")}`,
  ].filter(Boolean).join("; ") || "–";
  return el("div.scroll", { tabIndex: 0, role: "region", "aria-label": `Tools of ${set.name}` }, el("table", {},
    el("thead", {}, el("tr", {}, ["Names", "Kind", "Effect", "Arguments"].map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, set.tools.map((tool) => el("tr", {},
      el("th", { scope: "row" }, said(tool.names.join(", "))), el("td", {}, tool.kind), el("td", {}, tool.effect), el("td", {}, said(argumentsOf(tool))))))));
}
