// The run's last calls before this one.

import { el, when } from "../dom.js";
import { address, place } from "../page.js";
import { STATUS, TONE } from "../runs/words.js";
import { said } from "../text.js";

const MOST = 5;

/** `run` has the newest of its calls. */
export function story(run, approval, context) {
  const calls = run.toolCalls;
  const before = calls.slice(0, Math.max(0, calls.findIndex((call) => call.toolCallId === approval.toolCallId)));
  const total = Object.values(run.toolCallCounts).reduce((sum, count) => sum + count, 0);
  const last = before.slice(-MOST);
  const rest = total - calls.length + before.length - last.length;
  return [
    run.labels.length > 0 && el("p", {}, "Labels: ", run.labels.map((label) => [el("span.note", {}, said(label)), " "])),
    !last.length && el("p.hint", {}, rest ? "They are further back." : "This is its first call."),
    last.length && rest > 0 && el("p.hint", {}, `${rest.toLocaleString("en")} ${rest === 1 ? "call" : "calls"} before these`),
    el("ol.story", { "aria-label": "Calls before this one", hidden: !last.length }, last.map((call) => el("li", {},
      el(`span.note.${TONE[call.status]}`, {}, STATUS[call.status]), " ", el("strong", {}, said(call.toolName)), " ",
      el("span.time", {}, when(call.decidedAt)),
      call.flags.includes("enforcement_gap") && el("span.note.block", {}, "ran against the decision")))),
    el("p", {}, place(context, address("runs", approval.runId), `The whole run, ${total} ${total === 1 ? "call" : "calls"}`)),
  ].filter(Boolean);
}
