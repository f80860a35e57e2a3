// A decision on its way: it can be taken back for five seconds, then it is sent; sooner when the reviewer says so, decides
// something else, or leaves. Knows nothing of lists and panes.

import { el } from "../dom.js";
import { said } from "../text.js";

const SECONDS = 5;
/** A second click within this time was meant for the button that was there before. */
const GRACE = 700;

/**
 * `deliver(approvalId, decision, leaving)` sends one and throws what went wrong; `onchange()` when one begins or ends
 * to wait; `onsent(decision, failures)` when all of one was sent, `failures` being `{approvalId, error}`;
 * `onback(decision)` when it was taken back. A decision is `{verb, reason, grant, ids, title, approval}`.
 */
export function makeSending({ deliver, onchange, onsent, onback }) {
  let waiting = null;
  let timer = null;
  let ends = 0;
  let resting = false;

  const what = el("p.sentence");
  const left = el("span.left", { "aria-hidden": "true" });
  const guarded = (act) => (event) => !(event.detail > 0 && resting) && act();
  const once = (event) => event.key === "Enter" && event.repeat && event.preventDefault();
  const send = el("button.primary", { type: "button", onclick: guarded(now), onkeydown: once }, "Send now ", el("kbd", { "aria-hidden": "true" }, "Enter"));
  const back = el("button", { type: "button", onclick: guarded(takeBack), onkeydown: once }, "Take back ", el("kbd", { "aria-hidden": "true" }, "Esc"));
  const node = el("section.sending", { "aria-label": "On its way", hidden: true }, what, el("div.buttons", {}, back, send, left));

  /** A decision begins to wait; one that waited before is sent. */
  function hold(decision) {
    now();
    waiting = decision;
    ends = performance.now() + SECONDS * 1000;
    node.dataset.verb = decision.verb;
    what.replaceChildren(decision.verb === "approve" ? "Approving" : "Rejecting",
      decision.ids.length > 1 ? ` ${decision.ids.length} calls: ` : ": ", decision.title);
    node.hidden = false;
    resting = true;
    mark();
    setTimeout(() => { resting = false; mark(); }, GRACE);
    tick();
    onchange();
    send.focus({ preventScroll: true });
  }

  function mark() {
    for (const button of [send, back]) button.setAttribute("aria-disabled", String(resting));
  }

  function tick() {
    const rest = ends - performance.now();
    if (rest <= 0) return now();
    left.textContent = `sent in ${Math.ceil(rest / 1000)} s`;
    timer = setTimeout(tick, Math.min(rest, 250));
    return undefined;
  }

  function end() {
    clearTimeout(timer);
    const decision = waiting;
    waiting = null;
    node.hidden = true;
    return decision;
  }

  /** Sends what waits, one after the other; at once when the page is about to go. */
  async function now({ leaving = false } = {}) {
    const decision = end();
    if (!decision) return;
    const failures = [];
    const one = (approvalId) => deliver(approvalId, decision, leaving).catch((error) => failures.push({ approvalId, error }));
    if (leaving) await Promise.all(decision.ids.map(one));
    else {
      onchange(decision);
      for (const approvalId of decision.ids) await one(approvalId);
    }
    onsent(decision, failures);
  }

  function takeBack() {
    const decision = end();
    if (decision) onback(decision);
  }

  return {
    node, hold, now, takeBack,
    /** True: this one waits to be sent. */
    holds: (approvalId) => Boolean(waiting?.ids.includes(approvalId)),
    get active() {
      return waiting !== null;
    },
    /** Somebody else was faster: it is not sent any more. */
    drop(approvalId) {
      if (!waiting) return;
      waiting.ids = waiting.ids.filter((each) => each !== approvalId);
      if (!waiting.ids.length) {
        end();
        onchange();
      }
    },
  };
}

/** "payments.send of clerk", or "3 × payments.send of clerk", as nodes. */
export function named({ ids, approval }, count = ids.length) {
  return [count > 1 && `${count} × `, said(approval.toolName), " of ", said(approval.agentId)];
}
