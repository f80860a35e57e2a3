// The grants room: what people have allowed beyond one call, by whom, why, how much of it is left, and an end to it.
// Below `/grants/<grantId>` one of them.

import { el, when } from "../dom.js";
import { listing } from "../listing.js";
import { address, ask, field, page, place } from "../page.js";
import { said, titleOf } from "../text.js";

const WHICH = [["true", "In force"], ["false", "Ended"], ["", "All"]];
const STATUS = { active: "in force", used_up: "used up", expired: "expired", revoked: "revoked", run_ended: "its run has ended" };
/** Milliseconds; should the clocks of service and page be apart, a look more does no harm. */
const LONGEST_WAIT = 600_000;

export function open(root, context) {
  const stop = new AbortController();
  if (context.place) openOne(root, context, stop.signal);
  else openList(root, context, stop.signal);
  return () => stop.abort();
}

function openList(root, context, signal) {
  const ends = watchEnds(() => grants.refresh(), signal);
  const grants = listing(context, {
    path: "/v1/grants", topics: ["grant"], signal, label: "Grants",
    filters: [{ name: "active", label: "Which", options: WHICH }, { name: "agentId", label: "Agent" }, { name: "runId", label: "Run" }, { name: "toolName", label: "Tool" }],
    usual: { active: "true" },
    empty: "None of these. Whoever approves a call can allow the same one again, and a run can be exempted from its labels.",
    row: (grant) => {
      ends(grant);
      return { key: grant.grantId, mark: JSON.stringify(grant), node: () => shown(context, grant, () => grants.refresh(), signal) };
    },
  });
  page(root, { title: "Grants", moveFocus: context.moveFocus },
    el("p.hint", {}, "What people have allowed beyond one call. A policy that blocks is never covered."), grants.node);
}

function openOne(root, context, signal) {
  const content = el("div.one");
  page(root, { title: "A grant", moveFocus: context.moveFocus, back: place(context, "/grants", "← All grants") }, content);
  const ends = watchEnds(() => refresh(), signal);
  let drawn = "";

  async function load() {
    const found = await context.service.find(`/v1/grants/${encodeURIComponent(context.place)}`, signal);
    if (!found) return content.replaceChildren(el("p", {}, "There is no such grant."));
    ends(found.value);
    if (found.text === drawn) return undefined;
    drawn = found.text;
    return content.replaceChildren(shown(context, found.value, refresh, signal));
  }
  const refresh = context.keepFresh(load, ["grant"], signal);
}

/** Calls `refresh` when the next of the grants that it is told of ends by time. */
function watchEnds(refresh, signal) {
  let [timer, next] = [null, Infinity];
  signal.addEventListener("abort", () => clearTimeout(timer));
  return (grant) => {
    const at = Date.parse(grant.expiresAt);
    if (grant.status !== "active" || at >= next) return;
    clearTimeout(timer);
    next = at;
    timer = setTimeout(() => { next = Infinity; refresh(); }, Math.min(LONGEST_WAIT, Math.max(500, at - Date.now() + 500)));
  };
}

const titleOfGrant = (grant) => (grant.kind === "labels"
  ? [grant.labels.length === 1 ? "Label " : "Labels ", said(grant.labels.join(", ")), " not counted"] : titleOf(grant));

function shown(context, grant, refresh, signal) {
  const run = place(context, address("runs", grant.runId), said(grant.runId));
  const left = grant.kind === "calls" && grant.calls - grant.used;
  return el("article.grant", { "aria-label": `Grant ${grant.grantId}` },
    el("p.line", {},
      el("strong.subject", {}, titleOfGrant(grant)), " ",
      el(`span.note.${grant.status === "active" ? "good" : "plain"}`, {}, STATUS[grant.status])),
    el("p", {},
      grant.kind === "calls" ? [`${left.toLocaleString("en")} of ${grant.calls.toLocaleString("en")} calls left, `, el("code.tool", {}, said(grant.toolName)), " by ", said(grant.agentId),
        grant.scope === "run" ? [" in run ", run] : [" in every run with its key, first in ", run]]
        : [`${grant.used.toLocaleString("en")} ${grant.used === 1 ? "call" : "calls"} decided by it, in run `, run]),
    grant.policies && el("p.about", {}, "Covers ", grant.policies.map((policy, index) => [index > 0 && ", ",
      place(context, address("policies", policy.policyId), said(policy.policyName)), ` version ${policy.version}`])),
    el("p.about", {}, "By ", said(grant.createdBy), " ", when(grant.createdAt), ", ", grant.status === "active" ? "ends " : "was to end ", when(grant.expiresAt), grant.revokedBy && [", revoked by ", said(grant.revokedBy), " ", when(grant.revokedAt)]),
    grant.reason ? el("blockquote", {}, said(grant.reason)) : null,
    el("p.links", {},
      grant.approvalId && context.user.role !== "viewer" && place(context, `/approvals?status=all&approvalId=${encodeURIComponent(grant.approvalId)}`, "Its approval"),
      grant.status === "active" && context.user.role !== "viewer" && el("button.reject.quiet", { type: "button", onclick: () => openRevoke(context, grant, refresh, signal) }, "Revoke")));
}

function openRevoke(context, grant, refresh, signal) {
  const reason = el("input", { id: "revoke-reason", maxLength: 2000, placeholder: "Optional. The record will have it." });
  ask("Revoke the grant", {
    hint: [el("strong", {}, titleOfGrant(grant)), " (run ", said(grant.runId), "): no later call is covered by it. What went ahead already stays allowed."], verb: "Revoke", tone: "reject",
    fields: [field("Why", reason, { pointer: "/reason" })],
    async submit() {
      const body = reason.value.trim() ? { reason: reason.value.trim() } : {};
      await context.service.request("POST", `/v1/grants/${encodeURIComponent(grant.grantId)}/revoke`, body, signal);
      return () => { context.notice("The grant is revoked."); refresh(); };
    },
  });
}
