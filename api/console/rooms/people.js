// People and keys: who may log in as what, and the API keys of agents.

import { el, when } from "../dom.js";
import { listing } from "../listing.js";
import { ask, attempt, field, page, secret } from "../page.js";
import { said } from "../text.js";

const ROLES = [["viewer", "viewer: reads policies, presets and runs"], ["reviewer", "reviewer: decides approvals, tries policies"], ["admin", "admin: may do everything"]];
const KEEP = "It is shown once and never again. Whoever has it acts as this agent.";

export function open(root, context) {
  const stop = new AbortController();
  const { signal } = stop;
  const { service, notice, user } = context;

  const people = listing(context, {
    path: "/v1/users", topics: [], signal, label: "People", empty: "Nobody.",
    row: (each) => ({ key: each.userId, mark: JSON.stringify(each), node: () => person(each) }),
  });
  const keys = listing(context, {
    path: "/v1/api-keys", topics: [], signal, label: "API keys", empty: "No agent has a key yet.",
    row: (each) => ({ key: each.keyId, mark: JSON.stringify(each), node: () => key(each) }),
  });

  async function act(what, done) {
    await attempt(context, what, done);
    people.refresh();
    keys.refresh();
  }

  const roles = (id, chosen) => el("select", { id }, ROLES.map(([value, text]) => el("option", { value, selected: value === chosen }, text)));
  const password = (id) => el("input", { id, type: "password", required: true, autocomplete: "new-password" });

  function addPerson() {
    const email = el("input", { id: "person-email", type: "email", required: true, autocomplete: "off" });
    const first = password("person-password");
    const role = roles("person-role", "reviewer");
    ask("Add somebody", {
      verb: "Add",
      fields: [field("E-mail", email, { pointer: "/email" }), field("Role", role, { pointer: "/role" }),
        field("First password", first, { pointer: "/password", hint: "They change it themselves afterwards." })],
      async submit() {
        await service.request("POST", "/v1/users", { email: email.value.trim(), password: first.value, role: role.value }, signal);
        return () => { notice(["Added ", said(email.value.trim()), "."]); people.refresh(); };
      },
    });
  }

  function person(each) {
    const path = `/v1/users/${encodeURIComponent(each.userId)}`;
    const own = each.email === user.email;
    const turn = () => service.request("PATCH", path, { enabled: !each.enabled }, signal);
    return el("div.row", {},
      el("strong.subject", {}, said(each.email), own && " (you)"),
      el("span.time", {}, when(each.createdAt)),
      el("span.marks", {}, el("span.note", {}, each.role), !each.enabled && el("span.note.block", {}, "disabled")),
      el("span.actions", {},
        el("button.quiet", { type: "button", onclick: () => {
          const role = roles("change-role", each.role);
          ask("Another role", { hint: ["Of ", said(each.email), "."], verb: "Save", fields: [field("Role", role, { pointer: "/role" })], async submit() {
            await service.request("PATCH", path, { role: role.value }, signal);
            return people.refresh;
          } });
        } }, "Role"),
        el("button.quiet", { type: "button", onclick: () => {
          const next = password("reset-password");
          ask("A new password", {
            verb: "Set", hint: ["Of ", said(each.email), ". It ends every session of theirs."],
            fields: [field("New password", next, { pointer: "/password" })],
            async submit() {
              await service.request("PATCH", path, { password: next.value }, signal);
              return () => notice(["A new password for ", said(each.email), "."]);
            },
          });
        } }, "Password"),
        el("button.quiet", { type: "button", onclick: () => (own ? ask("Disable yourself", {
          hint: "Your session ends at once, and only another admin can let you in again.", fields: [], verb: "Disable", tone: "reject",
          async submit() {
            await turn();
            return people.refresh;
          },
        }) : act(turn, [each.enabled ? "Disabled: " : "Enabled: ", said(each.email), "."])) }, each.enabled ? "Disable" : "Enable")));
  }

  function addKey() {
    const name = el("input", { id: "key-name", required: true, maxLength: 200 });
    const agent = el("input", { id: "key-agent", maxLength: 200, spellcheck: false });
    const end = el("input", { id: "key-end", type: "date" });
    ask("Add a key", {
      verb: "Add",
      fields: [field("Name", name, { pointer: "/name", hint: "For people: what the key is for." }),
        field("Agent", agent, { pointer: "/agentId", hint: "The agent that it is bound to. Without one, its holder may claim to be any agent." }),
        field("Ends", end, { pointer: "/expiresAt", hint: "From the beginning of this day on it is refused. Without one it never ends by itself." })],
      async submit() {
        const { value } = await service.request("POST", "/v1/api-keys",
          { name: name.value.trim(), ...(agent.value.trim() && { agentId: agent.value.trim() }),
            ...(end.value && { expiresAt: new Date(`${end.value}T00:00`).toISOString() }) }, signal);
        return () => { keys.refresh(); secret("The new API key", KEEP, value.key); };
      },
    });
  }

  function key(each) {
    const path = `/v1/api-keys/${encodeURIComponent(each.keyId)}`;
    const over = each.expiresAt && new Date(each.expiresAt) <= Date.now();
    const works = !each.revokedAt && !over;
    // Several may have one name, and rows move while others add to them.
    const named = () => [el("strong", {}, said(each.name)), " ", el("code", {}, each.prefix), "…"];
    return el("div.row", {},
      el("strong.subject", {}, said(each.name)),
      el("span.time", {}, when(each.createdAt)),
      el("span.about", {}, el("code", {}, each.prefix), "… · by ", said(each.createdBy), " · ",
        each.lastUsedAt ? ["last used ", when(each.lastUsedAt)] : "never used", each.expiresAt && [over ? " · ended " : " · ends ", when(each.expiresAt)]),
      el("span.marks", {},
        each.agentId ? el("span.note", {}, said(each.agentId)) : works && el("span.note.warn", {}, "bound to no agent"),
        each.revokedAt ? el("span.note.block", {}, "revoked") : over && el("span.note.block", {}, "ended")),
      works && el("span.actions", {},
        el("button.quiet", { type: "button", onclick: () => ask("A new secret", {
          hint: ["Of the key ", named(), ". The old one stops at once."], fields: [], verb: "Replace",
          async submit() {
            const { value } = await service.request("POST", `${path}/rotate`, undefined, signal);
            return () => { keys.refresh(); secret("The new API key", KEEP, value.key); };
          },
        }) }, "Rotate"),
        el("button.quiet", { type: "button", onclick: () => ask("Revoke the key", {
          hint: [named(), ": whoever uses it is refused from now on. This cannot be taken back."], fields: [], verb: "Revoke", tone: "reject",
          async submit() {
            await service.request("DELETE", path, undefined, signal);
            return () => { keys.refresh(); notice(["Revoked: ", said(each.name), "."]); };
          },
        }) }, "Revoke")));
  }

  page(root, { title: "People and keys", moveFocus: context.moveFocus },
    el("h2", {}, "People"), el("div.actions", {}, el("button.primary", { type: "button", onclick: addPerson }, "Add somebody")), people.node,
    el("h2", {}, "API keys"), el("div.actions", {}, el("button.primary", { type: "button", onclick: addKey }, "Add a key")), keys.node);
  return () => stop.abort();
}
