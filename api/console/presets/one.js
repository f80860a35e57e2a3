// One preset, or one pack: what it does, its parameters, a preview of what becomes active, and activating it.

import { el, notice } from "../dom.js";
import * as exact from "../exact.js";
import { address, page, place, tell } from "../page.js";
import { conditions, effect, examples, extras, marks } from "../policies/words.js";
import { said } from "../text.js";
import { activeMark, presetRow } from "./rows.js";
import { settingsForm } from "./settings.js";
import { filled, valueFields } from "./values.js";

/** `Map` from preset id to `{preset, tree}`. */
async function allPresets(service, signal) {
  const { value, text } = await service.request("GET", "/v1/policy-presets", undefined, signal);
  const trees = exact.read(text).items;
  return new Map(value.flatMap(({ presets }, group) => presets.map((preset, number) =>
    [preset.presetId, { preset, tree: exact.member(trees[group], "presets").items[number] }])));
}

/** Shows what `load` gives as `{title, parts}`, made anew only when its `mark` changed, and nothing is written in it. */
function openOne(root, context, { signal, load }) {
  let written = false;
  const content = el("div.one", { oninput: () => { written = true; } });
  const changed = el("div", { role: "status" });
  const heading = page(root, { title: "…", moveFocus: context.moveFocus, back: place(context, "/presets", "← All presets") }, changed, content);
  let known = null;
  const refresh = context.keepFresh(async () => {
    const found = await load(() => { [known, written] = [null, false]; refresh(); });
    if (found?.mark === known && known !== null) return;
    const kept = known !== null && written;
    changed.replaceChildren(kept ? el("p.missing", {}, "Somebody has changed this meanwhile. What you wrote is kept; load the page again to see it as it is now.") : "");
    if (kept) return;
    known = found?.mark ?? null;
    heading.replaceChildren(found ? said(found.title) : "It is not here");
    content.replaceChildren(...(found ? found.parts().filter(Boolean) : [el("p", {}, "There is no such preset or pack.")]));
  }, ["policy"], signal, 1000);
}

export function openPreset(root, context, presetId, signal) {
  openOne(root, context, {
    signal,
    async load(again) {
      const [presets, { value: made }] = await Promise.all([
        allPresets(context.service, signal),
        context.service.request("GET", `/v1/policies?presetId=${encodeURIComponent(presetId)}`, undefined, signal)]);
      const found = presets.get(presetId);
      return found && {
        title: found.preset.name,
        mark: JSON.stringify([found.preset, made.map(({ policyId, version }) => [policyId, version])]),
        parts: () => presetParts(context, found, made, again, signal),
      };
    },
  });
}

function presetParts(context, { preset, tree }, made, again, signal) {
  const preview = el("div.preview", { role: "status" });
  const known = parametersOf([preset]);
  const fields = valueFields(known, "parameters", show);

  function show() {
    const { matchConditions, message, rateLimit, approval } = preset;
    const policy = filled({ matchConditions, message, rateLimit, approval }, { ...defaults(known), ...fields.read() });
    preview.replaceChildren(el("p", {}, effect({ ...preset, ...policy })), conditions(policy.matchConditions),
      extras({ ...preset, ...policy, presetId: undefined }, context));
  }

  show();
  return [
    el("p.line", {}, marks({ ...preset, enabled: true, missingSettings: undefined }), activeMark(preset), el("code", {}, preset.presetId)),
    preset.description && el("p.description", {}, said(preset.description.trim())),
    el("section", {}, el("h2", {}, "What it does"), preview),
    made.length > 0 && el("section", {}, el("h2", {}, "Policies made from it"), madeList(context, made)),
    activation(context, {
      path: `/v1/policy-presets/${encodeURIComponent(preset.presetId)}/activate`,
      fields, again, signal,
      missing: preset.missingSettings ?? [],
      preview: made.length ? null : el("p", {}, "It becomes the policy ", el("code", {}, preset.presetId), ", and is in force at once."),
      button: made.length ? null : "Activate",
    }),
    el("section", {}, el("h2", {}, "Examples"), examples(tree)),
  ];
}

