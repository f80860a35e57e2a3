// The webhooks room: who is told of what over HTTP, whether it arrives, and what can be done about it.

import { el, when } from "../dom.js";
import * as exact from "../exact.js";
import { listing } from "../listing.js";
import { address, ask, attempt, field, page, place, secret } from "../page.js";
import { payloadOf } from "../runs/payload.js";
import { said } from "../text.js";

const EVENTS = [
  "approval.requested", "approval.progressed", "approval.escalated", "approval.resolved", "tool.blocked", "tool.warned", "run.completed", "run.failed",
  "policy.changed", "policy.reload_failed", "enforcement.gap", "agent.halted", "grant.created", "grant.revoked", "alert.raised", "change.requested", "change.resolved",
];
const TONE = { delivered: "allow", failed: "block", pending: "warn" };
const KEEP = "The receiver checks signatures with it. It is shown once; put it where the receiver finds it.";

export function open(root, context) {
  const stop = new AbortController();
  if (context.place) openOne(root, context, stop.signal);
  else openList(root, context, stop.signal);
  return () => stop.abort();
}

function openList(root, context, signal) {
  const { service } = context;
  const hooks = listing(context, {
    path: "/v1/webhooks", topics: [], signal, label: "Webhooks",
    empty: "Nobody is told over HTTP yet.",
    row: (hook) => ({ key: hook.webhookId, mark: JSON.stringify(hook), node: () => row(context, hook) }),
  });
  const add = el("button.primary", { type: "button", onclick: () => openForm(context, signal, {
    title: "Add a webhook", verb: "Add",
    async send(body) {
      const { value } = await service.request("POST", "/v1/webhooks", body, signal);
      return () => {
        hooks.refresh();
        secret("The signing secret", KEEP, value.secret);
      };
    },
  }) }, "Add a webhook");
  page(root, { title: "Webhooks", moveFocus: context.moveFocus },
    el("p.hint", {}, "Other services that are told of what happens, signed and at least once."),
    el("div.actions", {}, add), hooks.node);
}

function row(context, hook) {
  return place(context, address("webhooks", hook.webhookId),
    el("strong.subject", {}, said(hook.url)),
    el("span.time", {}, when(hook.createdAt)),
    el("span.about", {}, hook.description ? said(hook.description) : hook.events.join(", ")),
    el("span.marks", {},
      hook.failingSince && el("span.note.block", {}, "failing"),
      el(`span.note.${hook.enabled ? "allow" : "plain"}`, {}, hook.enabled ? "on" : "off")));
}

function openForm(context, signal, { title, verb, send, hook }) {
  const url = el("input", { id: "hook-url", type: "url", required: true, value: hook?.url ?? "", spellcheck: false });
  const description = el("input", { id: "hook-description", value: hook?.description ?? "", maxLength: 2000 });
  // What else it is told of, by the API, stays.
  const boxes = [...new Set([...EVENTS, ...(hook?.events ?? [])])].map((name) => el("input", { type: "checkbox", value: name, id: `event-${name}`, checked: hook?.events.includes(name) ?? false }));
  ask(title, {
    verb,
    fields: [
      field("Address", url, { pointer: "/url", hint: "A public https address." }),
      field("Description", description, { pointer: "/description" }),
      el("fieldset.field", { "data-pointer": "/events" }, el("legend", {}, "What it is told of"),
        boxes.map((box) => el("label.choice", { htmlFor: box.id }, box, ` ${box.value}`))),
    ],
    submit: () => send(changed(hook, {
      url: url.value.trim(), events: boxes.filter((box) => box.checked).map((box) => box.value),
      description: description.value.trim() || null,
    })),
  });
}

/** What of `body` differs from the webhook as it was when the form was opened: what others change meanwhile stays. */
const changed = (hook, body) => Object.fromEntries(Object.entries(body)
  .filter(([name, value]) => !hook || JSON.stringify(value) !== JSON.stringify(hook[name] ?? null)));

