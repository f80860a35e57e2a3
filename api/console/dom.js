// Builds elements. Text always goes in as text, never as markup, so nothing an agent sends can act on the page.

/** el("p.note", {title: "x"}, "text", child): a tag with classes, its properties, its children. */
export function el(spec, props = {}, ...children) {
  const [tag, ...classes] = spec.split(".");
  const node = document.createElement(tag || "div");
  if (classes.length) node.className = classes.join(" ");
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node && name !== "list") node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// Control characters, and those that reorder or hide text: a reviewer must see them, not their effect.
const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff\u{e0000}-\u{e007f}]/gu;

/** Text as nodes, with every invisible character shown as a marked \u{...}. */
export function visible(text) {
  const nodes = [];
  let from = 0;
  for (const found of text.matchAll(INVISIBLE)) {
    nodes.push(text.slice(from, found.index));
    const code = found[0].codePointAt(0).toString(16).padStart(4, "0");
    nodes.push(el("span.invisible", { title: "an invisible character" }, `\\u{${code}}`));
    from = found.index + found[0].length;
  }
  nodes.push(text.slice(from));
  return nodes;
}

/** A JSON value as indented text. Numbers and key order are as the service sent them. */
export function json(value) {
  return el("pre.json", { tabIndex: 0 }, visible(JSON.stringify(value, null, 2)));
}

const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

/** A time element that says "3 minutes ago" and holds the exact time. */
export function when(iso) {
  const seconds = (new Date(iso) - Date.now()) / 1000;
  const [unit, size] = UNITS.find(([, size]) => Math.abs(seconds) >= size) ?? UNITS[3];
  const text = Math.abs(seconds) < 1 ? "now" : relative.format(Math.round(seconds / size), unit);
  return el("time", { dateTime: iso, title: new Date(iso).toLocaleString() }, text);
}

/** A short message at the foot of the page; `kind` is "good" or "bad". */
export function notice(text, kind = "good") {
  const node = el(`p.notice.${kind}`, {}, text);
  document.getElementById("notices").append(node);
  setTimeout(() => node.remove(), 8000);
}
