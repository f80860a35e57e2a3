// The run so far, short: its last calls before this one, and a link to all of it.

import { el, when } from "../dom.js";
import { address, place } from "../page.js";
import { STATUS, TONE } from "../runs/words.js";
import { said } from "../text.js";

const MOST = 5;

/** Fills `list` with what came before the approval's call in `run`, the answer of GET /v1/runs/:id. */
export function story(run, approval, context) {
  const here = run.toolCalls.findIndex((call) => call.toolCallId === approval.toolCallId);
  const before = run.toolCalls.slice(0, here < 0 ? run.toolCalls.length : here);
  const total = Object.values(run.toolCallCounts).reduce((sum, count) => sum + count, 0);
  return [
    run.labels.length > 0 && el("p", {}, "Labels: ", run.labels.map((label) => [el("span.note", {}, said(label)), " "])),
    before.length === 0 && el("p.hint", {}, "This is its first call."),
    before.length > MOST && el("p.hint", {}, `${(before.length - MOST).toLocaleString("en")} calls before these`),
    el("ol.story", { "aria-label": "Calls before this one", hidden: !before.length }, before.slice(-MOST).map((call) => el("li", {},
      el(`span.note.${TONE[call.status]}`, {}, STATUS[call.status]), " ", el("strong", {}, said(call.toolName)), " ",
      el("span.time", {}, when(call.decidedAt)),
      call.flags.includes("enforcement_gap") && el("span.note.block", {}, "ran against the decision")))),
    el("p", {}, place(context, address("runs", approval.runId), `The whole run, ${total} ${total === 1 ? "call" : "calls"}`)),
  ].filter(Boolean);
}
