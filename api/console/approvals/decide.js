// The reason and the two buttons. A key only picks the answer and goes to the reason; Enter there decides, so that one
// slip of a finger decides nothing.

import { el } from "../dom.js";

/** After a decision the buttons wait this long for the next one: a second click was meant for the one before. */
const GRACE = 700;
const LONGEST_REASON = 2000;

/** `onresolve(verb, reason)` when the reviewer has decided; verb is `approve` or `reject`. */
export function makeDecision(onresolve) {
  let armed = null;
  let coming = false; // another approval is on its way into view
  let busy = false; // a decision is on its way
  let resting = false; // the buttons wait, after one that went well

  const reason = el("textarea", {
    id: "reason", rows: 2, maxLength: LONGEST_REASON, "aria-describedby": "decide-hint",
    placeholder: "Optional. The agent and the record will have it.",
    onkeydown(event) {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing || !armed) return;
      event.preventDefault();
      if (!event.repeat) decide(armed);
    },
    onblur: () => arm(null),
  });
  const buttons = {
    approve: el("button.approve", { type: "button", onclick: () => !resting && decide("approve") }, "Approve ", el("kbd", { "aria-hidden": "true" }, "a")),
    reject: el("button.reject", { type: "button", onclick: () => !resting && decide("reject") }, "Reject ", el("kbd", { "aria-hidden": "true" }, "r")),
  };
  buttons.approve.setAttribute("aria-keyshortcuts", "a");
  buttons.reject.setAttribute("aria-keyshortcuts", "r");
  const hint = el("p.hint", { id: "decide-hint", role: "status" });
  const node = el("form.decide", { "aria-label": "Your decision", onsubmit: (event) => event.preventDefault() },
    el("label", { htmlFor: "reason" }, "Reason"), reason, el("div.buttons", {}, buttons.approve, buttons.reject, hint));

  function arm(verb) {
    armed = verb;
    for (const [name, button] of Object.entries(buttons)) button.classList.toggle("armed", name === verb);
    hint.textContent = verb ? `Enter ${verb === "approve" ? "approves" : "rejects"}, Esc leaves.` : "";
  }

  function mark() {
    // Not `disabled`, which would take the focus away.
    for (const button of Object.values(buttons)) button.setAttribute("aria-disabled", String(coming || busy || resting));
    reason.readOnly = busy;
  }

  function decide(verb) {
    if (!coming && !busy) onresolve(verb, reason.value.trim());
  }

  return {
    node,
    get reason() {
      return reason.value;
    },
    /** Another approval is in view, with what was typed for it before. */
    begin(draft) {
      reason.value = draft;
      arm(null);
    },
    /** The key for a verb was pressed: to the reason, where Enter decides. */
    choose(verb) {
      reason.focus();
      arm(verb);
    },
    setComing(on) {
      coming = on;
      mark();
    },
    /** While a decision is on its way nothing else can be decided. */
    begun() {
      busy = true;
      mark();
    },
    ended(well) {
      busy = false;
      resting = well;
      mark();
      if (well) setTimeout(() => { resting = false; mark(); }, GRACE);
    },
  };
}
