// What the pane of the approvals room shows when there is no approval in it.

import { el } from "../dom.js";
import { said } from "../text.js";

export function missing(approvalId) {
  return [
    el("h2", { id: "subject", tabIndex: -1 }, "This approval is not here"),
    el("p", {}, "No approval has the id ", el("code", {}, said(approvalId)), "."),
    el("p.hint", {}, "The link may be cut short or mistyped, or it belongs to another organisation than yours.")];
}

/** `view` is the one that has none. */
export function empty(view) {
  return el("div.nothing", { "data-view": view },
    el("img", { src: "/console/icon.svg", alt: "", width: 56, height: 56 }),
    el("h2", { id: "subject", tabIndex: -1 }, view === "pending" ? "All clear" : "Nothing here yet"),
    el("p.hint", {}, view === "pending"
      ? "No agent waits for you. New requests appear here by themselves."
      : "Approvals that were resolved appear here."));
}
