// Packs and presets as rows of a list.

import { el } from "../dom.js";
import { address, place } from "../page.js";
import { ACTIONS } from "../policies/words.js";
import { said } from "../text.js";

export function packRow(context, pack) {
  return place(context, `/presets/packs/${encodeURIComponent(pack.packId)}`,
    el("strong.subject", {}, said(pack.name)),
    el("span.marks", {}, el(`span.note${pack.inForceCount === pack.presetCount ? ".good" : ""}`, {}, `${pack.inForceCount} of ${pack.presetCount} active`)),
    el("span.about.whole", {}, said(pack.description?.trim() ?? pack.packId)));
}

/** Whether a policy made from it acts; nothing when there is none. */
export const activeMark = ({ activated, notInForce }) =>
  activated && (notInForce ? el("span.note.warn", {}, "Not in force") : el("span.note.good", {}, "Active"));

export function presetRow(context, preset) {
  return place(context, address("presets", preset.presetId),
    el("strong.subject", {}, said(preset.name)),
    el("span.marks", {},
      el(`span.note.${preset.action}`, {}, ACTIONS[preset.action]),
      preset.mode === "shadow" && el("span.note", {}, "Shadow"),
      activeMark(preset),
      preset.missingSettings && el("span.note.warn", {}, "Needs settings")),
    el("span.about.whole", {}, said(preset.description?.trim() ?? preset.presetId)));
}
