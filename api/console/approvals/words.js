// How the approvals room says things: statuses, and who ended an approval.

import { el, when } from "../dom.js";
import { covered } from "../halts.js";
import { said } from "../text.js";

export const STATUS = {
  pending: "Waiting",
  approved: "Approved",
  rejected: "Rejected",
  expired: "Expired",
  cancelled: "Cancelled",
};

/** True: it waits, no channel has delivered a notice of it, and no reviewer has opened it. */
export const isUnreached = (approval) => approval.status === "pending" && !approval.seenAt
  && !(approval.notified ?? []).some((each) => each.state === "delivered");

const STATE = { pending: "to be told", delivered: "told", failed: "could not be told", dropped: "need not be told" };

/** "ops: told 2 minutes ago", as nodes, a line for each channel. */
export function told(approval) {
  return (approval.notified ?? []).map((each) => el("div", {}, `${each.channel}: ${STATE[each.state]} `, when(each.at)));
}

/** Who has approved, and whose approval counts, as lines; none where one reviewer is enough. */
export function standing({ approvers = 1, approvedBy = [], roles = ["reviewer", "admin"], escalatedAt }, me) {
  const names = approvedBy.map((each, at) => [at ? ", " : ": ", said(each.actor === me ? "you" : each.actor), " ", when(each.approvedAt)]);
  return [
    approvers > 1 && [el("strong", {}, `${approvedBy.length} of ${approvers} have approved`), names, "."],
    escalatedAt ? ["Nobody resolved it in time: since ", when(escalatedAt), " it waits for an admin."]
      : roles.length < 2 && [roles[0] === "admin" ? "Only admins may approve it." : "Only reviewers may approve it, not admins."],
  ].filter(Boolean);
}

/** The same in a word, for lists. */
export const standingMark = ({ status, approvers, approvedBy, escalatedAt }) => status === "pending"
  && [approvers > 1 && `${approvedBy.length} of ${approvers} approved`, escalatedAt && "escalated"].filter(Boolean).join(", ");

/** "Approved by rita@acme.example 2 minutes ago", as nodes. `me` is the e-mail of the one who reads it. */
export function outcome(approval, me) {
  const at = approval.resolvedAt ? [" ", when(approval.resolvedAt)] : [];
  if (approval.status === "expired") return ["Expired before anyone resolved it,", ...at];
  if (approval.status === "cancelled") return ["Cancelled, because its run ended,", ...at];
  const actor = approval.actor === me ? "you" : approval.actor ?? approval.resolvedBy ?? "somebody";
  const other = approval.resolvedBy && approval.resolvedBy !== approval.actor
    ? [" on behalf of ", said(approval.resolvedBy)] : [];
  return [`${STATUS[approval.status]} by `, said(actor), ...other, ...at];
}

/** Why it cannot be approved now, as nodes: its call is halted, or others must; else null. */
export function whyOff({ agentId, runId, mayNotApprove }, halts) {
  const halt = halts.find((each) => each.scope === "all" || (each.scope === "agent" ? each.agentId === agentId : each.runId === runId));
  if (halt) return ["Approving is off: ", covered(halt), " halted by ", said(halt.createdBy), ": ", said(halt.reason)];
  return mayNotApprove ? ["Approving is off: ", said(mayNotApprove), "."] : null;
}

/** Announces those of `list` that are not among `known`, the answer of the last time; null at first. */
export function tellOfNew(known, list, limit, total, announce) {
  const now = new Set(list.map((each) => each.approvalId));
  const fresh = known ? list.filter((each) => !known.has(each.approvalId)) : [];
  // Asking for more rows brings in some that are not new at all.
  if (fresh.length && known.limit === limit) {
    const [first] = fresh;
    announce(fresh.length === 1 ? `New: ${first.toolName} of ${first.agentId}. ${total} waiting.`
      : `${fresh.length} new approvals. ${total} waiting.`);
  }
  return Object.assign(now, { limit });
}
