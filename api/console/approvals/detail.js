// One approval in full: what the agent wants to do, exactly, and everything that helps to judge it. What the service
// knows and what the agent merely says are kept apart to the eye.

import { el, when } from "../dom.js";
import * as exact from "../exact.js";
import { said } from "../text.js";
import { STATUS, outcome, told } from "./words.js";

const ACTIONS = { block: "blocks", require_approval: "asks for approval", warn: "warns", allow: "allows" };
const LABELS = { goal: "Goal", reasoning: "Reasoning", conversationId: "Conversation" };

/** The answer of GET /v1/approvals/:id (`text`) as nodes; `me` is the e-mail of the one who reads it. */
export function detail(text, me) {
  const tree = exact.read(text);
  const approval = JSON.parse(text);
  return [
    el("header", {},
      el("h2", { id: "subject", tabIndex: -1 }, said(approval.toolName)),
      el(`span.status.${approval.status}`, {}, STATUS[approval.status] ?? approval.status)),
    approval.status === "pending" ? null : ending(approval, me),
    el("p.why", {}, said(approval.reason)),
    payload(approval, exact.member(tree, "inputPayload")),
    words(approval, exact.member(exact.member(tree, "asserted"), "agentContext")),
    facts(approval),
    policies(approval),
  ];
}

function ending(approval, me) {
  return el(`div.ending.${approval.status}`, { id: "ending", tabIndex: -1 },
    el("p", {}, el("strong", {}, outcome(approval, me))),
    approval.decisionReason && approval.actor !== "service"
      ? el("blockquote", {}, said(approval.decisionReason))
      : approval.actor !== "service" && el("p.hint", {}, "No reason was given."));
}

function payload(approval, tree) {
  const title = el("h3", { id: "payload-title" }, "What it would be called with");
  if (!tree || tree.kind !== "object") {
    return el("section", {}, title, el("p.hint", {}, "The payload is no longer kept here: its time was over."));
  }
  const text = exact.write(tree);
  const lines = text.split("\n").length;
  const box = el("div.payload", { tabIndex: 0, role: "region", "aria-labelledby": "payload-title" }, exact.show(tree));
  const whole = el("button.link", {
    type: "button", "aria-expanded": "false",
    onclick() {
      const open = box.classList.toggle("whole");
      whole.setAttribute("aria-expanded", String(open));
      whole.textContent = open ? "Show less" : "Show all of it";
    },
  }, "Show all of it");
  const copy = navigator.clipboard && el("button.link", {
    type: "button",
    async onclick() {
      try {
        await navigator.clipboard.writeText(text);
        copy.textContent = "Copied";
      } catch {
        copy.textContent = "Not allowed here";
      }
    },
  }, "Copy");
  const size = `${lines.toLocaleString("en")} ${lines === 1 ? "line" : "lines"}, ${text.length.toLocaleString("en")} characters`;
  const long = lines > 18 || text.length > 1500;
  return el("section.what", {},
    el("div.titled", {}, title, el("span.tools", {}, long && el("span.size", {}, size), long && whole, copy)),
    box);
}

// Everything the agent says for itself. It may be wrong, or have been talked into it.
function words(approval, context) {
  const rows = [
    ...row("Task of the run", approval.asserted.task && said(approval.asserted.task)),
    ...row("Reason for this call", approval.asserted.reason && said(approval.asserted.reason)),
    ...(context?.members ?? []).flatMap(([key, node]) =>
      row(LABELS[key] ?? said(key), node.kind === "text" ? node.value && said(node.value) : exact.show(node))),
  ];
  return el("section.words", { "aria-labelledby": "words-title" },
    el("h3", { id: "words-title" }, "In the agent’s own words ", el("span.note", {}, "not verified")),
    rows.length ? el("dl", {}, rows) : el("p.hint", {}, "It has given no goal and no reasoning."));
}

function facts(approval) {
  const user = approval.user && [approval.user.email, approval.user.id].filter(Boolean).join(" · ");
  return el("section", { "aria-labelledby": "facts-title" },
    el("h3", { id: "facts-title" }, "Who and when"),
    el("dl", {},
      row("Agent", said(approval.agentId)),
      row("On behalf of", user && [said(user), " ", el("span.note.good", {}, "verified")]),
      row("Delegated through", approval.delegationChain?.length && said(approval.delegationChain.join(" → "))),
      row("Run", said(approval.runId)),
      row("Tool call", said(approval.toolCallId)),
      row("Asked", when(approval.requestedAt)),
      row(approval.status === "pending" ? "Expires" : "Would have expired",
        approval.expiresAt && (approval.status === "pending" || approval.status === "cancelled") && when(approval.expiresAt)),
      row("First seen", approval.seenAt && [when(approval.seenAt), " by ", said(approval.seenBy)]),
      row("Notices", approval.notified?.length && told(approval)),
      row("Approval", said(approval.approvalId))));
}

function policies(approval) {
  if (!approval.matchedPolicies?.length) return null;
  return el("section", { "aria-labelledby": "policies-title" },
    el("h3", { id: "policies-title" }, "Policies that matched"),
    el("ul.policies", {}, approval.matchedPolicies.map((policy) => el("li", {},
      el("strong", {}, said(policy.policyName)), " ",
      el(`span.note.${policy.action}`, {}, ACTIONS[policy.action] ?? policy.action),
      el("p", {}, said(policy.reason))))));
}

function row(name, value) {
  return value ? [el("dt", {}, name), el("dd", {}, value)] : [];
}
