// The changes room: what an admin asked for and another one must agree to. Below `/changes/<id>` one of them, with what
// it would do, to agree to or to reject.

import { el, when } from "../dom.js";
import * as exact from "../exact.js";
import { listing } from "../listing.js";
import { address, attempt, field, page, place } from "../page.js";
import { foldOf } from "../runs/payload.js";
import { said } from "../text.js";

const STATUSES = [["pending", "Waiting"], ["applied", "Applied"], ["rejected", "Rejected"], ["", "All"]];
const TONE = { pending: "warn", applied: "allow", rejected: "block", failed: "block", stale: "block" };
const DONE = { pending: "waits", approved: "is being applied", stale: "stale", expired: "expired" };

export function open(root, context) {
  const stop = new AbortController();
  if (context.place) one(root, context, stop.signal);
  else openList(root, context, stop.signal);
  return () => stop.abort();
}

function openList(root, context, signal) {
  const found = listing(context, {
    path: "/v1/changes", topics: ["change"], signal, label: "Changes",
    filters: [{ name: "status", label: "Which", options: STATUSES }], usual: { status: "pending" },
    empty: "None. Where the organisation’s settings ask for two, changes of policies, people and settings wait here for another admin.",
    row: (each) => ({ key: each.changeId, mark: JSON.stringify(each), node: () => rowOf(context, each) }),
  });
  page(root, { title: "Changes", moveFocus: context.moveFocus },
    el("p.hint", {}, "What one admin asked for, and another must agree to. A halt never waits."), found.node);
}

const status = (each) => el(`span.note.${TONE[each.status] ?? "plain"}`, {}, DONE[each.status] ?? each.status);

function rowOf(context, each) {
  return place(context, address("changes", each.changeId),
    el("strong.subject", {}, said(each.subject || "everything")), el("span.time", {}, when(each.requestedAt)),
    el("span.about", {}, el("code", {}, said(each.operation)), " asked by ", said(each.requestedBy)), el("span.marks", {}, status(each)));
}

function one(root, context, signal) {
  const { service, user } = context;
  const id = context.place;
  const path = `/v1/changes/${encodeURIComponent(id)}`;
  const content = el("div.change");
  const heading = page(root, { title: "A change", moveFocus: context.moveFocus, back: place(context, "/changes", "← All changes") }, content);
  let text = null;

  async function load() {
    const found = await service.find(path, signal);
    if (!found) return content.replaceChildren(el("p.empty", {}, "There is no such change."));
    if (found.text === text) return undefined;
    text = found.text;
    draw(found.value, exact.read(text));
    return undefined;
  }

  function draw(change, tree) {
    heading.replaceChildren(said(change.summary ?? change.operation), ": ", said(change.subject || "everything"));
    const part = (name) => exact.member(tree, name);
    // As children of one node, which leaves out what is not there.
    content.replaceChildren(el("div", {},
      el("p", {}, status(change), " Asked by ", said(change.requestedBy === user.email ? "you" : change.requestedBy), " ", when(change.requestedAt),
        change.status === "pending" && [", expires ", when(change.expiresAt)],
        change.resolvedBy && ["; ", said(change.resolvedBy), " ", when(change.resolvedAt)], "."),
      change.reason && el("blockquote", {}, said(change.reason)),
      change.problem && el("p.problem", {}, said(change.problem)),
      change.edits && el("dl.differences", { "aria-label": "What it would do" }, change.edits.map(edit)),
      !change.edits && part("before") && part("before").text !== "null" && el("section", { "aria-label": "As it is" }, el("h2", {}, "As it is"), exact.show(part("before"))),
      !change.edits && part("request") && part("request").text !== "null" && el("section", { "aria-label": "What is asked" }, el("h2", {}, "What is asked"), exact.show(part("request"))),
      change.status === "pending" && decision(change)));
  }

  function decision(change) {
    const reason = el("textarea", { id: "change-reason", rows: 2, maxLength: 2000, placeholder: "Optional. The record will have it." });
    const send = (decided, done) => attempt(context, async () => {
      await service.request("POST", `${path}/resolve`, { decision: decided, ...(reason.value.trim() && { reason: reason.value.trim() }) }, signal);
    }, done).finally(load);
    const off = change.mayNotApprove;
    return el("form", { "aria-label": "Your decision", onsubmit: (event) => event.preventDefault() },
      field("Reason", reason), off && el("p.off", {}, "Agreeing is off: ", said(off), "."),
      el("div.buttons", {},
        !off && el("button.approve", { type: "button", onclick: () => send("approved", ["Applied: ", said(change.subject), "."]) }, "Agree and apply"),
        el("button.reject", { type: "button", onclick: () => send("rejected", ["Rejected: ", said(change.subject), "."]) }, off ? "Withdraw" : "Reject")));
  }

  context.keepFresh(load, ["change"], signal);
}

function edit({ change, path, diff }) {
  const box = el("dd", { tabIndex: 0 }, el("code", {}, diff.split("\n").map(lineOf)));
  return [
    el("dt.file", {}, `${{ created: "New file", deleted: "Deleted file", updated: "Changed file" }[change]} `, said(path), " ", foldOf(box, diff.length)),
    box,
  ];
}

function lineOf(line) {
  const kind = { "+": "ins", "-": "del" }[line[0]];
  return el(kind ?? "span", {}, said(line || " "));
}
