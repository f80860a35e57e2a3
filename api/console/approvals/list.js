// The list at the side of the approvals room: one button an approval, the selected one marked. Nodes are kept and moved,
// never made anew, so that focus and scrolling stay when the list is refreshed.

import { arrange, el, when } from "../dom.js";
import { said } from "../text.js";
import { STATUS, isUnreached } from "./words.js";

/** `onchoose(approvalId)` when one is clicked or entered; `onmore()` when the rest is asked for. */
export function makeList(onchoose, onmore) {
  const kept = new Map();
  const items = el("ul.items", { "aria-label": "Approvals" });
  const foot = el("div.foot");
  const more = el("button.quiet", { type: "button", onclick: onmore });
  const node = el("div.list", {}, items, foot);

  function row(approval, focusedId, showStatus) {
    const mark = `${approval.status}|${showStatus}|${approval.approvalId === focusedId}|${isUnreached(approval)}`;
    const known = kept.get(approval.approvalId);
    if (known?.mark === mark) return known;
    const button = el("button", { type: "button", onclick: () => onchoose(approval.approvalId) },
      el("strong.tool", {}, said(approval.toolName)),
      el("span.time", {}, when(approval.requestedAt)),
      el("span.agent", {}, said(approval.agentId)),
      showStatus ? el(`span.status.${approval.status}`, {}, STATUS[approval.status])
        : approval.approvalId === focusedId ? el("span.linked", {}, "from your link")
          : isUnreached(approval) && el("span.linked", { title: "No channel has told anybody, and nobody has opened it." }, "reached nobody"),
      el("span.policy", {}, said(approval.policyName ?? "")));
    const made = { mark, button, li: el("li", {}, button) };
    if (known) {
      // The old node stays in place: it may have the focus.
      known.button.replaceChildren(...button.childNodes);
      known.mark = mark;
      return known;
    }
    return made;
  }

  /** Shows these; `total` counts those that are not loaded too. */
  function draw({ approvals, total, selected, focusedId, showStatus, empty }) {
    const rows = approvals.map((approval) => {
      const made = row(approval, focusedId, showStatus);
      kept.set(approval.approvalId, made);
      return made;
    });
    const shown = new Set(approvals.map((approval) => approval.approvalId));
    for (const approvalId of kept.keys()) if (!shown.has(approvalId)) kept.delete(approvalId);
    arrange(items, rows.map((made) => made.li));
    items.hidden = !rows.length;
    mark(selected);
    const rest = total - approvals.length;
    const text = rest > 0 ? `Show more (${approvals.length.toLocaleString("en")} of ${total.toLocaleString("en")})` : "";
    if (more.textContent !== text) more.textContent = text;
    arrange(foot, [...(rest > 0 ? [more] : []), ...(rows.length ? [] : [empty])]);
  }

  function mark(selected) {
    for (const [approvalId, { button }] of kept) {
      if (approvalId === selected) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    }
  }

  function focus(approvalId) {
    const button = kept.get(approvalId)?.button;
    button?.focus({ preventScroll: true });
    button?.scrollIntoView({ block: "nearest" });
    return Boolean(button);
  }

  return { node, draw, mark, focus, has: (approvalId) => kept.has(approvalId) };
}
