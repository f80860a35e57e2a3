// One approval in full: what the agent wants to do, exactly, and everything that helps to judge it. What the service
// knows and what the agent merely says are kept apart to the eye.

import { el, when } from "../dom.js";
import * as exact from "../exact.js";
import { matchedIn } from "../marks.js";
import { address, place } from "../page.js";
import { folding } from "../runs/payload.js";
import { said, titleOf } from "../text.js";
import { callOf } from "./call.js";
import { doubts, hostsIn, sourceOf } from "./doubts.js";
import { story } from "./story.js";
import { STATUS, outcome, standing, told } from "./words.js";

const ACTIONS = { block: "blocks", require_approval: "asks for approval", warn: "warns", allow: "allows" };
/** Characters of a task that stand beside the title. */
const MOST_OF_TASK = 240;
/** Characters of its run that are looked through for hosts. */
const MOST_READ = 8_000_000;
const LABELS = { __proto__: null, goal: "Goal", reasoning: "Reasoning", conversationId: "Conversation" };

/**
 * The answer of GET /v1/approvals/:id (`text`) as `{nodes, tell(run)}`; `tell` adds what its run is, once that is known.
 * `others` are approvals of before, by which hosts are known.
 */
export function detail(text, context, others) {
  const tree = exact.read(text);
  const approval = JSON.parse(text);
  const payload = exact.member(tree, "inputPayload");
  const asserted = exact.member(tree, "asserted");
  const closely = el("section.doubts", { "aria-labelledby": "doubts-title", hidden: true });
  const history = el("div", {}, el("p.hint", {}, "…"));
  const texts = payload?.kind === "object" ? textsOf(payload) : [];
  const spoken = textsOf(asserted).join("\n");
  const elsewhere = others.filter((each) => each.approvalId !== approval.approvalId)
    .flatMap(({ about }) => [...(about?.recipients ?? []), ...(about?.hosts ?? [])]).join("\n");

  function look(more = "") {
    const found = doubts(approval, texts, spoken, hostsIn(`${spoken}\n${elsewhere}\n${more}`));
    closely.hidden = !found.length;
    closely.replaceChildren(el("h3", { id: "doubts-title" }, "Look closely"), el("ul", {}, found));
  }

  look();
  return {
    nodes: [
      el("header", {},
        el("h2", { id: "subject", tabIndex: -1 }, titleOf(approval)),
        el(`span.status.${approval.status}`, {}, STATUS[approval.status] ?? approval.status)),
      approval.about && el("p.called", {}, el("code.tool", {}, said(approval.toolName)), " called by ", said(approval.agentId)),
      asked(approval.asserted.task),
      approval.status === "pending" ? null : ending(approval, context.user.email),
      ...(approval.status === "pending" || approval.approvers > 1 ? standing(approval, context.user.email) : []).map((line) => el("p.standing", {}, line)),
      closely,
      callOf(approval, payload, payload?.kind === "object" ? matchedIn(payload, approval.matchedPolicies) : new Map()),
      el("div.why", {}, long(approval.reason)),
      origins(approval),
      words(approval, exact.member(asserted, "agentContext")),
      el("section", { "aria-labelledby": "story-title" }, el("h3", { id: "story-title" }, "The run so far"), history),
      facts(approval, context),
      policies(approval, context),
    ].filter(Boolean),
    tell(run) {
      if (!run) return history.replaceChildren(el("p.hint", {}, "It could not be loaded. "), place(context, address("runs", approval.runId), "The whole run"));
      history.replaceChildren(...story(run, approval, context));
      const here = run.toolCalls.findIndex((call) => call.toolCallId === approval.toolCallId);
      return look(JSON.stringify([run.task, run.toolCalls.slice(0, here < 0 ? undefined : here).map((call) => [call.inputPayload, call.outputPayload])]).slice(0, MOST_READ));
    },
  };
}

// What it is to be compared with, in sight before the call. It is the agent's word, and stands whole among those.
function asked(task) {
  if (!task) return null;
  const begins = task.length > MOST_OF_TASK;
  return el("p.asked", {}, "Asked to, as the agent says: “", said(begins ? [...task].slice(0, MOST_OF_TASK).join("") : task), begins ? "…” (whole below)" : "”");
}

