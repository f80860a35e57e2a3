// What may be long, in a box that opens: nothing is cut without a button that says how much there is.

import { el } from "../dom.js";
import * as exact from "../exact.js";

/** Characters that are shown whole, whatever the width. */
const SHORT = 400;
const looks = new WeakMap();
const sizes = new ResizeObserver((entries) => entries.forEach(({ target }) => looks.get(target)()));

/** The button that opens `box`, whose height is bounded; it is there while something of the box is not in sight. */
export function foldOf(box, length) {
  const all = `Show all ${length.toLocaleString("en")} characters`;
  const button = el("button.link.fold", {
    type: "button", "aria-expanded": "false", hidden: true,
    onclick() {
      const open = box.classList.toggle("whole");
      button.setAttribute("aria-expanded", String(open));
      button.textContent = open ? "Show less" : all;
    },
  }, all);
  looks.set(box, () => {
    const cut = box.scrollHeight > box.clientHeight + 1;
    box.classList.toggle("cut", cut);
    button.hidden = !cut && !box.classList.contains("whole");
  });
  sizes.observe(box);
  return button;
}

/** A text, or what else is `length` characters long, in its place in a page. */
export function folding(content, length) {
  if (length <= SHORT) return content;
  const box = el("div.folded", {}, content);
  return [box, foldOf(box, length)];
}

/** JSON under a heading. `tree` is what `exact.read` gives; null shows `gone`. */
export function payloadOf(title, tree, gone = "null") {
  if (tree.text === "null") return el("section", {}, el("h3", {}, title), el("p.hint", {}, gone));
  const box = el("div.payload", { tabIndex: 0, role: "region", "aria-label": title }, exact.show(tree));
  return el("section", {}, el("div.titled", {}, el("h3", {}, title), foldOf(box, exact.write(tree).length)), box);
}
