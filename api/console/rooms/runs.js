// The runs room: what agents did. A list, and below `/runs/<runId>` the timeline of one: its calls with decisions, labels,
// approvals, enforcement gaps, and whether outputs were reported.

import { el, when } from "../dom.js";
import { listing } from "../listing.js";
import { address, page, place } from "../page.js";
import { callsOf, timeline } from "../runs/timeline.js";
import { said } from "../text.js";

/** Seconds that one request waits for news of a run. */
const WAIT = 20;
const STATUSES = [["", "All"], ["running", "Running"], ["completed", "Completed"], ["failed", "Failed"]];

export function open(root, context) {
  const stop = new AbortController();
  if (context.place) openOne(root, context, stop.signal);
  else openList(root, context, stop.signal);
  return () => stop.abort();
}

function openList(root, context, signal) {
  const runs = listing(context, {
    path: "/v1/runs", topics: ["decision"], signal, label: "Runs",
    filters: [{ name: "status", label: "Status", options: STATUSES }, { name: "agentId", label: "Agent" }],
    empty: "No runs yet. A run begins with the first event that an agent reports.",
    row: (run) => ({ key: run.runId, mark: JSON.stringify(run), node: () => runRow(context, run) }),
  });
  page(root, { title: "Runs", moveFocus: context.moveFocus },
    el("p.hint", {}, "What agents did and asked for, newest first."), runs.node);
}

/** A row that leads to a run. */
export function runRow(context, run) {
  const counts = run.toolCallCounts;
  const total = callsOf(run);
  return place(context, address("runs", run.runId),
    el("strong.subject", {}, run.task ? said(run.task) : said(run.runId)),
    el("span.time", {}, when(run.startedAt)),
    el("span.about", {}, said(run.agentId), ` · ${total.toLocaleString("en")} ${total === 1 ? "call" : "calls"}`),
    el("span.marks", {},
      counts.awaiting_approval > 0 && el("span.note.warn", {}, `${counts.awaiting_approval} waiting`),
      counts.blocked > 0 && el("span.note.block", {}, `${counts.blocked} blocked`),
      run.labels.map((label) => el("span.note", {}, said(label))),
      el(`span.status.${run.status}`, {}, run.status)));
}

function openOne(root, context, signal) {
  const { service, place: runId } = context;
  const content = el("div.one");
  const back = place(context, "/runs", "← All runs");
  page(root, { title: ["Run ", said(runId)], moveFocus: context.moveFocus, back }, content);
  const shown = timeline(content, context, signal);

  let revision = null;

  async function load() {
    const found = await service.find(`/v1/runs/${encodeURIComponent(runId)}?limit=500`, signal);
    if (found) revision = shown.draw(found.text);
    else content.replaceChildren(el("p", {}, "There is no such run: its time may be over, or it belongs to another organisation."));
  }
  const refresh = context.keepFresh(load, ["approval", "halt"], signal, 500);
  followRun(context, runId, () => revision, refresh, signal);
}

/** Asks for a load whenever the run changes: reports of outcomes are told by no stream. */
async function followRun({ service }, runId, seen, refresh, signal) {
  while (!signal.aborted) {
    const after = seen();
    try {
      if (!after) throw new Error("not loaded yet");
      const wait = `wait=${WAIT}&limit=1&after=${encodeURIComponent(after)}`;
      const { value } = await service.request("GET", `/v1/runs/${encodeURIComponent(runId)}?${wait}`, undefined, signal);
      if (value.revision !== after) refresh();
      await pause(500, signal);
    } catch {
      await pause(2000, signal);
    }
  }
}

const pause = (time, signal) => new Promise((resolve) => {
  setTimeout(resolve, time);
  signal.addEventListener("abort", resolve);
});
