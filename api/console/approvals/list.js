// The list at the side of the approvals room: one button a row, which is one approval or several of the same call, the
// selected one marked. Nodes are kept and moved, never made anew, so that focus and scrolling stay when it is refreshed.

import { arrange, el, when } from "../dom.js";
import { said, titleOf } from "../text.js";
import { STATUS, isUnreached, standingMark } from "./words.js";

/** `onchoose(approvalId)` when one is clicked or entered; `onmore()` when the rest is asked for, `onfirst()` the beginning. */
export function makeList(onchoose, onmore, onfirst) {
  const kept = new Map();
  const items = el("ul.items", { "aria-label": "Approvals" });
  const foot = el("div.foot");
  const more = el("button.quiet", { type: "button", onclick: onmore });
  const first = el("button.quiet", { type: "button", onclick: onfirst }, "Back to the first");
  const node = el("div.list", {}, items, foot);

  function row({ head, members }, focusedId, showStatus) {
    const linked = members.some((each) => each.approvalId === focusedId);
    const mark = `${head.status}|${showStatus}|${linked}|${isUnreached(head)}|${members.length}|${standingMark(head)}`;
    const known = kept.get(head.approvalId);
    if (known?.mark === mark) return known;
    const button = el("button", { type: "button", onclick: () => onchoose(head.approvalId) },
      el("strong.sentence", {}, members.length > 1 && [el("span.times", { title: "identical calls" }, `${members.length} ×`), " "], titleOf(head)),
      el("span.agent", {}, said(head.agentId)),
      el("span.time", {}, when(head.requestedAt), head.status === "pending" && head.expiresAt && [", expires ", when(head.expiresAt)]),
      el("span.policy", {}, head.about && [el("span.tool", {}, said(head.toolName)), " · "], said(head.policyName ?? "")),
      showStatus ? el(`span.status.${head.status}`, {}, STATUS[head.status])
        : standingMark(head) ? el("span.linked", {}, standingMark(head))
        : linked ? el("span.linked", {}, "from your link")
          : isUnreached(head) && el("span.linked", { title: "No channel has told anybody, and nobody has opened it." }, "reached nobody"));
    const made = { mark, button, li: el("li", {}, button) };
    if (known) {
      // The old node stays in place: it may have the focus.
      known.button.replaceChildren(...button.childNodes);
      known.mark = mark;
      return known;
    }
    return made;
  }

  /** Shows these, which `before` and `rest` others surround; `loaded` is how far they go, `total` how many there are in all. */
  function draw({ rows, before, rest, loaded, total, selected, focusedId, showStatus, empty }) {
    const made = rows.map((each) => {
      const one = row(each, focusedId, showStatus);
      kept.set(each.head.approvalId, one);
      return one;
    });
    const shown = new Set(rows.map((each) => each.head.approvalId));
    for (const approvalId of kept.keys()) if (!shown.has(approvalId)) kept.delete(approvalId);
    arrange(items, made.map((one) => one.li));
    items.hidden = !made.length;
    mark(selected);
    const text = rest > 0 ? `Show more (${loaded.toLocaleString("en")} of ${total.toLocaleString("en")})` : "";
    if (more.textContent !== text) more.textContent = text;
    arrange(foot, [...(before > 0 ? [first] : []), ...(rest > 0 ? [more] : []), ...(made.length ? [] : [empty])]);
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
