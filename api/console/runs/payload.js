// JSON under a heading, never cut without a sign.

import { el } from "../dom.js";
import * as exact from "../exact.js";

/** `tree` is what `exact.read` gives; null shows `gone`. */
export function payloadOf(title, tree, gone = "null") {
  if (tree.text === "null") return el("section", {}, el("h3", {}, title), el("p.hint", {}, gone));
  const text = exact.write(tree);
  const box = el("div.payload", { tabIndex: 0, role: "region", "aria-label": title }, exact.show(tree));
  const lines = text.split("\n").length;
  const whole = el("button.link", {
    type: "button", "aria-expanded": "false",
    onclick() {
      const open = box.classList.toggle("whole");
      whole.setAttribute("aria-expanded", String(open));
      whole.textContent = open ? "Show less" : `Show all ${text.length.toLocaleString("en")} characters`;
    },
  }, `Show all ${text.length.toLocaleString("en")} characters`);
  return el("section", {}, el("div.titled", {}, el("h3", {}, title), (lines > 18 || text.length > 1500) && whole), box);
}
