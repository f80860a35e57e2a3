// The approvals room: who waits, what exactly they want to do, approve or reject. Opened by `approvalUrl`, with the
// approval of `?approvalId=` first; the address always names the one in view, so it can be passed on and reloaded.

import { detail } from "../approvals/detail.js";
import { makeDecision } from "../approvals/decide.js";
import { makeList } from "../approvals/list.js";
import { STATUS, outcome } from "../approvals/words.js";
import { el } from "../dom.js";
import { said } from "../text.js";

const VIEWS = [["pending", "Waiting"], ["approved", "Approved"], ["rejected", "Rejected"], ["all", "All"]];
const KEYS = [[["j", "k"], "next, previous"], [["a", "r"], "approve, reject"], [["Enter"], "confirms"], [["Esc"], "leaves"]];
const PAGE = 100;
const MOST = 1000;

/** What was typed and not sent, by user and approval: it outlives a session that ends meanwhile. */
const drafts = new Map();

export function open(root, { service, user, notice, announce, keepFresh, setTitle, moveFocus }) {
  const stop = new AbortController();
  const asked = new URLSearchParams(location.search);
  const focusedId = asked.get("approvalId");
  let view = VIEWS.some(([name]) => name === asked.get("status")) ? asked.get("status") : "pending";
  let limit = PAGE;
  let list = [];
  let total = 0;
  let known = null; // ids that were waiting at the last look; null before the first
  let selected = focusedId;
  let place = 0; // of the selected one in the list, also after it has left
  let shown = null; // {approvalId, text, approval} in the pane
  let missing = null; // an id that leads to no approval
  const decided = new Set(); // by this page: a list that was read before does not bring them back

  const decision = makeDecision(resolve);
  const items = makeList((approvalId) => choose(approvalId, { toSubject: true }), () => {
    limit = Math.min(limit + PAGE, MOST);
    refresh();
  });
  const heading = el("h1", { tabIndex: -1 }, "Approvals");
  const tabs = VIEWS.map(([name, title]) => el("button", { type: "button", onclick: () => setView(name) },
    title, name === "pending" && el("span.count")));
  const count = tabs[0].querySelector(".count");
  const pane = el("article.pane", { "aria-label": "The selected approval" });
  const back = el("button.link.back", { type: "button", onclick: leave }, "← All approvals");
  const room = el("div.room", {},
    el("aside.side", { "aria-label": "Approvals" },
      heading, el("div.views", { role: "group", "aria-label": "Which approvals" }, tabs), items.node,
      el("p.keys", {}, KEYS.map(([keys, what]) => el("span", {}, keys.map((key) => el("kbd", {}, key)), ` ${what}`)))),
    el("div.main", {}, back, pane));
  root.append(room);

  // Reading ----------------------------------------------------------------------------------------

  async function load() {
    const [wanted, looking] = [view, selected];
    const status = wanted === "all" ? "" : `status=${wanted}&`;
    const order = wanted === "pending" ? "asc" : "desc";
    const [page, one, waiting] = await Promise.all([
      service.request("GET", `/v1/approvals?${status}order=${order}&limit=${limit}`, undefined, stop.signal),
      looking ? find(looking) : null,
      wanted === "pending" ? null : service.request("GET", "/v1/approvals?status=pending&limit=1", undefined, stop.signal),
    ]).catch((error) => {
      if (error.status === 403) service.checkUser(stop.signal).catch(() => {});
      throw error;
    });
    const rows = wanted === "pending" && focusedId ? await focusedFirst(page.value, one) : page.value;
    if (wanted !== view) return refresh();
    total = page.total;
    list = rows.filter((each) => wanted !== "pending" || !decided.has(each.approvalId));
    setCount(waiting ? waiting.total : total);
    if (wanted === "pending") tellOfNew();
    if (looking === selected && one) show(one);
    if (!selected && !missing && list.length) await choose(list[0].approvalId, { byHand: false });
    drawList();
    if (!selected && !missing) drawEmpty();
    return undefined;
  }

  /** The approval as `{approvalId, text, approval}`; `approval` null when there is none of this id. */
  async function find(approvalId) {
    try {
      const { text, value } = await service.request("GET", `/v1/approvals/${encodeURIComponent(approvalId)}?seen=${document.hasFocus()}`, undefined, stop.signal);
      return { approvalId, text, approval: value };
    } catch (error) {
      if (error.status === 404) return { approvalId, text: "", approval: null };
      throw error;
    }
  }

  /** The rows of a page with that of the link at their head, also when it would come on a later page. */
  async function focusedFirst(page, one) {
    let linked = page.find((each) => each.approvalId === focusedId);
    if (!linked && page.length >= limit) linked = (one?.approvalId === focusedId ? one : await find(focusedId)).approval;
    return linked?.status === "pending" ? [linked, ...page.filter((each) => each !== linked)] : page;
  }

  function tellOfNew() {
    const now = new Set(list.map((each) => each.approvalId));
    const fresh = known ? list.filter((each) => !known.has(each.approvalId)) : [];
    // Asking for more rows brings in some that are not new at all.
    if (fresh.length && known.limit === limit) {
      const [first] = fresh;
      announce(fresh.length === 1 ? `New: ${first.toolName} of ${first.agentId}. ${total} waiting.`
        : `${fresh.length} new approvals. ${total} waiting.`);
    }
    known = Object.assign(now, { limit });
  }

  function setCount(number) {
    count.textContent = Number.isFinite(number) ? ` ${number.toLocaleString("en")}` : "";
    setTitle(number > 0 ? `(${number.toLocaleString("en")}) ` : "");
  }

  // Showing ----------------------------------------------------------------------------------------

  function drawList() {
    tabs.forEach((tab, index) => tab.setAttribute("aria-pressed", String(VIEWS[index][0] === view)));
    const found = list.findIndex((each) => each.approvalId === selected);
    if (found >= 0) place = found;
    items.draw({
      approvals: list, total: Math.min(total, MOST), selected, focusedId, showStatus: view === "all",
      empty: el("p.empty", {}, view === "pending" ? "Nothing waits for you." : "None yet."),
    });
  }

  function show(found) {
    missing = found.approval ? null : found.approvalId;
    setComing(false);
    const before = shown;
    if (before?.approvalId === found.approvalId) {
      // INVARIANT: what has ended is never shown as waiting again, whatever answer comes late.
      if (before.text === found.text || (found.approval?.status === "pending" && before.approval?.status !== "pending")) return;
    }
    shown = found;
    if (missing) {
      drawMissing();
      return focusFirst();
    }
    const { approval, text } = found;
    const same = before?.approvalId === approval.approvalId;
    const held = same && pane.contains(document.activeElement);
    const overtaken = same && before.approval.status === "pending" && approval.status !== "pending";
    const pending = approval.status === "pending";
    pane.replaceChildren(...detail(text, user.email).filter(Boolean), pending ? decision.node : nextButton());
    if (!same) {
      decision.begin(drafts.get(draftKey(approval.approvalId)) ?? "");
      if (room.classList.contains("reading")) scrollTo(0, 0);
    }
    if (overtaken) tellOvertaken(approval, held);
    focusFirst();
    return undefined;
  }

  // On a narrow screen an approval that was linked to is all there is to see, so the focus waits for it.
  function focusFirst() {
    if (!moveFocus) return;
    const target = heading.checkVisibility() ? heading : pane.querySelector("#subject");
    target?.focus();
    moveFocus = !target;
  }

  function tellOvertaken(approval, held) {
    const nodes = outcome(approval, user.email);
    if (held) pane.querySelector("#ending").focus();
    else announce(el("p", {}, nodes).textContent);
    if (approval.actor !== user.email) notice(["Already settled: ", nodes, "."], "bad");
  }

  /** Another approval is on its way into view: what is there until then cannot be decided. */
  function setComing(on) {
    pane.setAttribute("aria-busy", String(on));
    decision.setComing(on);
  }

  function nextButton() {
    const next = neighbour(1) ?? neighbour(-1);
    return view === "pending" && next
      ? el("p.onward", {}, el("button.primary", { type: "button", onclick: () => choose(next.approvalId, { toSubject: true }) }, "Next waiting approval"))
      : null;
  }

  function drawMissing() {
    pane.replaceChildren(
      el("h2", { id: "subject", tabIndex: -1 }, "This approval is not here"),
      el("p", {}, "No approval has the id ", el("code", {}, said(missing)), "."),
      el("p.hint", {}, "The link may be cut short or mistyped, or it belongs to another organisation than yours."));
  }

  function drawEmpty() {
    shown = null;
    setComing(false);
    if (pane.firstElementChild?.dataset.view === view) return;
    pane.replaceChildren(el("div.nothing", { "data-view": view },
      el("img", { src: "/console/icon.svg", alt: "", width: 56, height: 56 }),
      el("h2", { id: "subject", tabIndex: -1 }, view === "pending" ? "All clear" : "Nothing here yet"),
      el("p.hint", {}, view === "pending"
        ? "No agent waits for you. New requests appear here by themselves."
        : "Approvals that were resolved appear here.")));
  }

  // Moving -----------------------------------------------------------------------------------------

  function draftKey(approvalId) {
    return JSON.stringify([user.email, approvalId]);
  }

  function keepDraft() {
    if (shown?.approval?.status !== "pending") return;
    const key = draftKey(shown.approvalId);
    if (decision.reason) drafts.set(key, decision.reason);
    else drafts.delete(key);
  }

  function neighbour(step) {
    const found = list.findIndex((each) => each.approvalId === selected);
    // One that has left the list has its follower in its place.
    return list[found >= 0 ? found + step : step > 0 ? place : place - 1];
  }

  /** Another approval comes into view. `toSubject` moves the focus there. */
  async function choose(approvalId, { toSubject = false, byHand = true } = {}) {
    keepDraft();
    selected = approvalId;
    missing = null;
    if (byHand) room.classList.add("reading");
    setAddress();
    const found = list.findIndex((each) => each.approvalId === approvalId);
    if (found >= 0) place = found;
    items.mark(selected);
    setComing(shown?.approvalId !== approvalId);
    if (shown?.approvalId !== approvalId) {
      try {
        const one = await find(approvalId);
        if (selected !== approvalId) return;
        show(one);
      } catch (error) {
        if (stop.signal.aborted) return;
        if (!byHand) throw error;
        refresh();
        if (service.isAway(error)) notice("The service cannot be reached, so this approval cannot be shown yet.", "bad");
        return;
      }
    }
    if (toSubject) pane.querySelector("#subject")?.focus({ preventScroll: false });
  }

  function setAddress() {
    const address = new URLSearchParams();
    if (view !== "pending") address.set("status", view);
    if (selected) address.set("approvalId", selected);
    history.replaceState(null, "", `${location.pathname}${address.size ? `?${address}` : ""}`);
  }

  function setView(name) {
    if (name === view) return;
    keepDraft();
    [view, limit, list, known, selected, shown, missing] = [name, PAGE, [], null, null, null, null];
    room.classList.remove("reading");
    setAddress();
    pane.replaceChildren();
    drawList();
    refresh();
  }

  /** From one approval back to the list. */
  function leave() {
    room.classList.remove("reading");
    if (!items.focus(selected)) heading.focus();
  }

  // Deciding ---------------------------------------------------------------------------------------

  function decidable() {
    return shown?.approvalId === selected && shown.approval?.status === "pending";
  }

  async function resolve(verb, reason) {
    // INVARIANT: what is decided is what is in view, never one that is about to leave or to come.
    if (!decidable()) return;
    const { approvalId, approval } = shown;
    let well = false;
    decision.begun();
    try {
      await service.request("POST", `/v1/approvals/${encodeURIComponent(approvalId)}/${verb}`, reason ? { reason } : {}, stop.signal);
      decided.add(approvalId);
      drafts.delete(draftKey(approvalId));
      notice([verb === "approve" ? "Approved: " : "Rejected: ", said(approval.toolName), " of ", said(approval.agentId), "."]);
      well = true;
      await goOn(approvalId);
    } catch (error) {
      if (stop.signal.aborted || error.status === 401) return;
      await explain(error, approvalId);
    } finally {
      decision.ended(well);
      refresh();
    }
  }

  async function goOn(approvalId) {
    if (view !== "pending") {
      // Among those that are settled there is no next one to decide: this one shows how it ended.
      const one = await find(approvalId).catch(() => null);
      if (one && selected === approvalId) show(one);
      pane.querySelector("#ending")?.focus();
      return;
    }
    const next = neighbour(1) ?? neighbour(-1);
    list = list.filter((each) => each.approvalId !== approvalId);
    total -= 1;
    selected = null;
    shown = null; // so that the reason that was sent is not kept as a draft
    if (next) {
      drawList();
      await choose(next.approvalId, { toSubject: true });
    } else {
      setAddress();
      drawList();
      drawEmpty();
      pane.querySelector("#subject").focus();
    }
  }

  async function explain(error, approvalId) {
    const { code, approval } = error.body ?? {};
    if (code === "approval_not_pending" && approval) {
      const one = await find(approvalId).catch(() => null);
      // `show` tells who was faster, and puts the focus there.
      if (one && selected === approvalId) {
        pane.querySelector("#subject")?.focus();
        show(one);
      }
    } else if (service.isAway(error) && !error.status) {
      notice("No answer came, so it is not known whether this was decided. It will show as soon as the service answers.", "bad");
    } else if (service.isAway(error)) {
      notice("The service could not do this now; nothing was decided. Try again in a moment.", "bad");
    } else {
      if (error.status === 403) service.checkUser(stop.signal).catch(() => {});
      notice(["This was not decided: ", said(error.message), "."], "bad");
    }
  }

  // Keys -------------------------------------------------------------------------------------------

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.key === "Escape") return leave();
    if (event.target.matches("textarea, input, select")) return;
    const inList = items.node.contains(event.target);
    const step = { j: 1, k: -1, ...(inList ? { ArrowDown: 1, ArrowUp: -1 } : {}) }[event.key];
    if (step) {
      event.preventDefault();
      move(step);
    } else if ((event.key === "a" || event.key === "r") && decidable() && !event.repeat) {
      event.preventDefault();
      decision.choose(event.key === "a" ? "approve" : "reject");
    }
  }

  function move(step) {
    const next = neighbour(step);
    if (!next) {
      if (step > 0 && list.length < Math.min(total, MOST)) {
        limit = Math.min(limit + PAGE, MOST);
        refresh();
      }
      return;
    }
    choose(next.approvalId);
    items.focus(next.approvalId);
  }

  addEventListener("keydown", onKey, { signal: stop.signal });
  if (focusedId) room.classList.add("reading");
  focusFirst();
  drawList();
  const refresh = keepFresh(load, ["approval"], stop.signal);

  return () => {
    keepDraft();
    stop.abort();
  };
}
