// Fields for typed values: the parameters of presets, and the settings of the organisation.

import { el } from "../dom.js";
import { field } from "../page.js";

const HINTS = { list: "one on each line", number: "a number", integer: "a whole number", boolean: "", string: "" };
const NUMBER = /^-?\d+(\.\d+)?$/;

/** A value as people read it; `{{name}}` is the organisation's setting of that name. */
export function shown(value) {
  const setting = typeof value === "string" && /^\{\{(\w+)\}\}$/.exec(value);
  if (setting) return `the organisation’s “${setting[1]}”`;
  return Array.isArray(value) ? value.join(", ") : String(value);
}

/**
 * Fields for `known`, `[{name, type, description, usual}]`, below `/<pointer>/` in what the service refuses. `usual` is what
 * holds while nothing is written, `value` what is. Returns `{nodes, read}`; `read()` gives what is written, by name.
 */
export function valueFields(known, pointer, onchange = () => {}) {
  const controls = known.map((each) => [each, control(each, `${pointer}-${each.name}`, onchange)]);
  const nodes = controls.map(([each, node]) => field(each.name, node, {
    pointer: `/${pointer}/${each.name}`,
    hint: [each.description, HINTS[each.type], each.usual !== undefined && `Left empty: ${shown(each.usual)}.`].filter(Boolean).join(" · "),
  }));
  const read = () => Object.fromEntries(controls
    .map(([{ name, type }, node]) => [name, parsed(type, node.value)])
    .filter(([, value]) => value !== undefined));
  return { nodes, read };
}

function control({ type, value }, id, oninput) {
  if (type === "list") return el("textarea", { id, rows: 3, spellcheck: false, value: (value ?? []).join("\n"), oninput });
  if (type === "boolean") {
    return el("select", { id, onchange: oninput }, [["", "As it is"], ["true", "Yes"], ["false", "No"]]
      .map(([each, title]) => el("option", { value: each, selected: String(value ?? "") === each }, title)));
  }
  return el("input", { id, spellcheck: false, value: value === undefined ? "" : String(value), inputMode: type === "string" ? "text" : "decimal", oninput });
}

function parsed(type, text) {
  const trimmed = text.trim();
  if (!trimmed) return undefined;
  if (type === "list") return trimmed.split("\n").map((each) => each.trim()).filter(Boolean);
  if (type === "boolean") return trimmed === "true";
  // What is no number is sent as it is: the service says what is wrong with it.
  return type !== "string" && NUMBER.test(trimmed) ? Number(trimmed) : trimmed;
}

/** A part of a preset with `values` where their placeholders stand. */
export function filled(part, values) {
  if (typeof part === "string") {
    const whole = /^\{\{(\w+)\}\}$/.exec(part);
    if (whole && Object.hasOwn(values, whole[1])) return values[whole[1]];
    return part.replace(/\{\{(\w+)\}\}/g, (all, name) => (Object.hasOwn(values, name) ? shown(values[name]) : all));
  }
  if (Array.isArray(part)) return part.flatMap((each) => filled(each, values));
  if (part && typeof part === "object") return Object.fromEntries(Object.entries(part).map(([name, each]) => [name, filled(each, values)]));
  return part;
}
