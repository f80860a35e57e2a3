// The presets room: packs and presets; below `/presets/<presetId>` and `/presets/packs/<packId>` what one does, with its
// parameters, and making policies of it; at `/presets/settings` what policies know of the organisation.

import { arrange, el } from "../dom.js";
import { field, page, place } from "../page.js";
import { openPack, openPreset } from "../presets/one.js";
import { packRow, presetRow } from "../presets/rows.js";
import { settingsForm } from "../presets/settings.js";
import { said } from "../text.js";

export function open(root, context) {
  const stop = new AbortController();
  const [first, ...rest] = context.place.split("/");
  if (!first) openList(root, context, stop.signal);
  else if (first === "packs") openPack(root, context, rest.join("/"), stop.signal);
  else if (first === "settings" && context.user.role === "admin") openSettings(root, context, stop.signal);
  else openPreset(root, context, context.place, stop.signal);
  return () => stop.abort();
}

function openSettings(root, context, signal) {
  const box = el("div");
  page(root, { title: "Settings of the organisation", moveFocus: context.moveFocus, back: place(context, "/presets", "← All presets") },
    el("p.hint", {}, "What policies know of the organisation. One that reads a setting without a value is inactive."), box);
  const load = () => settingsForm(context, box, { signal, done: load }).catch((error) => {
    if (!signal.aborted) box.replaceChildren(el("p.problem", { role: "alert" }, context.service.isAway(error) ? "The service cannot be reached. Load this page again in a moment." : error.message));
  });
  load();
}

function openList(root, context, signal) {
  const { service } = context;
  const sought = new URLSearchParams(location.search);
  const search = el("input", { id: "filter-search", type: "search", value: sought.get("search") ?? "", spellcheck: false, maxLength: 200, oninput: () => filter() });
  const count = el("span.count", { role: "status" });
  const none = el("p.empty", { hidden: true }, "No preset is like that.");
  const lists = el("div");
  let known = "";
  let presets = [];

  async function load() {
    const [found, packs] = await Promise.all([
      service.request("GET", "/v1/policy-presets", undefined, signal), service.request("GET", "/v1/policy-presets/packs", undefined, signal)]);
    const mark = found.text + packs.text;
    if (mark === known) return;
    known = mark;
    const categories = [["Packs", packs.value.map((pack) => [pack, packRow(context, pack)])],
      ...found.value.map(({ category, presets: all }) => [category, all.map((preset) => [preset, presetRow(context, preset)])])];
    presets = categories.map(([title, items]) => {
      const rows = items.map(([item, link]) => ({
        li: el("li", {}, link), text: `${item.name} ${item.description ?? ""} ${item.presetId ?? item.packId} ${item.category ?? "pack"}`.toLowerCase(),
      }));
      const list = el("ul.rows", { "aria-label": title }, rows.map((each) => each.li));
      return { section: el("section", {}, el("h2.category", {}, said(title)), list), list, rows };
    });
    lists.replaceChildren(...presets.map((each) => each.section));
    filter();
  }

  function filter() {
    const words = search.value.trim().toLowerCase();
    let left = 0;
    for (const { section, list, rows } of presets) {
      const wanted = rows.filter(({ text }) => text.includes(words));
      arrange(list, wanted.map(({ li }) => li));
      section.hidden = !wanted.length;
      left += wanted.length;
    }
    const text = left.toLocaleString("en");
    if (count.textContent !== text) count.textContent = text;
    none.hidden = left > 0 || !known;
    history.replaceState(null, "", `/presets${words ? `?${new URLSearchParams({ search: search.value.trim() })}` : ""}`);
  }

  page(root, { title: "Presets", moveFocus: context.moveFocus },
    el("p.hint", {}, "Ready-made policies, and packs of them. A preset decides nothing until an admin activates it."),
    context.user.role === "admin" && el("p.links", {}, place(context, "/presets/settings", "Settings of the organisation")),
    el("div.filters", { role: "search" }, field("Search", search), count), none, lists);
  context.keepFresh(load, ["policy"], signal, 1000);
}
