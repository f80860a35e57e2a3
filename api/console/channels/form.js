// The form of a channel, which is a part of the organisation's settings; its secret goes beside them and never comes back.

import { el, notice } from "../dom.js";
import { ask, field } from "../page.js";
import { said } from "../text.js";

const EVENTS = {
  "approval.requested": "somebody has to decide", "approval.unseen": "nobody has opened it", "approval.expiring": "it ends soon",
  "approval.escalated": "it waits for an admin", "agent.halted": "agents were halted", "alert.raised": "something is unusual", "tool.blocked": "a call was blocked", "policy.reload_failed": "policy files do not load",
};
const TYPES = [["email", "Mail"], ["slack", "Slack"], ["teams", "Teams (a workflow)"], ["mattermost", "Mattermost"]];
const SECURITY = [["starttls", "STARTTLS"], ["tls", "TLS from the beginning"], ["none", "none (only hosts that are allowed)"]];
const NUMBERS = [
  ["unseenMinutes", "Unseen after", "minutes", 15], ["expiringMinutes", "Expiring before", "minutes", 10],
  ["groupSeconds", "Together within", "seconds", 60],
];
const told = (channel) => channel && JSON.stringify([channel.type, channel.events, channel.settings]);
const escaped = (name) => name.replaceAll("~", "~0").replaceAll("/", "~1");

/** The settings as they are, with the state that they are in, for `put`. */
export async function current(service, signal) {
  const { value: { settings }, etag } = await service.request("GET", "/v1/organisation/settings", undefined, signal);
  return { settings, etag };
}

/** Stores the channel of this name among the settings; null takes it away. */
export async function put(service, name, channel, signal, { settings, etag }) {
  const { [name]: _, ...others } = settings.notifications ?? {};
  const notifications = channel ? { ...others, [name]: channel } : others;
  const { notifications: before, ...rest } = settings;
  const next = Object.keys(notifications).length ? { ...rest, notifications } : rest;
  await service.request("PUT", "/v1/organisation/settings", { settings: next }, signal, { ifMatch: etag });
}

