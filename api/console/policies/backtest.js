// What a change of a policy would have done to recorded calls: how many would be decided differently, from what to what.

import { el, when } from "../dom.js";
import { address, place } from "../page.js";
import { said } from "../text.js";

/** Milliseconds: the service decides for a minute at most, and people take turns. */
const LONGEST = 180_000;
const OUTCOMES = { block: "Blocked", require_approval: "Held for a person", warn: "Allowed with a warning", allow: "Allowed" };

/** Asks for a backtest with `body`, and fills `box` with what came of it. Throws what the service refuses. */
export async function backtest(context, box, body, signal) {
  box.replaceChildren(el("p.hint", { role: "status" }, "Deciding recorded calls again…"));
  try {
    const { value } = await context.service.request("POST", "/v1/policies/backtest", body, signal, { longest: LONGEST });
    box.replaceChildren(...report(context, value));
  } catch (error) {
    box.replaceChildren();
    throw error;
  }
}

function report(context, { calls, changed, counts, changes }) {
  const many = (count) => `${count.toLocaleString("en")} ${count === 1 ? "call" : "calls"}`;
  if (!calls) return [el("p", { role: "status" }, "There are no recorded calls to try this on yet.")];
  const head = el("p", { role: "status" }, changed
    ? [el("strong", {}, `${many(changed)} of ${calls.toLocaleString("en")} would have been decided differently.`)]
    : `Of ${many(calls)}, none would have been decided differently.`);
  const groups = counts.filter((each) => each.old !== each.new).map(({ old, new: now, count }) => {
    const shown = changes.filter((each) => each.oldAction === old && each.newAction === now);
    return el("details.group", {},
      el("summary", {}, el(`span.note.${old}`, {}, OUTCOMES[old]), " → ", el(`span.note.${now}`, {}, OUTCOMES[now]), ` ${many(count)}`),
      shown.length > 0 && el("ul.changed", {}, shown.map((each) => one(context, each))),
      shown.length < count && el("p.hint", {}, shown.length ? `The first ${shown.length} are shown.` : "None of them is among the first that are shown."));
  });
  const reworded = changes.filter((each) => each.oldAction === each.newAction);
  if (reworded.length) {
    groups.push(el("details.group", {}, el("summary", {}, "Decided alike, for another reason"),
      el("ul.changed", {}, reworded.map((each) => one(context, each)))));
  }
  return [head, ...groups];
}

function one(context, call) {
  return el("li", {},
    place(context, address("runs", call.runId), said(call.toolName)), " of ", said(call.agentId ?? "?"),
    call.at && [", ", when(call.at)],
    el("p.hint", {}, said(call.newReason)),
    el("details", {}, el("summary", {}, "Called with"), el("code.json", {}, said(JSON.stringify(call.inputPayload, null, 2)))));
}
