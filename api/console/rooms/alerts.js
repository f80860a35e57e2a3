// The alerts room: what detectors found unusual, worst and newest first to see, and who has looked. Below `/alerts/<alertId>`
// one alert with the records that it counts.

import { el, when } from "../dom.js";
import { listing } from "../listing.js";
import { address, ask, field, page, place } from "../page.js";
import { said } from "../text.js";

const STATUSES = [["open", "Open"], ["acknowledged", "Acknowledged"], ["", "All"]];
const SEVERITIES = [["", "All"], ["critical", "Critical"], ["high", "High"], ["medium", "Medium"], ["low", "Low"]];
const TONE = { critical: "block", high: "block", medium: "warn", low: "plain" };

export function open(root, context) {
  const stop = new AbortController();
  const alertId = context.place || new URLSearchParams(location.search).get("alertId"); // as notices name it
  if (alertId) openOne(root, context, alertId, stop.signal);
  else openList(root, context, stop.signal);
  return () => stop.abort();
}

function openList(root, context, signal) {
  const alerts = listing(context, {
    path: "/v1/alerts", topics: ["alert"], signal, label: "Alerts", usual: { status: "open" },
    filters: [
      { name: "status", label: "Status", options: STATUSES }, { name: "severity", label: "Severity", options: SEVERITIES },
      { name: "agentId", label: "Agent" }, { name: "detectorId", label: "Detector" },
    ],
    empty: "Nothing unusual is known.",
    row: (alert) => ({ key: alert.alertId, mark: JSON.stringify(alert), node: () => alertRow(context, alert) }),
  });
  page(root, { title: "Alerts", moveFocus: context.moveFocus },
    el("p.hint", {}, "What detectors found unusual in the record, a second or two after it happened."), alerts.node);
}

/** A row that leads to an alert, for lists of any room. */
export function alertRow(context, alert) {
  return place(context, address("alerts", alert.alertId),
    el("strong.subject", {}, said(plain(alert.summary))),
    el("span.time", {}, when(alert.raisedAt)),
    el("span.about", {}, said(alert.name), alert.acknowledgedBy && [", acknowledged by ", said(alert.acknowledgedBy)]),
    el("span.marks", {}, alert.status === "acknowledged" && el("span.note", {}, "acknowledged"),
      el(`span.note.${TONE[alert.severity]}`, {}, alert.severity)));
}

/** Names stand in backticks there. */
const plain = (summary) => summary.replace(/`([^`]*)`/g, "“$1”");

function openOne(root, context, alertId, signal) {
  const { service, user } = context;
  const path = `/v1/alerts/${encodeURIComponent(alertId)}`;
  const content = el("div.one");
  const heading = page(root, { title: "Alert", moveFocus: context.moveFocus, back: place(context, "/alerts", "← All alerts") }, content);
  let drawn = "";

  async function load() {
    const found = await service.find(path, signal);
    if (!found) return content.replaceChildren(el("p", {}, "There is no such alert."));
    if (found.text !== drawn) draw(found.value);
    drawn = found.text;
    return undefined;
  }

  function acknowledge() {
    const note = el("textarea", { id: "alert-note", rows: 3, maxLength: 2000 });
    ask("Acknowledge the alert", {
      hint: "Somebody has looked. What goes on counts further in it.", verb: "Acknowledge",
      fields: [field("What was found out", note, { pointer: "/note", hint: "Optional. The record will have it." })],
      async submit() {
        const written = note.value.trim();
        const { value } = await service.request("POST", `${path}/acknowledge`, written ? { note: written } : {}, signal);
        return () => {
          refresh();
          if (value.acknowledgedBy !== user.email || (value.note ?? "") !== written) {
            context.notice(["Not kept, since ", said(value.acknowledgedBy), " has acknowledged it before you."], "bad");
          }
        };
      },
    });
  }

  function draw(alert) {
    heading.replaceChildren(said(plain(alert.summary)));
    const row = (name, ...value) => [el("dt", {}, name), el("dd", {}, ...value)];
    content.replaceChildren(
      el("p.line", {}, el(`span.note.${TONE[alert.severity]}`, {}, alert.severity), el("span.note", {}, alert.status), el("span.time", {}, "raised ", when(alert.raisedAt))),
      alert.message ? el("p.description", {}, said(alert.message)) : "",
      el("dl.known", {},
        row("Detector", said(alert.name), " ", el("code", {}, said(alert.detectorId)), `, version ${alert.detectorVersion}`),
        row("Counted", `${alert.count.toLocaleString("en")}, ${alert.threshold.toLocaleString("en")} are enough, from `, when(alert.firstAt), " to ", when(alert.lastAt)),
        alert.agentId ? row("Agent", place(context, address("agents", alert.agentId), said(alert.agentId))) : row("About", said(alert.subject)),
        alert.runId && row("Run", place(context, address("runs", alert.runId), said(alert.runId))),
        alert.acknowledgedBy && row("Acknowledged", "by ", said(alert.acknowledgedBy), " ", when(alert.acknowledgedAt)),
        alert.note && row("Note", said(alert.note))),
      el("section", {}, el("h2", {}, "What it goes by"),
        el("ul.told", { "aria-label": "Evidence" }, alert.evidence.map((auditId) => el("li", {}, user.role === "admin"
          ? place(context, address("audit", auditId), el("code", {}, auditId)) : el("code", {}, auditId)))),
        user.role !== "admin" && el("p.hint", {}, "Records of the audit log, which admins can read.")),
      user.role !== "viewer" && alert.status === "open" ? el("div.actions", {}, el("button.primary", { type: "button", onclick: acknowledge }, "Acknowledge…")) : "");
  }

  const refresh = context.keepFresh(load, ["alert"], signal);
}
