// The health room: whether the service can decide and record, which policies are in force, what is wrong with files; and
// the last hour and the nodes of the installation.

import { el, when } from "../dom.js";
import { address, page, place } from "../page.js";
import { lastHour } from "../status/history.js";
import { said } from "../text.js";

/** Milliseconds between looks at the last hour, which gets a point every 15 s. */
const PAUSE = 5000;

export function open(root, context) {
  const stop = new AbortController();
  const { signal } = stop;
  const content = el("div.one");
  const hour = lastHour(context, signal);
  page(root, { title: "Health", moveFocus: context.moveFocus }, content, hour.node);

  const load = async () => draw(await context.service.health(signal));

  let drawn = "";
  function draw(health) {
    const mark = JSON.stringify({ ...health, uptime: 0 });
    if (mark === drawn) return;
    drawn = mark;
    const { policies = {}, audit = {} } = health;
    const well = health.status === "ok";
    const state = (good, yes, no) => el(`span.note.${good ? "allow" : "block"}`, {}, good ? yes : no);
    content.replaceChildren(
      el(`p.${well ? "sound" : "problem"}`, {}, well ? "The service decides and records." : ["The service cannot decide and record: ", said(health.reason ?? "no reason was given")]),
      el("dl.known", {},
        el("dt", {}, "Database"), el("dd", {}, state(health.database === "connected", "connected", "disconnected")),
        el("dt", {}, "Policies"), el("dd", {}, `revision ${policies.revision?.toLocaleString("en")}, ${policies.count?.toLocaleString("en")} of all organisations `,
          state(!policies.stale, "as in the files", "stale")),
        el("dt", {}, "Audit log"), el("dd", {}, state(audit.signing && !audit.lagging, "signed", audit.signing ? "signatures wait" : "not signed by this node"), " ",
          state(audit.complete, "whole", "records are missing"), audit.signedAt && [" last ", when(audit.signedAt)]),
        el("dt", {}, "Version"), el("dd", {}, health.version),
        el("dt", {}, "Started"), el("dd", {}, when(new Date(Date.now() - health.uptime * 1000).toISOString()))),
      ...told("What is wrong with the files", policies.errors, (each) => (typeof each === "string" ? said(each)
        : [el("code", {}, said([each.file, each.line, each.column].filter(Boolean).join(":"))), " ", said(each.message ?? "")])),
      policies.stale ? el("p.missing", {}, "The files do not load. The last good set stays in force until they do.") : "",
      ...told("Policies that wait for a setting", policies.inactive, (each) => [
        place(context, address("policies", each.policyId), said(each.policyId)), " ", said(each.message)]),
      ...told("Warnings", policies.warnings, (each) => [each.file && el("code", {}, said(each.file)), " ", said(each.message)]));
  }

  function told(title, items, line) {
    return items?.length ? [el("h2", {}, title), el("ul.told", {}, items.map((each) => el("li", {}, line(each))))] : [];
  }

  context.keepFresh(load, ["policy", "halt"], signal, 1000);
  context.keepFresh(hour.load, ["decision"], signal, PAUSE);
  return () => stop.abort();
}
