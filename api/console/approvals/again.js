// The terms of a grant, beside an approval: the same call again, how often and how long. Knows nothing of approvals.

import { el } from "../dom.js";

/** `onchange()` when it is switched on or off. */
export function makeAgain(onchange) {
  const on = el("input", { id: "again", type: "checkbox", "aria-controls": "again-terms", onchange: draw });
  const scope = el("select", { "aria-label": "Where" }, el("option", { value: "run" }, "in this run"), el("option", { value: "agent" }, "in every run of this agent"));
  const number = (name, max) => el("input", { type: "number", min: 1, max, step: 1, required: true, "aria-label": name });
  const calls = number("Calls at most", 100);
  const minutes = number("Minutes at most", 1440);
  const terms = el("div.terms", { id: "again-terms", hidden: true },
    scope, "at most", calls, "calls in", minutes, "minutes",
    el("p.hint", {}, "Only with exactly these arguments, and never past a policy that blocks. It can be revoked under Grants."));
  const node = el("div.again", { role: "group", "aria-label": "The same call again" },
    el("label.together", { htmlFor: "again" }, on, el("span", {}, "Approve and allow the same call again")), terms);

  function draw() {
    terms.hidden = !on.checked;
    onchange();
  }

  return {
    node,
    /** For another approval; `may` is false where several must approve. */
    begin(may) {
      on.checked = false;
      node.hidden = !may;
      [scope.value, calls.value, minutes.value] = ["run", 5, 60];
      draw();
    },
    get on() {
      return on.checked && !node.hidden;
    },
    /** What to send; null: nothing is granted. Undefined where it cannot be sent so, which the fields say. */
    terms() {
      if (!this.on) return null;
      if (![calls, minutes].every((each) => each.reportValidity())) return undefined;
      return { scope: scope.value, calls: calls.valueAsNumber, minutes: minutes.valueAsNumber };
    },
  };
}
