// A policy, or a preset of one, in words and as parts of a page: what it does, when, by which conditions, and its examples.

import { el } from "../dom.js";
import * as exact from "../exact.js";
import { address, place } from "../page.js";
import { said } from "../text.js";

const OPERATORS = {
  equals: "is", not_equals: "is not", in: "is one of", not_in: "is none of",
  contains: "contains", not_contains: "does not contain", starts_with: "starts with", ends_with: "ends with",
  matches: "matches the pattern", not_matches: "does not match the pattern",
  greater_than: "is more than", greater_than_or_equal: "is at least",
  less_than: "is less than", less_than_or_equal: "is at most",
  exists: "is there", not_exists: "is not there",
};
const EFFECTS = {
  block: "Blocks", require_approval: "Holds for a person to decide", warn: "Lets pass, with a warning,",
  allow: "Allows, unless a stronger policy matches too,",
};
export const ACTIONS = { block: "Block", require_approval: "Ask a person", warn: "Warn", allow: "Allow" };
const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
const PER = {
  agentId: "agent", runId: "run", toolName: "tool", payload: "payload", userId: "user", apiKeyId: "API key",
};

/** The marks of a row and of a heading: what it does, and why it may not be doing it. */
export function marks(policy) {
  return [
    el(`span.note.${policy.action}`, {}, ACTIONS[policy.action] ?? policy.action),
    !policy.enabled && el("span.note", {}, "Switched off"),
    policy.mode === "shadow" && el("span.note", {}, "Shadow"),
    policy.missingSettings && el("span.note.warn", {}, "Waits for settings"),
  ].filter(Boolean);
}

/** "2 hours", "90 seconds": never rounded. What is no number, as while somebody writes it, is shown as it is. */
export function span(seconds) {
  const [unit, size] = UNITS.find(([, each]) => seconds % each === 0 && seconds >= each) ?? UNITS.at(-1);
  const count = seconds / size;
  return Number.isNaN(count) ? String(seconds) : `${count.toLocaleString("en")} ${unit}${count === 1 ? "" : "s"}`;
}

/** One sentence that the list of conditions goes on. */
export function effect(policy) {
  const what = policy.on === "tool.completed" ? "the outcome of a call" : policy.scope === "action_only" ? "a call that does more than read" : "a call";
  const verb = EFFECTS[policy.action] ?? policy.action;
  const count = policy.matchConditions.length;
  return `${verb} ${what} when ${count === 1 ? "this holds" : `all of these ${count} hold`}:`;
}

/** What keeps the policy from acting, if anything does. */
export function idle(policy) {
  const told = [];
  if (policy.enabled === false) told.push("It is switched off and decides nothing.");
  if (policy.mode === "shadow") told.push("It is in shadow: what it would do is reported, and nothing is enforced.");
  if (policy.missingSettings) {
    told.push(`It is inactive until the organisation has ${policy.missingSettings.map((name) => `“${name}”`).join(", ")}.`);
  }
  return told.join(" ");
}

const SETTING = /^\{\{(\w+)\}\}$/;
const SHOWN = 6;

function code(value) {
  const [, setting] = (typeof value === "string" && SETTING.exec(value)) || [];
  if (setting) return ["the organisation’s ", el("code", {}, setting)];
  return el("code", {}, said(typeof value === "string" ? value : JSON.stringify(value)));
}

function joined(values, word) {
  return values.flatMap((value, number) => [number > 0 && (number === values.length - 1 ? ` ${word} ` : ", "), code(value)]);
}

function condition(each) {
  const expression = typeof each === "string" ? each : each.expression;
  if (expression !== undefined) return ["the expression holds: ", code(expression)];
  const { field, operator, value } = each;
  return [code(field), ` ${OPERATORS[operator] ?? operator} `,
    value === undefined ? null : Array.isArray(value) && value.length ? joined(value, operator.startsWith("not") ? "nor" : "or") : code(value)];
}

export function conditions(list) {
  return el("ul.conditions", { "aria-label": "Conditions" }, list.map((each) => el("li", {}, condition(each))));
}

/** Who approves, and how long it waits. */
function approvalTerms({ approvers = 1, roles = [], allowSelf, expiresAfterSeconds, onExpiry, escalateSeconds }) {
  const who = roles.length === 1 ? `${roles[0]}${approvers > 1 ? "s" : ""}` : approvers > 1 ? "different people" : "person";
  return [
    `needs ${approvers > 1 ? approvers : "one"} ${who}`, allowSelf ? "; whoever asked may be one" : "; never whoever asked",
    expiresAfterSeconds && ["; it waits ", span(expiresAfterSeconds), onExpiry === "escalate" ? [", then ", span(escalateSeconds), " for an admin"] : "", ", then the call is blocked"],
  ];
}

/** What else a policy says, each with its meaning. */
export function extras(policy, context) {
  const { rateLimit, approval, after, labels, message, presetId, failurePolicy, presetParameters } = policy;
  const row = (name, ...value) => [el("dt", {}, name), el("dd", {}, ...value)];
  const step = after && (after.tool ? ["a call of ", code(after.tool)] : after.label ? ["the label ", code(after.label)]
    : ["a match of ", place(context, address("policies", after.policy), said(after.policy))]);
  return el("dl.known", {},
    message && row("The reason given", said(message)),
    rateLimit && row("Only beyond a rate", `${rateLimit.limit.toLocaleString("en")} matching ${rateLimit.limit === 1 ? "call" : "calls"} in `,
      `${span(rateLimit.windowSeconds)} pass, counted per ${(rateLimit.per ?? ["agentId"]).map((each) => PER[each] ?? each).join(" and ")}.`),
    after && row("Only after", ...step, after.withinCalls ? `, among the ${after.withinCalls} calls before` : ", earlier in the run"),
    approval && row("An approval", approvalTerms(approval)),
    labels && row("Labels the run", joined(labels.add, "and")),
    failurePolicy === "ignore" && row("Faults", "A condition that cannot be evaluated does not count as met."),
    presetId && row("Made from", place(context, address("presets", presetId), said(presetId))),
    presetParameters && row("Chosen for it", Object.entries(presetParameters).map(([name, value]) =>
      el("div", {}, code(name), ": ", Array.isArray(value) ? joined(value, "and") : code(value)))));
}

/** Examples as they stand in the `tree` of the policy, so that nothing in them is changed. */
export function examples(tree) {
  const found = exact.member(tree, "examples")?.items ?? [];
  if (!found.length) return el("p.hint", {}, "It has no examples.");
  const list = el("ul.examples", { "aria-label": "Examples" }, found.slice(0, SHOWN).map(example));
  const more = el("button.quiet", {
    type: "button", hidden: found.length <= SHOWN,
    onclick() {
      list.append(...found.slice(SHOWN).map(example));
      more.remove();
    },
  }, `Show all ${found.length} examples`);
  return el("div", {}, list, more);
}

function example(each) {
  const matches = exact.member(each, "match")?.text === "true";
  const tool = exact.member(each, "toolName")?.value;
  const members = each.members.filter(([name]) => !["match", "toolName", "about"].includes(name));
  const about = exact.member(each, "about")?.value;
  const isPayload = members.length === 1 && members[0][0] === "inputPayload";
  return el("li", {},
    el("p.line", {},
      el(`span.note.${matches ? "block" : "good"}`, {}, matches ? "Matches" : "Does not match"),
      tool !== undefined && el("strong", {}, said(tool)),
      about !== undefined && el("span", {}, said(about))),
    members.length > 0 && exact.show(isPayload ? members[0][1] : { kind: "object", members }));
}
