// The channels room: by which people of the organisation are told, whether it arrives, and the secrets that this needs, whose
// values are shown to nobody. Below `/channels/<name>` one channel with what was sent by it.

import { channelForm, current, put } from "../channels/form.js";
import { el, when } from "../dom.js";
import { listing } from "../listing.js";
import { address, ask, attempt, field, page, place } from "../page.js";
import { said } from "../text.js";

const TONE = { delivered: "allow", failed: "block", pending: "warn", dropped: "plain" };

export function open(root, context) {
  const stop = new AbortController();
  if (context.place) openOne(root, context, stop.signal);
  else openList(root, context, stop.signal);
  return () => stop.abort();
}

function openList(root, context, signal) {
  const { service } = context;
  const channels = listing(context, {
    path: "/v1/notifications/channels", paged: false, topics: ["policy"], signal, label: "Channels",
    empty: "Nobody is told by mail or chat yet.",
    row: (channel) => ({ key: channel.name, mark: JSON.stringify(channel), node: () => row(context, channel) }),
  });
  const secrets = listing(context, {
    path: "/v1/notifications/secrets", paged: false, topics: [], signal, label: "Secrets", empty: "None is kept.",
    row: (secret) => ({ key: secret.name, mark: JSON.stringify(secret), node: () => kept(secret) }),
  });
  const done = () => {
    channels.refresh();
    secrets.refresh();
  };

  function kept(secret) {
    const path = `/v1/notifications/secrets/${encodeURIComponent(secret.name)}`;
    return el("div.row", {},
      el("strong.subject", {}, said(secret.name)), el("span.time", {}, when(secret.updatedAt)),
      el("span.about", {}, "kept by ", said(secret.updatedBy), "; nobody can read it"),
      el("span.actions", {}, el("button.quiet", { type: "button", onclick: () => replace(secret.name) }, "Replace"),
        el("button.quiet", { type: "button", onclick: () => ask("Forget the secret", {
          hint: ["Channels that need “", said(secret.name), "” send nothing until it is kept again."], fields: [], verb: "Forget", tone: "reject",
          async submit() {
            await service.request("DELETE", path, undefined, signal);
            return done;
          },
        }) }, "Forget")));
  }

  function replace(name) {
    const value = el("input", { id: "secret-value", type: "password", required: true, autocomplete: "off" });
    ask("Replace the secret", {
      hint: ["What “", said(name), "” stands for: the address of a chat’s webhook, or the password of mail."],
      fields: [field("New value", value, { pointer: "/value" })], verb: "Replace",
      async submit() {
        await service.request("POST", "/v1/notifications/secrets", { name, value: value.value }, signal);
        return done;
      },
    });
  }

  page(root, { title: "Channels", moveFocus: context.moveFocus },
    el("p.hint", {}, "Mail and chats by which people are told of what waits for them."),
    el("div.actions", {}, el("button.primary", { type: "button", onclick: () => channelForm(context, { signal, done }) }, "Add a channel")),
    channels.node, el("h2", {}, "Secrets"), secrets.node);
}

function row(context, channel) {
  return place(context, address("channels", channel.name),
    el("strong.subject", {}, said(channel.name)),
    el("span.about", {}, channel.problem ? said(channel.problem) : channel.events.join(", ")),
    el("span.marks", {},
      el("span.note", {}, channel.type),
      channel.problem ? el("span.note.block", {}, "sends nothing") : channel.failingSince && el("span.note.block", {}, "failing")));
}

function openOne(root, context, signal) {
  const { service, place: name } = context;
  const path = `/v1/notifications/channels/${encodeURIComponent(name)}`;
  const about = el("div.one");
  const notices = listing(context, {
    path: `${path}/notices`, topics: ["approval", "halt"], signal, label: "What was sent", empty: "Nothing was sent yet.",
    row: (notice) => ({ key: notice.noticeId, mark: JSON.stringify(notice), node: () => sent(context, notice) }),
  });
  page(root, { title: ["Channel ", said(name)], moveFocus: context.moveFocus, back: place(context, "/channels", "← All channels") },
    about, el("h2", {}, "What was sent"), notices.node);
  let drawn = "";

  async function load() {
    const { value } = await service.request("GET", "/v1/notifications/channels", undefined, signal);
    const channel = value.find((each) => each.name === name);
    if (!channel) return about.replaceChildren(el("p", {}, "There is no such channel."));
    const mark = JSON.stringify(channel);
    if (mark !== drawn) draw(channel);
    drawn = mark;
    return undefined;
  }

  function draw(channel) {
    const button = (text, onclick, tone = "") => el(`button${tone}`, { type: "button", onclick }, text);
    about.replaceChildren(
      channel.problem ? el("p.missing", {}, "Nothing can be sent: ", said(channel.problem)) : "",
      channel.failingSince ? el("p.missing", {}, "Only failures since ", when(channel.failingSince), ".") : "",
      el("dl.known", {}, el("dt", {}, "Kind"), el("dd", {}, channel.type), el("dt", {}, "Told of"), el("dd", {}, channel.events.join(", ")),
        Object.entries(channel.settings).flatMap(([key, value]) => [el("dt", {}, said(key)), el("dd", {}, said([value].flat().join(", ")))])),
      el("div.actions", {},
        button("Send a test", () => attempt(context, async () => {
          await service.request("POST", `${path}/test`, undefined, signal);
          notices.refresh();
        }, "A test is on its way.")),
        button("Change", () => channelForm(context, { channel, signal, done: refresh })),
        button("Remove", () => ask("Remove the channel", {
          hint: "What it still had to send is not sent.", fields: [], verb: "Remove", tone: "reject",
          async submit() {
            await put(service, name, null, signal, await current(service, signal));
            return () => context.go("/channels");
          },
        }), ".reject")));
  }

  const refresh = context.keepFresh(load, ["policy"], signal);
}

function sent(context, notice) {
  const last = notice.attempts.at(-1);
  return el("div.row", {},
    el("strong.subject", {}, notice.event), el("span.time", {}, when(notice.createdAt)),
    el("span.about", {}, notice.attempts.length === 0 ? "not tried yet"
      : [`${notice.attempts.length} ${notice.attempts.length === 1 ? "attempt" : "attempts"}, the last: `, said(last.error ?? String(last.responseStatus))],
    notice.nextAttemptAt && [", next ", when(notice.nextAttemptAt)]),
    el("span.marks", {}, notice.approvalId && place(context, `/approvals?status=all&approvalId=${encodeURIComponent(notice.approvalId)}`, "The approval"), " ",
      el(`span.note.${TONE[notice.status]}`, {}, notice.status)));
}