function openOne(root, context, signal) {
  const { service, place: webhookId } = context;
  const path = `/v1/webhooks/${encodeURIComponent(webhookId)}`;
  const about = el("div.one");
  const deliveries = listing(context, {
    path: `${path}/deliveries`, topics: [], signal, label: "Deliveries", empty: "Nothing was sent yet.",
    row: (each) => ({ key: each.deliveryId, mark: JSON.stringify(each), node: () => delivery(each) }),
  });
  const heading = page(root, { title: ["Webhook ", said(webhookId)], moveFocus: context.moveFocus, back: place(context, "/webhooks", "← All webhooks") },
    about, el("h2", {}, "Deliveries"), deliveries.node);

  async function act(what, done) {
    await attempt(context, what, done);
    refresh();
    deliveries.refresh();
  }

  async function load() {
    const found = await service.find(path, signal);
    if (!found) return about.replaceChildren(el("p", {}, "There is no such webhook."));
    heading.replaceChildren(said(found.value.url));
    return draw(found.value);
  }

  let drawn = "";
  function draw(hook) {
    const mark = JSON.stringify(hook);
    if (mark === drawn) return;
    drawn = mark;
    const button = (text, onclick, tone = "") => el(`button${tone}`, { type: "button", onclick }, text);
    about.replaceChildren(
      hook.description ? el("p", {}, said(hook.description)) : "",
      hook.disabledReason ? el("p.missing", {}, said(hook.disabledReason)) : "",
      hook.failingSince ? el("p.missing", {}, "Only failures since ", when(hook.failingSince), ".") : "",
      el("p.hint", {}, `Told of ${hook.events.join(", ")}.`),
      el("div.actions", {},
        button("Send a test", () => act(() => service.request("POST", `${path}/test`, undefined, signal), "A test is on its way.")),
        button(hook.enabled ? "Switch off" : "Switch on", () => act(() => service.request("PATCH", path, { enabled: !hook.enabled }, signal))),
        button("Change", () => openForm(context, signal, {
          title: "Change the webhook", verb: "Save", hook,
          async send(body) {
            await service.request("PATCH", path, body, signal);
            return refresh;
          },
        })),
        button("New secret", () => act(async () => {
          const { value } = await service.request("POST", `${path}/rotate`, undefined, signal);
          secret("The new signing secret", `${KEEP} The old one signs along for 24 hours.`, value.secret);
        })),
        button("Delete", () => ask("Delete the webhook", {
          hint: "Nothing is sent to it any more, and its deliveries cannot be read any more.", fields: [], verb: "Delete", tone: "reject",
          async submit() {
            await service.request("DELETE", path, undefined, signal);
            return () => context.go("/webhooks");
          },
        }), ".reject")));
  }

  function delivery(each) {
    const last = each.attempts.at(-1);
    const tried = `${each.attempts.length} ${each.attempts.length === 1 ? "attempt" : "attempts"}`;
    return el("details.row", {},
      el("summary", {}, el("strong", {}, each.event), " ", el("span.time", {}, when(each.createdAt)), " ",
        el(`span.note.${TONE[each.status]}`, {}, each.status), " ", el("span.about", {}, tried,
          last ? `, the last: ${last.error ?? last.responseStatus}` : "", each.nextAttemptAt ? ", next " : "", each.nextAttemptAt && when(each.nextAttemptAt))),
      payloadOf("What was sent", exact.read(JSON.stringify(each.payload))),
      el("ol.attempts", {}, each.attempts.map((attempt) => el("li", {}, when(attempt.at), ` · ${attempt.responseStatus ?? "no answer"} · ${attempt.durationMs} ms`,
        attempt.error && [" · ", said(attempt.error)], attempt.responseBody && el("blockquote", {}, said(attempt.responseBody))))),
      el("button", { type: "button", onclick: () => act(
        () => service.request("POST", `${path}/deliveries/${encodeURIComponent(each.deliveryId)}/redeliver`, undefined, signal), "It is sent again.") }, "Send again"));
  }
  const refresh = context.keepFresh(load, [], signal);
}
