// How the approvals room says things: statuses, and who ended an approval.

import { el, when } from "../dom.js";
import { said } from "../text.js";

export const STATUS = {
  pending: "Waiting",
  approved: "Approved",
  rejected: "Rejected",
  expired: "Expired",
  cancelled: "Cancelled",
};

/** What it is about, in a sentence, as a node; for those that have none the tool. */
export const titleOf = (approval) => said(capital(approval.about?.sentence ?? approval.toolName, Boolean(approval.about)));

const capital = (text, isSentence) => (isSentence ? text.charAt(0).toUpperCase() + text.slice(1) : text);

/** True: it waits, no channel has delivered a notice of it, and no reviewer has opened it. */
export const isUnreached = (approval) => approval.status === "pending" && !approval.seenAt
  && !(approval.notified ?? []).some((each) => each.state === "delivered");

const STATE = { pending: "to be told", delivered: "told", failed: "could not be told", dropped: "need not be told" };

/** "ops: told 2 minutes ago", as nodes, a line for each channel. */
export function told(approval) {
  return (approval.notified ?? []).map((each) => el("div", {}, `${each.channel}: ${STATE[each.state]} `, when(each.at)));
}

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
