// The policies room: a list, and below `/policies/<policyId>` one policy: what it does in words, its examples, its history;
// for reviewers calls to try; for admins its buttons, and with `?edit` its text (a new one's at `/policies?new`).

import { el, when } from "../dom.js";
import * as exact from "../exact.js";
import { listing } from "../listing.js";
import { address, page, place } from "../page.js";
import { actions } from "../policies/actions.js";
import { withId, written } from "../policies/diff.js";
import { editor } from "../policies/editor.js";
import { history } from "../policies/history.js";
import { trial } from "../policies/trial.js";
import { ACTIONS, conditions, effect, examples, extras, idle, marks } from "../policies/words.js";
import { upgrade } from "../presets/upgrade.js";
import { payloadOf } from "../runs/payload.js";
import { said } from "../text.js";

const STATUSES = [["", "All"], ["enforced", "In force"], ["shadow", "Shadow"], ["disabled", "Switched off"], ["waiting", "Waits for settings"]];

export function open(root, context) {
  const stop = new AbortController();
  const query = new URLSearchParams(location.search);
  const isAdmin = context.user.role === "admin";
  if (isAdmin && !context.place && query.has("new")) openNew(root, context, stop.signal);
  else if (isAdmin && context.place && query.has("edit")) openEditor(root, context, stop.signal);
  else if (context.place) openOne(root, context, stop.signal);
  else openList(root, context, stop.signal);
  return () => stop.abort();
}

function openList(root, context, signal) {
  const policies = listing(context, {
    path: "/v1/policies", topics: ["policy"], signal, label: "Policies",
    filters: [
      { name: "search", label: "Search" },
      { name: "action", label: "What it does", options: [["", "All"], ...Object.entries(ACTIONS)] },
      { name: "status", label: "Status", options: STATUSES },
    ],
    empty: "No policy is like that.",
    row: (policy) => ({ key: policy.policyId, mark: JSON.stringify(policy), node: () => row(context, policy) }),
  });
  page(root, { title: "Policies", moveFocus: context.moveFocus },
    el("p.hint", {}, "What is blocked, held for a person, warned of or allowed. Of all that match, the strongest decides."),
    context.user.role === "admin" && el("p.links", {}, place(context, "/policies?new", "New policy")),
    policies.node);
}

const NEW = `{"name": "", "description": "", "action": "require_approval", "enabled": true, "matchConditions": [
  {"field": "toolName", "operator": "equals", "value": ""}], "examples": []}`;

function openNew(root, context, signal) {
  page(root, { title: "New policy", moveFocus: context.moveFocus, back: place(context, "/policies", "← All policies") },
    editor(context, { policyId: null, original: exact.read(NEW), etag: null, signal }));
}

async function openEditor(root, context, signal) {
  const { service, place: policyId } = context;
  const home = address("policies", policyId);
  const content = el("div.one");
  page(root, { title: ["Edit ", said(policyId)], moveFocus: context.moveFocus, back: place(context, home, "← The policy") }, content);
  try {
    const found = await service.find(`/v1/policies/${encodeURIComponent(policyId)}`, signal);
    content.replaceChildren(...(found
      ? editor(context, { policyId, original: written(exact.read(found.text)), etag: found.etag, signal, reload: () => context.go(home) })
      : [el("p", {}, "There is no such policy.")]));
  } catch (error) {
    if (!signal.aborted) content.replaceChildren(el("p.problem", { role: "alert" }, service.isAway(error) ? "The service cannot be reached. Load this page again in a moment." : error.message));
  }
}

function row(context, policy) {
  return place(context, address("policies", policy.policyId),
    el("strong.subject", {}, said(policy.name)),
    el("span.time", {}, when(policy.updatedAt)),
    el("span.about", {}, said(policy.description?.trim() || policy.policyId)),
    el("span.marks", {}, marks(policy)));
}

function openOne(root, context, signal) {
  const { service, place: policyId } = context;
  const path = `/v1/policies/${encodeURIComponent(policyId)}`;
  const content = el("div.one");
  const heading = page(root, { title: said(policyId), moveFocus: context.moveFocus, back: place(context, "/policies", "← All policies") }, content);
  let known = null;
  let newest = null;
  let trying = null;

  async function load() {
    const [now, past] = await Promise.all([
      service.find(path, signal),
      service.find(`${path}/versions`, signal),
    ]);
    const offer = now?.value.presetId ? await service.find(`${path}/preset-upgrade`, signal) : null;
    const mark = `${now?.text} ${past?.text} ${offer?.text}`;
    if (mark === known) return;
    known = mark;
    draw(now && { value: now.value, etag: now.etag, tree: exact.read(now.text) }, past, offer);
  }

  function draw(current, past, offer) {
    newest = current;
    if (current) heading.replaceChildren(said(current.value.name));
    const versions = past && history(context, { current, text: past.text, done: refresh });
    if (!current) {
      content.replaceChildren(el("p", {}, past ? "This policy was deleted. Its versions stay." : "There is no such policy."), versions ?? "");
      return;
    }
    content.replaceChildren(el("p.line", {}, marks(current.value), el("code", {}, policyId),
      el("span.time", {}, `version ${current.value.version}, `, when(current.value.updatedAt))),
    ...(context.user.role === "admin" ? [actions(context, { policyId, current, done: refresh, signal })] : []),
    (offer && upgrade(context, { policyId, offer: offer.text, etag: offer.etag, done: refresh })) ?? "",
    ...body(context, current), tried(), versions ?? "");
  }

  /** Made once, so that what was written stays when the policy changes. */
  function tried() {
    if (context.user.role === "viewer") return "";
    trying ??= trial(context, {
      // One that waits for settings cannot be tried as a draft; one that is switched off can.
      policy: () => (newest.value.missingSettings ? null : withId(policyId, written(newest.tree))),
      isMine: (each) => each.policyId === policyId,
      examples: exact.member(newest.tree, "examples")?.items ?? [],
    });
    return trying;
  }

  const refresh = context.keepFresh(load, ["policy"], signal);
}

function body(context, { value: policy, tree }) {
  const held = idle(policy);
  return [
    held && el("p.missing", {}, held),
    policy.description && el("p.description", {}, said(policy.description.trim())),
    el("section", {}, el("h2", {}, "What it does"), el("p", {}, effect(policy)), conditions(policy.matchConditions), extras(policy, context)),
    el("section", {}, el("h2", {}, "Examples"), examples(tree)),
    el("section", {}, el("details", {}, el("summary", {}, "As JSON"), payloadOf("Policy", written(tree)))),
  ].filter(Boolean);
}
