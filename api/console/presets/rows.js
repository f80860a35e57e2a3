// Packs and presets as rows of a list.

import { el } from "../dom.js";
import { address, place } from "../page.js";
import { ACTIONS } from "../policies/words.js";
import { said } from "../text.js";

export function packRow(context, pack) {
  return place(context, `/presets/packs/${encodeURIComponent(pack.packId)}`,
    el("strong.subject", {}, said(pack.name)),
    el("span.marks", {}, el(`span.note${pack.activatedCount === pack.presetCount ? ".good" : ""}`, {}, `${pack.activatedCount} of ${pack.presetCount} active`)),
    el("span.about.whole", {}, said(pack.description?.trim() ?? pack.packId)));
}

export function presetRow(context, preset) {
  return place(context, address("presets", preset.presetId),
    el("strong.subject", {}, said(preset.name)),
    el("span.marks", {},
      el(`span.note.${preset.action}`, {}, ACTIONS[preset.action]),
      preset.mode === "shadow" && el("span.note", {}, "Shadow"),
      preset.activated && el("span.note.good", {}, "Active"),
      preset.missingSettings && el("span.note.warn", {}, "Needs settings")),
    el("span.about.whole", {}, said(preset.description?.trim() ?? preset.presetId)));
}
