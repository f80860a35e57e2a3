// The approvals room: who waits, what exactly they want to do, approve or reject. Opened by `approvalUrl`, with the
// approval of `?approvalId=` first; the address always names the one in view, so it can be passed on and reloaded.

import { detail } from "../approvals/detail.js";
import { makeDecision } from "../approvals/decide.js";
import { empty, missing as missingOf } from "../approvals/empty.js";
import { makeFinder } from "../approvals/finder.js";
import { grouped } from "../approvals/groups.js";
import { keyHints, keysOf } from "../approvals/keys.js";
import { makeList } from "../approvals/list.js";
import { tellDone, tellFailures, tellRefused } from "../approvals/outcomes.js";
import { makeReader } from "../approvals/reader.js";
import { makeSame } from "../approvals/same.js";
import { makeSending } from "../approvals/sending.js";
import { outcome, tellOfNew, whyOff } from "../approvals/words.js";
import { arrange, el } from "../dom.js";
import { draftsOf } from "../drafts.js";
import { titleOf } from "../text.js";

const VIEWS = [["pending", "Waiting"], ["approved", "Approved"], ["rejected", "Rejected"], ["all", "All"]];
const [PAGE, MOST] = [100, 1000];

export function open(root, context) {
  const { service, user, notice, announce, keepFresh, setTitle } = context;
  let { moveFocus } = context;
  const [stop, mine] = [new AbortController(), service.ownSession()];
  const asked = new URLSearchParams(location.search);
  const focusedId = asked.get("approvalId");
  let view = VIEWS.some(([name]) => name === asked.get("status")) ? asked.get("status") : "pending";
  const finder = makeFinder(asked, look);
  let [limit, list] = [PAGE, []];
  let rows = []; // what the list shows of it: `{head, members}`
  let [before, rest, total, listed] = [0, 0, 0, null]; // how many are around it, and what it was sought by; null at first
  let known = null; // ids that were waiting at the last look; null before the first
  let selected = focusedId;
  let place = 0; // of the selected one in the list, also after it has left
  let shown = null; // {approvalId, text, approval} in the pane
  let missing = null; // an id that leads to no approval
  const decided = new Set(); // by this page: a list that was read before does not bring them back

  const drafts = draftsOf(user.email);
  const reader = makeReader(service, stop.signal, focusedId);
  const decision = makeDecision(resolve);
  const sending = makeSending({ deliver, onchange, onsent, onback });
  const foot = el("div.decide", {}, sending.node, decision.node);
  const same = makeSame({ reader, current: () => selected, ontold: (count) => decision.setCount(count), onlearnt: drawList });
  const items = makeList((approvalId) => choose(approvalId, { toSubject: true }), more, () => turn(false));
  const heading = el("h1", { tabIndex: -1 }, "Approvals");
  const tabs = VIEWS.map(([name, title]) => el("button", { type: "button", onclick: () => setView(name) },
    title, name === "pending" && el("span.count")));
  const count = tabs[0].querySelector(".count");
  const pane = el("article.pane", { "aria-label": "The selected approval" });
  const back = el("button.link.back", { type: "button", onclick: leave }, "← All approvals");
  const room = el("div.room", {},
    el("aside.side", { "aria-label": "Approvals" },
      heading, el("div.views", { role: "group", "aria-label": "Which approvals" }, tabs), finder.node, items.node, keyHints()),
    el("div.main", {}, back, pane));
  root.append(room);

  // Reading ----------------------------------------------------------------------------------------

  async function load() {
    const [wanted, looking, sought] = [view, selected, JSON.stringify(finder.sought)];
    const { found, one, waiting, ...page } = await reader.page(wanted, limit, looking, finder.sought);
    if (wanted !== view || sought !== JSON.stringify(finder.sought)) return refresh();
    ({ before, rest, total } = page);
    finder.tell(found, total);
    list = found.filter((each) => wanted !== "pending" || !decided.has(each.approvalId));
    setCount(waiting);
    if (wanted === "pending") known = tellOfNew(known, list, limit, total, announce);
    arrangeRows();
    if (looking === selected && one) show(one);
    const gone = listed !== null && sought !== listed && rowOf(selected) < 0 && !sending.holds(selected);
    listed = sought;
    if ((!selected || gone) && !missing && rows.length) await choose(rows[0].head.approvalId, { byHand: false });
    drawList();
    if (!selected && !missing) drawEmpty();
    return undefined;
  }

  function setCount(number) {
    count.textContent = Number.isFinite(number) ? ` ${number.toLocaleString("en")}` : "";
    setTitle(number > 0 ? `(${number.toLocaleString("en")}) ` : "");
  }

  // Showing ----------------------------------------------------------------------------------------

  function arrangeRows() {
    rows = grouped(list, same.payloads, selected);
  }

  function rowOf(approvalId) {
    return rows.findIndex((row) => row.members.some((each) => each.approvalId === approvalId));
  }

  function drawList() {
    arrangeRows();
    tabs.forEach((tab, index) => tab.setAttribute("aria-pressed", String(VIEWS[index][0] === view)));
    const found = rowOf(selected);
    if (found >= 0) place = found;
    items.draw({
      rows, before, rest, loaded: before + list.length, total, selected, focusedId, showStatus: view === "all",
      empty: el("p.empty", {}, finder.active ? "None of these." : view === "pending" ? "Nothing waits for you." : "None yet."),
    });
    same.compare(decidable() ? rows[rowOf(selected)]?.members : []);
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
      pane.replaceChildren(...missingOf(missing), foot);
      drawFoot();
      return focusFirst();
    }
    const { approval, text } = found;
    const isSame = before?.approvalId === approval.approvalId;
    const held = isSame && pane.contains(document.activeElement);
    const overtaken = isSame && before.approval.status === "pending" && approval.status !== "pending";
    const parts = detail(text, context, list);
    const pending = approval.status === "pending";
    if (!pending) sending.drop(approval.approvalId);
    arrange(pane, [...parts.nodes, ...(pending ? [] : [nextButton()].filter(Boolean)), foot]); // who types goes on
    pane.querySelector("header").after(same.node);
    if (!isSame) {
      decision.begin(drafts.get(approval.approvalId), titleOf(approval), (approval.approvers ?? 1) < 2);
      if (room.classList.contains("reading")) scrollTo(0, 0);
    }
    drawFoot();
    drawHalted();
    tellRun(approval.runId, parts);
    if (overtaken) tellOvertaken(approval, held);
    focusFirst();
    return undefined;
  }

  async function tellRun(runId, parts) {
    const run = await service.request("GET", `/v1/runs/${encodeURIComponent(runId)}`, undefined, stop.signal).catch(() => null);
    if (!stop.signal.aborted) parts.tell(run?.value);
  }

  /** Under what is in view: what is on its way, and the buttons unless it is this that is on its way. */
  function drawFoot() {
    decision.node.hidden = !decidable() || sending.holds(selected);
    foot.hidden = decision.node.hidden && !sending.active;
  }

  function drawHalted() {
    decision.setHalted(whyOff(shown?.approval ?? {}, context.halts()));
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

  function drawEmpty() {
    shown = null;
    setComing(false);
    if (pane.firstElementChild?.dataset.view !== view) pane.replaceChildren(empty(view), foot);
    drawFoot();
  }

  // Moving -----------------------------------------------------------------------------------------

  function keepDraft() {
    if (shown?.approval?.status === "pending") drafts.keep(shown.approvalId, decision.reason);
  }

  function neighbour(step) {
    const found = rowOf(selected);
    // One that has left the list has its follower in its place.
    return rows[found >= 0 ? found + step : step > 0 ? place : place - 1]?.head;
  }

  /** Another approval comes into view. `toSubject` moves the focus there. */
  async function choose(approvalId, { toSubject = false, byHand = true } = {}) {
    keepDraft();
    selected = approvalId;
    missing = null;
    if (byHand) room.classList.add("reading");
    setAddress();
    const found = rowOf(approvalId);
    if (found >= 0) place = found;
    items.mark(selected);
    same.compare([]);
    setComing(shown?.approvalId !== approvalId);
    if (shown?.approvalId !== approvalId) {
      try {
        const one = await reader.find(approvalId);
        if (selected !== approvalId) return;
        show(one);
        same.compare(rows[rowOf(approvalId)]?.members ?? []);
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
    const address = new URLSearchParams(finder.query);
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

  /** Something else is looked for. */
  function look() {
    setAddress();
    turn(false);
  }

  function more() {
    if (limit < MOST) limit = Math.min(limit + PAGE, MOST);
    else turn(true);
    refresh();
  }

  /** The list goes on behind what it has, or begins again. */
  function turn(onwards) {
    reader.turn(onwards);
    [limit, known, place] = [PAGE, null, 0];
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

  function resolve(verb, reason, all, grant) {
    // INVARIANT: what is decided is what is in view, never one that is about to leave or to come.
    if (!decidable()) return;
    const { approvalId, approval } = shown;
    keepDraft(); // until it is known to be decided
    sending.hold({ verb, reason, grant, approval, title: titleOf(approval), ids: all ? same.ids(approvalId) : [approvalId] });
    announce("Enter sends it now, Escape takes it back.");
  }

  /** INVARIANT: nothing is released but the payload that was in view. Of calls that are the same, one grant covers all. */
  function deliver(approvalId, { verb, reason, grant, approval }, leaving) {
    const body = { payloadDigest: approval.payloadDigest, ...(reason && { reason }), ...(grant && approvalId === approval.approvalId && { grant }) };
    return service.request("POST", `/v1/approvals/${encodeURIComponent(approvalId)}/${verb}`, body,
      leaving ? undefined : stop.signal, { keepalive: leaving, as: mine() }).then(({ value }) => {
      if (value.status !== "pending") decided.add(approvalId);
      drafts.keep(approvalId, "");
    });
  }

  function onchange(sent) {
    if (sent) decision.begun();
    drawFoot();
  }

  function onback({ verb }) {
    drawFoot();
    if (!decision.node.hidden) decision.focus(verb);
  }

  async function onsent(sent, failures) {
    if (stop.signal.aborted) {
      if (failures.length) tellFailures(sent, failures, notice, user.email); // in another room by now
      return;
    }
    const failed = new Set(failures.map((each) => each.approvalId));
    const done = sent.ids.filter((each) => !failed.has(each));
    try {
      if (done.length) tellDone(sent, done, notice);
      if (failures.some(({ error }) => error.status === 401)) return;
      if (sent.ids.length > 1 && failures.length) tellFailures(sent, failures, notice, user.email);
      else if (failures.length) await explain(failures[0].error, failures[0].approvalId);
      const inView = selected;
      list = list.filter((each) => view !== "pending" || !done.includes(each.approvalId));
      if (view === "pending") total -= done.length;
      if (done.includes(inView)) await goOn(inView);
    } finally {
      decision.ended(done.length > 0);
      drawFoot();
      refresh();
    }
  }

  async function goOn(approvalId) {
    if (view !== "pending") {
      // Among those that are settled there is no next one to decide: this one shows how it ended.
      const one = await reader.find(approvalId).catch(() => null);
      if (one && selected === approvalId) show(one);
      pane.querySelector("#ending")?.focus();
      return;
    }
    shown = null; // so that the reason that was sent is not kept as a draft
    arrangeRows();
    const next = neighbour(1) ?? neighbour(-1);
    selected = null;
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
    const one = error.body?.code === "approval_not_pending" && selected === approvalId
      ? await reader.find(approvalId).catch(() => null) : null;
    if (!one) tellRefused(error, service, notice, user.email);
    else if (selected === approvalId) {
      // `show` tells who was faster, and puts the focus there.
      pane.querySelector("#subject")?.focus();
      show(one);
    }
  }

  // Keys -------------------------------------------------------------------------------------------

  const onKey = keysOf({
    list: items.node, sending, leave, move, decide: (verb) => decision.node.hidden || decision.choose(verb),
    turn: () => pane.querySelector(".turn")?.click(),
  });

  function move(step) {
    const next = neighbour(step);
    if (!next) return step > 0 && rest > 0 && more();
    choose(next.approvalId);
    return items.focus(next.approvalId);
  }

  addEventListener("keydown", onKey, { signal: stop.signal });
  addEventListener("governance:halts", drawHalted, { signal: stop.signal });
  addEventListener("pagehide", () => sending.now({ leaving: true }), { signal: stop.signal });
  if (focusedId) room.classList.add("reading");
  focusFirst();
  drawList();
  const refresh = keepFresh(load, ["approval"], stop.signal);

  return () => {
    keepDraft();
    finder.close();
    sending.now({ leaving: true });
    stop.abort();
  };
}