/** `channel` as it is; without one a new one is made. */
export function channelForm(context, { channel, signal, done }) {
  const { service } = context;
  const was = channel?.settings ?? {};
  const text = (member, properties = {}) => el("input", { id: `channel-${member}`, value: was[member] ?? "", spellcheck: false, autocomplete: "off", ...properties });
  const choice = (member, options, chosen, onchange) => el("select", { id: `channel-${member}`, onchange },
    options.map(([value, title]) => el("option", { value, selected: value === chosen }, title)));
  const name = el("input", { id: "channel-name", required: true, maxLength: 63, spellcheck: false, value: channel?.name ?? "", disabled: Boolean(channel) });
  const type = choice("type", TYPES, channel?.type ?? "email", arrange);
  // What this page does not know stays.
  const boxes = [...new Set([...Object.keys(EVENTS), ...(channel?.events ?? [])])].map((event) => el("input", { type: "checkbox", id: `told-${event}`, value: event,
    checked: channel ? channel.events.includes(event) : event.startsWith("approval.") }));
  const mail = {
    to: el("textarea", { id: "channel-to", rows: 2, spellcheck: false, value: (was.to ?? []).join("\n") }),
    from: text("from"), server: text("server"), port: text("port", { inputMode: "numeric" }),
    security: choice("security", SECURITY, was.security ?? "starttls"), username: text("username"),
  };
  const secret = el("input", { id: "channel-secret", type: "password", autocomplete: "off" });
  const numbers = NUMBERS.map(([member, , , usual]) => text(member, { inputMode: "numeric", value: was[member] ?? usual }));
  const secretField = field("", secret, { hint: channel ? "Left empty, it stays." : "Kept encrypted, and shown to nobody." });
  const mailFields = [
    field("To", mail.to, { hint: "One address on each line." }), field("From", mail.from), field("Server", mail.server, { hint: "Such as smtp.acme.com." }),
    field("Port", mail.port, { hint: "Left empty: 587, with TLS 465." }), field("Encryption", mail.security),
    field("User name", mail.username, { hint: "If the server asks for one; then with a password." }),
  ];

  function arrange() {
    const isMail = type.value === "email";
    for (const each of mailFields) each.hidden = !isMail;
    secretField.querySelector("label").textContent = isMail ? "Password" : "Address of its incoming webhook";
  }

  function read() {
    const values = { type: type.value, events: boxes.filter((box) => box.checked).map((box) => box.value) };
    const add = (member, value) => { if (value !== "" && value !== undefined) values[member] = value; };
    NUMBERS.forEach(([member], at) => add(member, number(numbers[at].value)));
    if (type.value === "email") {
      values.to = mail.to.value.split("\n").map((each) => each.trim()).filter(Boolean);
      for (const member of ["from", "server", "username"]) add(member, mail[member].value.trim());
      add("port", number(mail.port.value));
      values.security = mail.security.value;
    }
    return values;
  }

  async function submit() {
    const called = channel?.name ?? name.value.trim();
    point(called);
    const values = read();
    const reference = was.secret ?? called;
    const state = await current(service, signal); // before it is compared, so that nothing comes between
    await compare(called);
    if (secret.value) await service.request("POST", "/v1/notifications/secrets", { name: reference, value: secret.value }, signal);
    if (secret.value || was.secret) values.secret = reference;
    await put(service, called, values, signal, state);
    return () => {
      done();
      notice([channel ? "Changed: " : "Added: ", said(called), ". A test tells whether it arrives."]);
    };
  }

  /** INVARIANT: what is replaced is what was seen when the form was opened; a new channel replaces none. */
  async function compare(called) {
    const { value: channels } = await service.request("GET", "/v1/notifications/channels", undefined, signal);
    const now = channels.find((each) => each.name === called);
    const taken = !channel && now ? "there is a channel of this name"
      : secret.value && !was.secret && channels.some((each) => each.name !== called && each.settings.secret === called) ? "another channel has a secret of this name" : null;
    if (taken) throw new service.Problem(409, { errors: [{ pointer: name.dataset.pointer, message: `${taken}; give another one` }] });
    if (channel && told(now) !== told(channel)) throw new service.Problem(409, { detail: "Somebody has changed this channel since you opened it. Close this, and look at it" });
  }

  /** Where the service says that something is wrong depends on the name. */
  function point(called) {
    const base = `/settings/notifications/${escaped(called)}`;
    name.dataset.pointer = base;
    type.dataset.pointer = `${base}/type`;
    events.dataset.pointer = `${base}/events`;
    secret.dataset.pointer = `${base}/secret`;
    NUMBERS.forEach(([member], at) => { numbers[at].dataset.pointer = `${base}/${member}`; });
    for (const [member, control] of Object.entries(mail)) control.dataset.pointer = `${base}/${member}`;
  }

  const events = el("fieldset.field", {}, el("legend", {}, "What it is told of"),
    boxes.map((box) => el("label.choice", { htmlFor: box.id }, box, ` ${[box.value, EVENTS[box.value]].filter(Boolean).join(": ")}`)));
  arrange();
  ask(channel ? "Change the channel" : "Add a channel", {
    verb: channel ? "Save" : "Add",
    fields: [
      !channel && field("Name", name, { hint: "Small letters, digits and -, such as on-call." }), field("Kind", type), secretField, mailFields, events,
      el("details", {}, el("summary", {}, "When"), NUMBERS.map(([, title, unit], at) => field(`${title}, in ${unit}`, numbers[at]))),
    ].filter(Boolean),
    submit,
  });
}

/** What is no number is sent as it is: the service says what is wrong with it. */
function number(text) {
  const trimmed = text.trim();
  return /^\d+$/.test(trimmed) ? Number(trimmed) : trimmed;
}
