// One run as it went: what is known of it, and its calls in order, each with what was decided, why, and what came of it.
// What the agent merely says is marked as its own words.

import { el, when } from "../dom.js";
import * as exact from "../exact.js";
import { address, place } from "../page.js";
import { said } from "../text.js";
import { openExemption } from "./exemption.js";
import { folding, payloadOf } from "./payload.js";
import { STATUS, TONE } from "./words.js";

/** Characters of a run whose calls are all written out; of a longer one each is when its details are opened. */
const MOST_AT_ONCE = 1_000_000;
const LEFT_OUT = "Too large to be shown here with the calls before it, as is what came of it. GET /v1/runs/:id gives it with a smaller limit.";
const FLAGS = {
  enforcement_gap: "Ran against the decision",
  after_run_ended: "Asked after the run had ended",
  decided_offline: "Made while the service was away",
  repeated_after_completion: "Asked again after it was done",
  completed_during_halt: "Done during a halt",
};

const reasonOf = (text) => el("div.reason", {}, folding(said(text), text.length));

/** How many calls a run has in all. */
export const callsOf = (run) => Object.values(run.toolCallCounts).reduce((sum, count) => sum + count, 0);

/** Fills `content`; returns `{draw(text)}` for the answer of GET /v1/runs/:id as it is spelled, which gives
 * its revision. Calls that are open stay open when the run goes on. */
export function timeline(content, context, signal) {
  const head = el("dl.known");
  const warning = el("p.missing", { hidden: true });
  const calls = el("ol.calls", { "aria-label": "Tool calls" });
  const kept = new Map();
  content.append(head, warning, calls);

  function draw(text) {
    const run = JSON.parse(text);
    const trees = exact.member(exact.read(text), "toolCalls").items;
    const total = callsOf(run);
    head.replaceChildren(...facts(run));
    const unreported = run.toolCalls.filter((call) => call.status === "allowed" && call.completedAt && call.outputPayload === undefined && !call.leftOut).length;
    const told = [
      !run.task && "The run has no task: nothing tells what it was asked to do.",
      unreported > 0 && `${unreported} ${unreported === 1 ? "call has" : "calls have"} reported no output, so what they read is not known.`,
    ].filter(Boolean);
    warning.hidden = !told.length;
    warning.textContent = told.join(" ");
    const nodes = run.toolCalls.map((call, number) => {
      const mark = JSON.stringify(call);
      const known = kept.get(call.toolCallId);
      if (known?.mark === mark) return known.li;
      const li = known?.li ?? el("li.call");
      const open = li.querySelector("details")?.open ?? false;
      li.replaceChildren(...one(call, trees[number], open, text.length > MOST_AT_ONCE));
      kept.set(call.toolCallId, { mark, li });
      return li;
    });
    if (total > nodes.length) nodes.unshift(el("li.hint", {}, `The first ${total - nodes.length} calls are not shown.`));
    calls.replaceChildren(...nodes);
    return run.revision;
  }

  function facts(run) {
    const row = (name, value) => (value ? [el("dt", {}, name), el("dd", {}, value)] : []);
    return [
      row("Task", run.task && [folding(said(run.task), run.task.length), " ", el("span.note", {}, "not verified")]),
      row("Agent", place(context, address("agents", run.agentId), said(run.agentId))),
      row("Model", run.model && said(run.model)),
      row("Status", el(`span.status.${run.status}`, {}, run.status)),
      row("Began", when(run.startedAt)),
      row("Ended", run.endedAt && when(run.endedAt)),
      row("Labels", run.labels.length > 0 && [run.labels.map((label) => el("span.note", {}, said(label))),
        context.user.role !== "viewer" && run.status === "running" && el("button.quiet", { type: "button", onclick: () => openExemption(context, run, signal) }, "Exempt…")]),
      row("Started by", run.parentRunId && place(context, address("runs", run.parentRunId), said(run.parentRunId))),
    ].flat();
  }

  function one(call, tree, open, later) {
    const came = call.completion === "failed" ? "failed" : call.completedAt ? "done" : call.status === "allowed" ? "not reported yet" : "";
    const details = el("details", { open }, el("summary", {}, "Details"));
    const fill = () => details.append(...[
      payloadOf("Called with", exact.member(tree, "inputPayload"), call.leftOut ? LEFT_OUT : "The payload is no longer kept here."),
      call.outputPayload !== undefined && payloadOf("What came of it", exact.member(tree, "outputPayload")),
      Object.keys(call.asserted).length > 0 && payloadOf("In the agent’s own words, not verified", exact.member(tree, "asserted")),
      el("p.links", {},
        call.approvalId && place(context, `/approvals?status=all&approvalId=${encodeURIComponent(call.approvalId)}`, "Its approval"),
        call.grantIds?.map((grantId) => place(context, address("grants", grantId), "Its grant")),
        context.user.role === "admin" && place(context, `/audit?toolCallId=${encodeURIComponent(call.toolCallId)}`, "Its record"),
        call.matchedPolicies.map((policy) => place(context, address("policies", policy.policyId), said(policy.policyName)))),
    ].filter(Boolean));
    if (open || !later) fill();
    else details.addEventListener("toggle", fill, { once: true });
    return [
      el("p.line", {},
        el(`span.note.${TONE[call.status]}`, {}, STATUS[call.status]), " ",
        el("strong", {}, said(call.toolName)), " ",
        el("span.time", {}, when(call.decidedAt)), came && el("span.came", {}, came),
        call.grantIds && el("span.note.good", {}, "By a grant"),
        call.flags.filter((flag) => flag !== "covered_by_grant").map((flag) => el("span.note.block", {}, FLAGS[flag] ?? flag))),
      call.status !== "allowed" || call.matchedPolicies.length > 0 || call.grantIds
        ? reasonOf(call.blockedReason ?? call.reason) : null,
      call.halted && reasonOf(call.halted),
      details,
    ].filter(Boolean);
  }

  return { draw };
}
