// The keys of the approvals room. In a field letters are letters, and only Escape leaves it.

import { el } from "../dom.js";

const KEYS = [[["j", "k"], "next, previous"], [["a", "r"], "approve, reject"], [["Enter"], "confirms, sends"], [["Esc"], "takes back, leaves"], [["v"], "JSON"]];

export function keyHints() {
  return el("p.keys", {}, KEYS.map(([keys, what]) => el("span", {}, keys.map((key) => el("kbd", {}, key)), ` ${what}`)));
}

/** The handler of keys; in `list` arrows walk too. */
export function keysOf({ list, sending, leave, move, decide, turn }) {
  return (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || document.querySelector("dialog[open]")) return;
    if (event.key === "Escape") {
      if (sending.active) sending.takeBack();
      else leave();
      return;
    }
    if (event.target.matches("textarea, input, select")) return;
    const step = { j: 1, k: -1, ...(list.contains(event.target) ? { ArrowDown: 1, ArrowUp: -1 } : {}) }[event.key];
    const sends = event.key === "Enter" && sending.active && !event.target.matches("button, a, summary");
    const verb = { a: "approve", r: "reject" }[event.key];
    if (step) move(step);
    else if (event.repeat) return;
    else if (sends) sending.now();
    else if (verb) decide(verb);
    else if (event.key === "v") turn();
    else return;
    event.preventDefault();
  };
}
