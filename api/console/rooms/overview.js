// The start page: what waits, what is unusual, what was stopped lately, which agents are new, and what is wrong, each leading
// to where it is dealt with.

import { el, when } from "../dom.js";
import { address, page, place } from "../page.js";
import { said, titleOf } from "../text.js";
import { agentRow } from "./agents.js";
import { alertRow } from "./alerts.js";

const MOST = 6;
/** Milliseconds for which an agent is new. */
const NEW = 7 * 86_400_000;

export function open(root, context) {
  const stop = new AbortController();
  const { signal } = stop;
  const { service, user } = context;
  const reviews = user.role !== "viewer";
  const parts = [
    reviews && part("What waits", ["approval"], waiting),
    part("What is unusual", ["alert"], unusual),
    part("Stopped lately", ["decision"], user.role === "admin" ? stopped : stoppedRuns),
    part("What is wrong", ["policy", "halt"], wrong),
    part("New agents", ["decision"], newAgents),
    part("Latest runs", ["decision"], runs),
  ].filter(Boolean);
  page(root, { title: "Overview", moveFocus: context.moveFocus }, parts);

  /** A section that keeps itself fresh; `load` gives its rows, or text when there are none. */
  function part(title, topics, load) {
    const content = el("div");
    let drawn = null;
    context.keepFresh(async () => {
      const { mark, rows, none, more } = await load();
      if (mark === drawn) return;
      drawn = mark;
      content.replaceChildren(
        rows.length ? el("ul.rows", { "aria-label": title }, rows.map((row) => el("li", {}, row()))) : el("p.empty", {}, none),
        more || "");
    }, topics, signal, 1000);
    return el("section", {}, el("h2", {}, title), content);
  }

  const get = async (path) => service.request("GET", path, undefined, signal);

  async function waiting() {
    const { value, total } = await get(`/v1/approvals?status=pending&order=asc&limit=${MOST}`);
    return {
      mark: JSON.stringify([value, total]), none: "No agent waits for anybody.",
      rows: value.map((each) => () => place(context, `/approvals?approvalId=${encodeURIComponent(each.approvalId)}`,
        el("strong.subject", {}, titleOf(each)), el("span.time", {}, when(each.requestedAt)),
        el("span.about", {}, said(each.agentId)),
        el("span.marks", {}, each.expiresAt && el("span.note.warn", {}, "expires ", when(each.expiresAt))))),
      more: total > value.length && el("p", {}, place(context, "/approvals", `All ${total.toLocaleString("en")} that wait`)),
    };
  }

  async function unusual() {
    const { value, total } = await get(`/v1/alerts?status=open&limit=${MOST}`);
    return {
      mark: JSON.stringify([value, total]), none: "Nothing that detectors know of.", rows: value.map((alert) => () => alertRow(context, alert)),
      more: total > value.length && el("p", {}, place(context, "/alerts", `All ${total.toLocaleString("en")} open alerts`)),
    };
  }

  async function newAgents() {
    const { value } = await get(`/v1/agents?order=newest&limit=${MOST}`);
    const found = value.filter((agent) => Date.now() - Date.parse(agent.firstSeenAt) < NEW);
    return { mark: JSON.stringify(found), none: "None within a week.", rows: found.map((agent) => () => agentRow(context, agent)) };
  }

  async function stopped() {
    const { value } = await get(`/v1/audit?type=decision&decision=blocked&limit=${MOST}`);
    return {
      mark: JSON.stringify(value), none: "Nothing was blocked.",
      rows: value.map((each) => () => place(context, address("audit", each.auditId),
        el("strong.subject", {}, said(each.toolName)), el("span.time", {}, when(each.at)),
        el("span.about", {}, said(each.reason ?? "")), el("span.marks", {}, el("span.note", {}, said(each.agentId))))),
      more: value.length > 0 && el("p", {}, place(context, "/audit?type=decision&decision=blocked", "All that was blocked")),
    };
  }

  async function stoppedRuns() {
    const { value } = await get("/v1/runs?limit=100");
    const found = value.filter((run) => run.toolCallCounts.blocked > 0).slice(0, MOST);
    return { mark: JSON.stringify(found), none: "Nothing was blocked in the latest 100 runs.", rows: found.map((run) => () => runRow(run)) };
  }

  async function runs() {
    const { value } = await get(`/v1/runs?limit=${MOST}`);
    return { mark: JSON.stringify(value), none: "No agent has reported anything yet.", rows: value.map((run) => () => runRow(run)) };
  }

  function runRow(run) {
    const { blocked, awaiting_approval: held } = run.toolCallCounts;
    return place(context, address("runs", run.runId),
      el("strong.subject", {}, said(run.task ?? run.runId)), el("span.time", {}, when(run.startedAt)), el("span.about", {}, said(run.agentId)),
      el("span.marks", {}, held > 0 && el("span.note.warn", {}, `${held} waiting`), blocked > 0 && el("span.note.block", {}, `${blocked} blocked`)));
  }

  async function wrong() {
    const health = await service.health(signal);
    const { policies = {}, audit = {} } = health;
    const found = [
      health.status !== "ok" && ["The service cannot decide and record", health.reason ?? ""],
      policies.stale && ["The policy files do not load", "the last good set stays in force"],
      policies.inactive?.length > 0 && [
        policies.inactive.length === 1 ? "A policy waits for a setting" : `${policies.inactive.length} policies wait for a setting`,
        policies.inactive[0].message,
      ],
      audit.complete === false && ["Records are missing from the audit log", "an older database was put in its place, perhaps"],
      audit.lagging && ["Records wait for their signature", "the log of the service says why"],
      ...(policies.warnings ?? []).map(({ message, file }) => [message.charAt(0).toUpperCase() + message.slice(1), file ?? ""]),
    ].filter(Boolean).slice(0, MOST);
    return {
      mark: JSON.stringify(found), none: "Nothing that the service knows of.",
      rows: found.map(([title, more]) => () => place(context, "/status", el("strong.subject", {}, said(title)), el("span.about", {}, said(more)))),
    };
  }

  return () => stop.abort();
}
