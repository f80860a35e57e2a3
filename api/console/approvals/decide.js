// The reason and the two buttons, under what they decide on. A key only picks the answer and goes to the reason; Enter
// there decides, so that one slip of a finger decides nothing.

import { el } from "../dom.js";
import { makeAgain } from "./again.js";

/** After a decision the buttons wait this long for the next one: a second click was meant for the one before. And
 * where there are more to decide than a moment ago, so does Enter. */
const GRACE = 700;
/** Calls that come so close on each other, for so long, leave no time for the buttons: each is then decided by itself. */
const [CLOSE, LONG] = [2 * GRACE, 4 * GRACE];
const LONGEST_REASON = 2000;

/** `onresolve(verb, reason, all, grant)` when the reviewer has decided; verb is `approve` or `reject`, `all` whether the
 * calls that are the same are decided too, `grant` the terms by which the same call is allowed again. */
export function makeDecision(onresolve) {
  let armed = null;
  let coming = false; // another approval is on its way into view
  let busy = false; // a decision is on its way
  let resting = false; // the buttons wait, after one that went well
  let grown = 0; // a timer, while the reviewer may not have seen that more are the same
  let [since, last] = [0, -CLOSE]; // from when to when more have come without a pause
  let halted = false; // a halt covers the call
  let count = 1; // how many calls are the same

  const title = el("p.deciding");
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
  const words = { approve: el("span", {}, "Approve"), reject: el("span", {}, "Reject") };
  const buttons = {
    approve: el("button.approve", { type: "button", onclick: () => !resting && decide("approve") }, words.approve, " ", el("kbd", { "aria-hidden": "true" }, "a")),
    reject: el("button.reject", { type: "button", onclick: () => !resting && decide("reject") }, words.reject, " ", el("kbd", { "aria-hidden": "true" }, "r")),
  };
  buttons.approve.setAttribute("aria-keyshortcuts", "a");
  buttons.reject.setAttribute("aria-keyshortcuts", "r");
  const hint = el("p.hint", { id: "decide-hint", role: "status" });
  const why = el("p.off", { id: "decide-off", role: "status", hidden: true });
  const together = el("input", { id: "together", type: "checkbox", onchange: () => name() });
  const again = makeAgain(() => name());
  const allOf = el("label.together", { htmlFor: "together", hidden: true }, together, el("span"));
  const node = el("form", { "aria-label": "Your decision", onsubmit: (event) => event.preventDefault() },
    title, why, el("label", { htmlFor: "reason" }, "Reason"), reason, allOf, again.node, el("div.buttons", {}, buttons.approve, buttons.reject, hint));

  const isOff = (verb) => coming || busy || grown > 0 || (halted && verb === "approve");
  const all = () => count > 1 && together.checked;

  function name() {
    words.approve.textContent = `${all() ? `Approve all ${count}` : "Approve"}${again.on ? ", and again" : ""}`;
    words.reject.textContent = all() ? `Reject all ${count}` : "Reject";
    arm(armed);
  }

  function arm(verb) {
    armed = verb;
    for (const [each, button] of Object.entries(buttons)) button.classList.toggle("armed", each === verb);
    hint.textContent = verb ? `Enter ${verb === "approve" ? "approves" : "rejects"}${all() ? ` all ${count}` : ""}, Esc leaves.` : "";
  }

  function mark() {
    // Not `disabled`, which would take the focus away.
    for (const [verb, button] of Object.entries(buttons)) {
      button.setAttribute("aria-disabled", String(resting || isOff(verb)));
    }
    reason.readOnly = busy;
  }

  function grow(now) {
    if (now - last > CLOSE) since = now;
    last = now;
    together.checked = now - since < LONG;
    if (!together.checked) return;
    clearTimeout(grown);
    grown = setTimeout(() => { grown = 0; mark(); }, GRACE);
  }

  function decide(verb) {
    if (isOff(verb)) return;
    const grant = verb === "approve" ? again.terms() : null;
    if (grant !== undefined) onresolve(verb, reason.value.trim(), all(), grant);
  }

  return {
    node,
    get reason() {
      return reason.value;
    },
    /** Another approval is in view, with what was typed for it before; `named` is a node with its title, `granting`
     * whether the same call may be allowed again. */
    begin(draft, named, granting) {
      reason.value = draft;
      title.replaceChildren(named);
      together.checked = true;
      again.begin(granting);
      last = -CLOSE;
      this.setCount(1);
      arm(null);
    },
    /** How many calls are known to be the same, this one among them. */
    setCount(number) {
      if (number > count && together.checked) grow(performance.now());
      count = number;
      mark();
      allOf.hidden = count < 2;
      allOf.lastChild.textContent = `Decide all ${count} identical calls`;
      name();
    },
    /** Why it cannot be approved now, as nodes; null when it can. */
    setHalted(nodes) {
      halted = nodes !== null;
      why.hidden = !halted;
      why.replaceChildren(el("span", {}, nodes ?? []));
      if (halted && armed === "approve") arm(null);
      mark();
    },
    /** The key for a verb was pressed: to the reason, where Enter decides. */
    choose(verb) {
      if (halted && verb === "approve") return;
      reason.focus();
      arm(verb);
    },
    focus: (verb) => buttons[verb].focus({ preventScroll: true }),
    setComing(on) {
      coming = on;
      mark();
    },
    /** While a decision is being sent nothing else can be decided. */
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
