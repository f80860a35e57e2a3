// The audit room: who did and decided what, from a record that proves itself. A list, below `/audit/<auditId>` one record,
// verification, and export of what the filters leave.

import { el, when } from "../dom.js";
import * as exact from "../exact.js";
import { listing } from "../listing.js";
import { address, page, place } from "../page.js";
import { payloadOf } from "../runs/payload.js";
import { said } from "../text.js";

const DECISIONS = [["", "All"], ["allowed", "Allowed"], ["blocked", "Blocked"], ["awaiting_approval", "Held"], ["approved", "Approved"], ["rejected", "Rejected"]];
const TONE = { allowed: "allow", approved: "allow", blocked: "block", rejected: "block", awaiting_approval: "warn" };
const FILTERS = ["type", "decision", "agentId", "toolName", "runId", "toolCallId", "userId"];
/** Records that one export from here has at most; the command line has no such bound. */
const MOST_EXPORTED = 50_000;

export function open(root, context) {
  const stop = new AbortController();
  if (context.place) openOne(root, context, stop.signal);
  else openList(root, context, stop.signal);
  return () => stop.abort();
}

function openList(root, context, signal) {
  const records = listing(context, {
    path: "/v1/audit", topics: ["decision", "approval", "policy", "halt"], signal, label: "Records",
    filters: [
      { name: "type", label: "Type" }, { name: "decision", label: "Decision", options: DECISIONS }, { name: "agentId", label: "Agent" },
      { name: "toolName", label: "Tool" }, { name: "runId", label: "Run" }, { name: "toolCallId", label: "Tool call" },
    ],
    empty: "No record is of this kind.",
    row: (record) => ({ key: record.auditId, mark: record.hash, node: () => row(context, record) }),
  });
  const result = el("div.verified", { role: "status" });
  const check = el("button", { type: "button", onclick: () => verify(context, check, result, signal) }, "Verify the log");
  const take = el("button", { type: "button", onclick: () => download(context, take, signal) }, "Export these records");
  page(root, { title: "Audit", moveFocus: context.moveFocus },
    el("p.hint", {}, "Every decision, resolution, change and refusal, each chained to the one before and signed."),
    el("div.actions", {}, check, take), result, records.node);
}

function row(context, record) {
  return place(context, address("audit", record.auditId),
    el("strong.subject", {}, record.toolName ? said(record.toolName) : said(record.type)),
    el("span.time", {}, when(record.at)),
    el("span.about", {}, record.reason ? said(record.reason) : said(record.actor ?? "")),
    el("span.marks", {},
      record.toolName && el("span.note", {}, said(record.type)),
      record.agentId && el("span.note", {}, said(record.agentId)),
      record.decision && el(`span.note.${TONE[record.decision] ?? "plain"}`, {}, said(record.decision.replaceAll("_", " ")))));
}

async function verify({ service }, button, result, signal) {
  button.disabled = true;
  result.replaceChildren(el("p", {}, "Walking the chains…"));
  try {
    const { value } = await service.request("GET", "/v1/audit/verify", undefined, signal, { longest: 600_000 });
    result.replaceChildren(
      el(`p.${value.valid ? "sound" : "problem"}`, {}, value.valid
        ? `The log is whole: ${value.count.toLocaleString("en")} records, ${value.signed.toLocaleString("en")} of them signed.`
        : `The log is broken${value.firstBroken ? ` at ${value.firstBroken}` : ""}.`),
      ...[...value.problems, ...value.notes].map((text) => el("p", {}, said(text))),
      el("p.hint", {}, "Last hash ", el("code", {}, value.lastHash), ". Kept elsewhere, with the count, it proves later that nothing was cut off."));
  } catch (error) {
    if (!signal.aborted) result.replaceChildren(el("p.problem", {}, service.isAway(error) ? "No answer came; the log was not verified." : error.message));
  } finally {
    button.disabled = false;
  }
}

async function download({ service, notice }, button, signal) {
  const asked = new URLSearchParams(location.search);
  const query = new URLSearchParams({ format: "jsonl", limit: String(MOST_EXPORTED) });
  for (const name of FILTERS) if (asked.get(name)) query.set(name, asked.get(name));
  button.disabled = true;
  try {
    const { text } = await service.request("GET", `/v1/audit?${query}`, undefined, signal, { longest: 600_000 });
    const link = el("a", { href: URL.createObjectURL(new Blob([text], { type: "application/x-ndjson" })), download: "audit.jsonl" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    const count = text.split("\n").length - 1;
    notice(count < MOST_EXPORTED ? `Exported ${count.toLocaleString("en")} records.`
      : `Exported the oldest ${MOST_EXPORTED.toLocaleString("en")} records; \`governance audit export\` has no bound.`);
  } catch (error) {
    if (!signal.aborted) notice(service.isAway(error) ? "No answer came; nothing was exported." : error.message, "bad");
  } finally {
    button.disabled = false;
  }
}

function openOne(root, context, signal) {
  const { service, place: auditId } = context;
  const content = el("div.one");
  page(root, { title: ["Record ", said(auditId)], moveFocus: context.moveFocus, back: place(context, "/audit", "← All records") }, content);

  async function load() {
    const found = await service.find(`/v1/audit/${encodeURIComponent(auditId)}`, signal);
    if (found) draw(found.value, found.text);
    else content.replaceChildren(el("p", {}, "There is no such record: its time may be over, or it belongs to another organisation."));
  }

  function draw(record, text) {
    const fact = (name, value) => (value ? [el("dt", {}, name), el("dd", {}, value)] : []);
    content.replaceChildren(
      record.reason ? el("p", {}, said(record.reason)) : "",
      el("dl.known", {}, ...fact("Type", said(record.type)), ...fact("When", when(record.at)),
        ...fact("By", record.actor && said(record.actor)),
        ...fact("Decision", record.decision && el(`span.note.${TONE[record.decision] ?? "plain"}`, {}, said(record.decision.replaceAll("_", " ")))),
        ...fact("Tool", record.toolName && said(record.toolName)),
        ...fact("Agent", record.agentId && place(context, address("agents", record.agentId), said(record.agentId))),
        ...fact("Run", record.runId && place(context, address("runs", record.runId), said(record.runId))),
        ...fact("On behalf of", record.userId && [said(record.userEmail ?? record.userId), " ", el("span.note.good", {}, "verified")]),
        ...fact("Place in the chain", `${record.sequence.toLocaleString("en")}${record.chain ? ` of chain ${record.chain}` : ""}`),
        ...fact("Hash", el("code", {}, record.hash))),
      payloadOf("The record, as it was hashed", exact.read(text)));
  }
  context.keepFresh(load, [], signal);
}
