// Builds and moves elements. Text always goes in as text, never as markup, so nothing an agent sends can act on the page.

/** el("p.note", {title: "x"}, "text", child): a tag with classes, its properties, its children. */
export function el(spec, props = {}, ...children) {
  const [tag, ...classes] = spec.split(".");
  const node = document.createElement(tag);
  if (classes.length) node.className = classes.join(" ");
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node) node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  const found = children.flat(3).filter((child) => child !== null && child !== undefined && child !== false);
  // A call takes so many arguments and no more.
  for (let from = 0; from < found.length; from += 10_000) node.append(...found.slice(from, from + 10_000));
  return node;
}

/** Makes `nodes` the children of `parent`, moving only what is out of place, so that focus and scrolling stay. */
export function arrange(parent, nodes) {
  const wanted = new Set(nodes);
  for (const child of [...parent.childNodes]) if (!wanted.has(child)) child.remove();
  let place = parent.firstChild;
  for (const node of nodes) {
    if (node === place) place = place.nextSibling;
    else parent.insertBefore(node, place);
  }
}

const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

function ago(iso) {
  const seconds = (new Date(iso) - Date.now()) / 1000;
  if (Math.abs(seconds) < 5) return "just now";
  // 59.9 minutes are an hour.
  const [unit, size] = UNITS.find(([, each]) => Math.abs(seconds) >= each * 0.99);
  return relative.format(Math.round(seconds / size), unit);
}

/** A time element that says "3 minutes ago", keeps saying what is true, and holds the exact time. */
export function when(iso) {
  return el("time", { dateTime: iso, title: new Date(iso).toLocaleString() }, ago(iso));
}

setInterval(() => {
  for (const node of document.querySelectorAll("time")) {
    const text = ago(node.dateTime);
    if (node.textContent !== text) node.textContent = text;
  }
}, 2000);

const notices = document.getElementById("notices");

const SIGNS = { good: "✓", rejected: "✕", bad: "!" };

/** A short message in the bar, of text or nodes; `kind` is "good", "rejected" or "bad". */
export function notice(content, kind = "good") {
  const node = el(`p.notice.${kind}`, {}, el("span.sign", { "aria-hidden": "true" }, SIGNS[kind]), el("span", {}, content));
  notices.append(node);
  while (notices.childElementCount > 3) notices.firstChild.remove();
  setTimeout(() => node.remove(), kind === "bad" ? 14000 : 7000);
}

export function clearNotices() {
  notices.replaceChildren();
}

/** Says something to those who listen to the page rather than see it. */
export function announce(text) {
  const announcer = document.getElementById("announcer");
  // The same words twice are news only after a change.
  announcer.textContent = announcer.textContent === text ? `${text}\u00a0` : text;
}
