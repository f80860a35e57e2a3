// The approvals room: who waits, what exactly they want to do, approve or reject. Opened by `approvalUrl`, with
// the approval of `?approvalId=` first. The list is kept fresh by the live stream, and read again every 15 s.

import { el, json, visible, when } from "../dom.js";

const VIEWS = [["pending", "Waiting"], ["approved", "Approved"], ["rejected", "Rejected"]];
const KEYS = [["j or ↓", "next"], ["k or ↑", "previous"], ["a Enter", "approve"], ["r Enter", "reject"], ["Esc", "leave the reason"]];
const OUTCOME = { approved: "approved", rejected: "rejected", expired: "expired before anyone resolved it", cancelled: "was cancelled, since its run ended" };

export default { path: "/approvals", title: "Approvals", roles: ["reviewer", "admin"], open };

function open(root, { service, user, notice, setLive }) {
  const stop = new AbortController();
  const focused = new URLSearchParams(location.search).get("approvalId");
  let view = "pending";
  let list = [];
  let selected = focused;
  let detail = null;
  let busy = false;
  let settled = false;

  const tabs = el("div.tabs", { role: "tablist", "aria-label": "Which approvals" });
  const items = el("ul.items", { "aria-label": "Approvals" });
  const pane = el("section.pane", { "aria-live": "polite", "aria-label": "The selected approval" });
  const keys = el("p.keys", {}, KEYS.flatMap(([key, what]) => [el("kbd", {}, key), ` ${what}  `]));
  root.append(el("div.room", {}, el("aside.side", {}, el("h1", {}, "Approvals"), tabs, items, keys), pane));

  const reason = el("textarea", { id: "reason", rows: 3, maxLength: 2000, placeholder: "Why? The agent and the record will have it." });

  async function load() {
    try {
      const [fresh] = await Promise.all([
        service.request("GET", `/v1/approvals?status=${view}&limit=200`, undefined, stop.signal),
        focused && !settled ? settle() : null,
      ]);
      list = order(fresh);
      if (!selected || (!list.some((item) => item.approvalId === selected) && !detail)) selected = list[0]?.approvalId ?? null;
      drawList();
      await loadDetail();
    } catch (error) {
      if (!stop.signal.aborted && error.status !== 401) setLive(false);
    }
  }

  // A link to an approval that is resolved already opens the view where it stands.
  async function settle() {
    settled = true;
    try {
      const approval = await service.request("GET", `/v1/approvals/${encodeURIComponent(focused)}`, undefined, stop.signal);
      detail = approval;
    } catch (error) {
      if (error.status === 404) {
        notice("There is no approval with the id of this link.", "bad");
        selected = null;
      }
    }
  }

  function order(fresh) {
    const oldestFirst = view === "pending" ? [...fresh].reverse() : fresh;
    const first = oldestFirst.filter((item) => item.approvalId === focused);
    return [...first, ...oldestFirst.filter((item) => item.approvalId !== focused)];
  }

  async function loadDetail() {
    if (!selected) {
      detail = null;
      return drawPane();
    }
    const wanted = selected;
    const approval = await service.request("GET", `/v1/approvals/${encodeURIComponent(wanted)}`, undefined, stop.signal);
    if (wanted !== selected) return undefined;
    const changed = JSON.stringify(approval) !== JSON.stringify(detail) || pane.childElementCount === 0;
    const overtaken = detail?.approvalId === wanted && detail.status === "pending" && approval.status !== "pending";
    detail = approval;
    if (overtaken && !busy && approval.actor !== user.email) notice(conflict(approval), "bad");
    if (changed) drawPane();
    return undefined;
  }

  function conflict(approval) {
    const who = approval.actor ?? approval.resolvedBy;
    const text = OUTCOME[approval.status] ?? approval.status;
    return who ? `${who} has ${text} this already.` : `This ${text}.`;
  }

  function drawList() {
    tabs.replaceChildren(...VIEWS.map(([name, title]) => el("button", {
      type: "button", role: "tab", "aria-selected": String(name === view),
      onclick() { view = name; selected = null; detail = null; load(); },
    }, title, name === "pending" && view === "pending" ? ` (${list.length})` : "")));
    items.replaceChildren(...list.map((item) => el("li", {}, el("button", {
      type: "button", "aria-current": item.approvalId === selected ? "true" : undefined,
      onclick() { choose(item.approvalId); },
    },
    el("strong", {}, visible(item.toolName)), el("span.agent", {}, visible(item.agentId)),
    el("span.policy", {}, visible(item.policyName ?? "")), when(item.requestedAt)))));
    if (!list.length) {
      items.append(el("li.empty", {}, view === "pending" ? "Nothing waits for you. New requests appear here by themselves." : "None yet."));
    }
  }

  function choose(approvalId) {
    if (approvalId === selected) return;
    selected = approvalId;
    detail = null;
    reason.value = "";
    drawList();
    loadDetail().catch((error) => notice(error.message, "bad"));
  }

  function drawPane() {
    const approval = detail;
    if (!approval) {
      pane.replaceChildren(el("p.empty", {}, "Select an approval to see what the agent wants to do."));
      return;
    }
    const context = approval.agentContext ?? {};
    const pending = approval.status === "pending";
    pane.replaceChildren(
      el("header", {}, el("h2", {}, visible(approval.toolName)), el(`span.status.${approval.status}`, {}, approval.status)),
      el("p.why", {}, visible(approval.reason)),
      el("dl", {},
        row("Agent", visible(approval.agentId)),
        row("Run", visible(approval.runId)),
        row("Task", approval.runTask && visible(approval.runTask)),
        row("Goal, says the agent", context.goal && visible(String(context.goal))),
        row("Reasoning, says the agent", context.reasoning && visible(String(context.reasoning))),
        row("Asked", when(approval.requestedAt)),
        row("Expires", pending && approval.expiresAt && when(approval.expiresAt)),
        row("Resolved", approval.resolvedAt && when(approval.resolvedAt)),
        row("By", approval.actor && visible(approval.actor === approval.resolvedBy || !approval.resolvedBy
          ? approval.actor : `${approval.actor}, on behalf of ${approval.resolvedBy}`)),
        row("Decision", approval.decisionReason && visible(approval.decisionReason))),
      el("h3", {}, "The exact payload"), json(approval.inputPayload ?? {}),
      pending ? actions() : el("p.hint", {}, OUTCOME[approval.status] ? `This ${approval.status === "approved" || approval.status === "rejected" ? "was " : ""}${OUTCOME[approval.status]}.` : ""),
    );
  }

  function row(name, value) {
    return value ? [el("dt", {}, name), el("dd", {}, value)] : [];
  }

  function actions() {
    return el("div.actions", {}, el("label", { htmlFor: "reason" }, "Reason"), reason,
      el("div.buttons", {},
        el("button.approve", { type: "button", id: "approve", onclick: () => resolve("approve") }, "Approve", el("kbd", {}, "a")),
        el("button.reject", { type: "button", id: "reject", onclick: () => resolve("reject") }, "Reject", el("kbd", {}, "r"))));
  }

  async function resolve(verb) {
    if (busy || detail?.status !== "pending") return;
    busy = true;
    const approval = detail;
    for (const button of pane.querySelectorAll("button")) button.disabled = true;
    try {
      const text = reason.value.trim();
      await service.request("POST", `/v1/approvals/${encodeURIComponent(approval.approvalId)}/${verb}`, text ? { reason: text } : {});
      notice(`${verb === "approve" ? "Approved" : "Rejected"}: ${approval.toolName} of ${approval.agentId}.`);
      reason.value = "";
      const place = list.findIndex((item) => item.approvalId === approval.approvalId);
      selected = list[place + 1]?.approvalId ?? list[place - 1]?.approvalId ?? null;
      detail = null;
    } catch (error) {
      if (error.body?.code === "approval_not_pending") notice(conflict(error.body.approval ?? {}), "bad");
      else if (error.status !== 401) notice(error.status ? error.message : "The service cannot be reached; nothing was resolved.", "bad");
      detail = null;
    } finally {
      busy = false;
    }
    await load();
  }

  function onKey(event) {
    if (event.key === "Escape") return document.activeElement?.blur();
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("textarea, input, select")) return undefined;
    const move = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key];
    if (move && !event.target.matches("pre")) {
      event.preventDefault();
      const place = list.findIndex((item) => item.approvalId === selected);
      const next = list[Math.min(Math.max(place + move, 0), list.length - 1)];
      if (next) choose(next.approvalId);
    } else if (event.key === "a" || event.key === "r") {
      event.preventDefault();
      // One key must not decide by accident: it goes to the reason; Ctrl+Enter there, or the button, decides.
      armed = event.key === "a" ? "approve" : "reject";
      document.getElementById(armed)?.classList.add("armed");
      document.getElementById(armed === "approve" ? "reject" : "approve")?.classList.remove("armed");
      reason.focus();
    }
    return undefined;
  }

  let armed = null;
  reason.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && armed) {
      event.preventDefault();
      const verb = armed;
      armed = null;
      resolve(verb);
    }
  });
  addEventListener("keydown", onKey);

  let timer = null;
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(load, 100);
  };
  service.follow((event) => (event === "approval" || event === "connected") && soon(), setLive, stop.signal);
  const again = setInterval(load, 15000);
  load();

  return () => {
    stop.abort();
    clearInterval(again);
    clearTimeout(timer);
    removeEventListener("keydown", onKey);
  };
}