function madeList(context, made) {
  return el("ul.rows", { "aria-label": "Policies made" }, made.map((policy) => el("li", {}, place(context, address("policies", policy.policyId),
    el("strong.subject", {}, said(policy.name)), el("span.marks", {}, marks(policy)), el("span.about", {}, policy.policyId)))));
}

export function openPack(root, context, packId, signal) {
  openOne(root, context, {
    signal,
    async load(again) {
      const [presets, { value: packs }] = await Promise.all([
        allPresets(context.service, signal),
        context.service.request("GET", "/v1/policy-presets/packs", undefined, signal)]);
      const pack = packs.find((each) => each.packId === packId);
      const members = pack?.presetIds.map((each) => presets.get(each)?.preset).filter(Boolean);
      return pack && { title: pack.name, mark: JSON.stringify([pack, members]), parts: () => packParts(context, pack, members, again, signal) };
    },
  });
}

function packParts(context, pack, members, again, signal) {
  const idle = members.filter((each) => !each.activated);
  const resting = members.filter((each) => each.notInForce);
  const active = members.filter((each) => each.activated && !each.notInForce);
  const list = (title, presets) => presets.length > 0 && el("section", {}, el("h2", {}, title),
    el("ul.rows", { "aria-label": title }, presets.map((preset) => el("li", {}, presetRow(context, preset)))));
  const count = (number) => `${number} ${number === 1 ? "policy" : "policies"}`;
  const waiting = idle.filter((each) => each.missingSettings).length;
  return [
    el("p.line", {}, el("span.note", {}, `${active.length} of ${members.length} active`), el("code", {}, pack.packId)),
    pack.description && el("p.description", {}, said(pack.description.trim())),
    activation(context, {
      path: `/v1/policy-presets/packs/${encodeURIComponent(pack.packId)}/activate`,
      fields: valueFields(parametersOf(members), "parameters"), again, signal,
      missing: [...new Set(members.flatMap((each) => each.missingSettings ?? []))],
      preview: el("p", { role: "status" }, idle.length
        ? `${count(idle.length)} would become active${waiting ? `, ${waiting === idle.length ? "all" : waiting} of them once the settings have values` : ""}.`
        : "All of its policies exist."),
      button: idle.length ? `Activate ${count(idle.length)}` : null,
    }),
    list("Would become active", idle),
    list("Made, but not in force", resting),
    list("Active already", active),
  ];
}

/** Each parameter of the presets once. */
function parametersOf(presets) {
  const all = Object.assign({}, ...presets.map((each) => each.parameters));
  return Object.entries(all).map(([name, { type = "string", description, default: usual }]) => ({ name, type, description, usual }));
}

const defaults = (known) => Object.fromEntries(known.map(({ name, usual }) => [name, usual]));

/** Settings that are missing, parameters, what becomes active, and the button; for who is no admin what is missing only. */
function activation(context, { path, fields, missing, preview, button, again, signal }) {
  const settings = el("div");
  const names = missing.map((name) => `“${name}”`).join(", ");
  const waits = missing.length > 0 && el("div", {},
    el("p.missing", {}, `What needs settings is inactive until the organisation has ${names}.`), settings);
  if (context.user.role !== "admin") return waits;
  if (missing.length) {
    settingsForm(context, settings, { names: missing, signal, done: again }).catch((error) => {
      if (!signal.aborted) settings.replaceChildren(el("p.problem", { role: "alert" }, context.service.isAway(error) ? "The settings cannot be read just now." : error.message));
    });
  }
  const form = el("form", {
    "aria-label": "Activate", noValidate: true,
    async onsubmit(event) {
      event.preventDefault();
      const parameters = fields.read();
      try {
        const { value } = await context.service.request("POST", path, { parameters });
        const made = [value].flat();
        notice(made.length === 1 ? [said(made[0].name), " is active."] : `${made.length} policies are active.`);
        again();
      } catch (error) {
        tell(form, error);
      }
    },
  }, fields.nodes, preview, el("p.problem", { role: "alert" }), button && el("p.closing", {}, el("button.primary", { type: "submit" }, button)));
  if (!button && !waits) return null;
  return el("section", {}, el("h2", {}, "Activate"), waits, button && form);
}
