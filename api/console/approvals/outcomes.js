// Tells what came of a decision that was sent.

import { said } from "../text.js";
import { named } from "./sending.js";
import { outcome } from "./words.js";

/** Tells that these of it were decided. */
export function tellDone(decision, done, notice) {
  const approved = decision.verb === "approve";
  const { approvalId, approvers = 1, approvedBy = [] } = decision.approval;
  const more = approved ? approvers - approvedBy.length - 1 : 0;
  const needs = more > 0 && ` ${more === 1 ? "One more person" : `${more} more people`} must approve.`;
  notice([approved ? "Approved: " : "Rejected: ", named(decision, done.length), decision.grant && done.includes(approvalId) && ", and the same call again", ".", needs || ""], approved ? "good" : "rejected");
}

/** Of several, those that were not decided, in one message: `3 of 5 were not decided: …`. */
export function tellFailures(decision, failures, notice, me) {
  const reasons = [...new Set(failures.map(({ error }) => why(error, me)))];
  notice([`${failures.length} of ${decision.ids.length} were not decided: `, named(decision, 1), ": ", said(reasons.join("; ")), "."], "bad");
}

function why(error, me) {
  const { code, approval } = error.body ?? {};
  if (code === "approval_not_pending" && approval) {
    const text = document.createElement("p");
    text.append(...outcome(approval, me).flat(3));
    return `already settled: ${text.textContent}`;
  }
  if (!error.status) return "no answer came, so it is not known whether they were";
  return error.message;
}

/** Of a single one what was refused, where it does not show by itself. */
export function tellRefused(error, service, notice, me) {
  const { code, approval } = error.body ?? {};
  if (code === "approval_not_pending" && approval) notice(["Already settled: ", outcome(approval, me), "."], "bad");
  else if (service.isAway(error) && !error.status) {
    notice("No answer came, so it is not known whether this was decided. It will show as soon as the service answers.", "bad");
  } else if (service.isAway(error)) {
    notice("The service could not do this now; nothing was decided. Try again in a moment.", "bad");
  } else notice(["This was not decided: ", said(error.message), "."], "bad");
}
