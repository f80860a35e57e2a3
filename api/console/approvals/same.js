// Whether calls that look alike in the list are the same to the letter: their payloads are read and compared, with who
// they are made for, task and labels of their runs, and what matched and why. Only what is the same is decided together.
// An evaluation of AuthZEN is its subject and action, too, which stand in its context: that `alice` may read does not mean
// that `bob` may delete.

import { el, when } from "../dom.js";
import * as exact from "../exact.js";
import { said } from "../text.js";

/** As many of a group are compared; the others are decided after these. */
const MOST = 50;
/** Members of the context of an AuthZEN evaluation. */
const EVALUATED = ["subject", "action", "context"];

/** What has to be the same, of the answer of GET /v1/approvals/:id; null when the payload is no longer kept. */
function sameness(text) {
  const tree = exact.read(text);
  const part = (name) => exact.member(tree, name);
  if (part("inputPayload")?.kind !== "object") return null;
  const asserted = part("asserted");
  const context = exact.member(asserted, "agentContext");
  const evaluated = EVALUATED.every((name) => context?.kind === "object" && exact.member(context, name));
  const policies = part("matchedPolicies").items.flatMap((each) => [exact.member(each, "policyId"), exact.member(each, "reason")]);
  const parts = [part("inputPayload"), part("user"), part("delegationChain"), evaluated && context, exact.member(asserted, "task"), part("labels"), ...policies];
  return JSON.stringify(parts.map((each) => each && exact.write(each)));
}

/**
 * `current()` is the id of the approval in view; `ontold(count)` when it is known how many are the same as it, and
 * `onlearnt()` when payloads were read that part or join groups.
 */
export function makeSame({ reader, current, ontold, onlearnt }) {
  const payloads = new Map();
  let ids = [];
  let busy = false;
  const node = el("details.same", { hidden: true });

  function draw(members) {
    const payload = payloads.get(current());
    const found = payload ? members.filter((each) => payloads.get(each.approvalId) === payload) : [];
    const now = found.length > 1 ? found.map((each) => each.approvalId) : [];
    if (now.length && now.join() !== ids.join()) {
      node.replaceChildren(
        el("summary", {}, `${found.length} calls wait that are the same to the letter`),
        el("ul", {}, found.map((each) => el("li", {}, "asked ", when(each.requestedAt), " in ", said(each.runId)))));
    }
    ids = now;
    node.hidden = !ids.length;
    ontold(Math.max(ids.length, 1));
  }

  /** Reads those of `members`, the row of the one in view, that were not read yet. */
  async function compare(members = []) {
    const some = members.slice(0, MOST);
    const unread = some.length > 1 ? some.map((each) => each.approvalId).filter((each) => !payloads.has(each)) : [];
    draw(unread.length ? [] : some);
    if (!unread.length || busy) return;
    busy = true;
    try {
      for (const each of unread) {
        const { text } = await reader.find(each, false);
        payloads.set(each, text ? sameness(text) : null);
      }
    } catch {
      return; // It is tried again when the list is drawn again; until then each is decided by itself.
    } finally {
      busy = false;
    }
    onlearnt();
  }

  return {
    node, payloads, compare,
    /** Those that are the same as this one, it among them. */
    ids: (approvalId) => (ids.includes(approvalId) ? [...ids] : [approvalId]),
  };
}