/** Every text below a node, keys among them. */
function textsOf(node) {
  if (node.kind === "object") return node.members.flatMap(([key, child]) => [key, ...textsOf(child)]);
  if (node.kind === "array") return node.items.flatMap(textsOf);
  return node.kind === "text" ? [node.value] : [node.text];
}

function ending(approval, me) {
  return el(`div.ending.${approval.status}`, { id: "ending", tabIndex: -1 },
    el("p", {}, el("strong", {}, outcome(approval, me))),
    approval.decisionReason && approval.actor !== "service"
      ? el("blockquote", {}, said(approval.decisionReason))
      : approval.actor !== "service" && el("p.hint", {}, "No reason was given."));
}

// Where the values that matter were first seen in the run, where a policy asks for that.
function origins(approval) {
  const targets = (approval.about?.targets ?? []).filter((target) => target.source);
  const more = approval.about?.more?.targets;
  if (!targets.length) return null;
  return el("section", { "aria-labelledby": "origins-title" },
    el("h3", { id: "origins-title" }, "Where its values come from"),
    el("dl.origins", {}, targets.map((target) => [
      el("dt", {}, said(target.path)),
      el("dd", {}, said(target.value), " ",
        el(`span.note.${{ task: "good", trusted: "good" }[target.source] ?? "warn"}`, {}, sourceOf(target.source)))])),
    more && el("p.hint", {}, `and ${more} more, none more doubtful`));
}

// Everything the agent says for itself. It may be wrong, or have been talked into it.
function words(approval, context) {
  const rows = [
    ...row("Task of the run", approval.asserted.task && long(approval.asserted.task)),
    ...row("Reason for this call", approval.asserted.reason && long(approval.asserted.reason)),
    ...(context?.members ?? []).flatMap(([key, node]) =>
      row(LABELS[key] ?? said(key), node.kind === "text" ? node.value && long(node.value) : folding(exact.show(node), exact.write(node).length))),
  ];
  return el("section.words", { "aria-labelledby": "words-title" },
    el("h3", { id: "words-title" }, "In the agent’s own words ", el("span.note", {}, "not verified")),
    rows.length ? el("dl", {}, rows) : el("p.hint", {}, "It has given no goal and no reasoning."));
}

function facts(approval, context) {
  const user = approval.user && [approval.user.email, approval.user.id].filter(Boolean).join(" · ");
  return el("section", { "aria-labelledby": "facts-title" },
    el("h3", { id: "facts-title" }, "Who and when"),
    el("dl", {},
      row("Agent", place(context, `/runs?agentId=${encodeURIComponent(approval.agentId)}`, said(approval.agentId))),
      row("On behalf of", user && [said(user), " ", el("span.note.good", {}, "verified")]),
      row("Delegated through", approval.delegationChain?.length && said(approval.delegationChain.join(" → "))),
      row("Run", place(context, address("runs", approval.runId), said(approval.runId))),
      row("Tool", said(approval.toolName)),
      row("Tool call", said(approval.toolCallId)),
      row("Asked", when(approval.requestedAt)),
      row(approval.status === "pending" ? "Expires" : "Would have expired",
        approval.expiresAt && (approval.status === "pending" || approval.status === "cancelled") && when(approval.expiresAt)),
      row("First seen", approval.seenAt && [when(approval.seenAt), " by ", said(approval.seenBy)]),
      row("Notices", approval.notified?.length && told(approval)),
      row("Approval", said(approval.approvalId))));
}

function policies(approval, context) {
  if (!approval.matchedPolicies?.length) return null;
  return el("section", { "aria-labelledby": "policies-title" },
    el("h3", { id: "policies-title" }, "Policies that matched"),
    el("ul.policies", {}, approval.matchedPolicies.map((policy) => el("li", {},
      el("strong", {}, place(context, address("policies", policy.policyId), said(policy.policyName))), " ",
      el(`span.note.${policy.action}`, {}, ACTIONS[policy.action] ?? policy.action),
      el("div.reason", {}, long(policy.reason))))));
}

const long = (text) => folding(said(text), text.length);

function row(name, value) {
  return value ? [el("dt", {}, name), el("dd", {}, value)] : [];
}
