// What most rooms are made of: a page with a heading, lists that filter, page and keep themselves fresh, forms whose
// problems stand at their fields. Knows no room.

import { arrange, el, notice } from "./dom.js";

const PAGE = 100;
const MOST = 1000;

/** A page with its heading, which gets the focus when the room was entered by hand. */
export function page(root, { title, moveFocus, back }, ...content) {
  const heading = el("h1", { tabIndex: -1 }, title);
  root.append(el("div.page", {}, back, heading, ...content));
  if (moveFocus) heading.focus();
  return heading;
}

/** A link to a place of the console. */
export function place(context, address, ...text) {
  return el("a", { href: address, onclick: context.follow }, ...text);
}

/** `/runs/<id>` and the like, whatever the id is. */
export function address(room, id, query = "") {
  return `/${room}/${encodeURIComponent(id)}${query}`;
}

/**
 * A list of what GET `path` answers, fresh by `topics`. `filters` are `{name, label, options}` or `{name, label}` for a
 * text; they stand in the address, and begin as `usual` says. A list that is not `paged` comes whole. Without filters nothing can be searched, and the count stands alone. `row(item)` gives `{key, mark, node}`: a node is made anew only when `mark` differs.
 */
export function listing(context, { path, filters = [], usual = {}, paged = true, row, empty, topics, signal, pause = 1000, label }) {
  const asked = new URLSearchParams(location.search);
  const chosen = Object.fromEntries(filters.map(({ name }) => [name, asked.get(name) ?? usual[name] ?? ""]));
  const kept = new Map();
  let limit = PAGE;
  /** What was turned over: where each part began, and how many rows it had. */
  let turned = [];
  let next = null;
  let shown = 0;
  const rows = el("ul.rows", { "aria-label": label });
  const count = el("span.count", { role: "status" });
  const more = el("button.quiet", { type: "button", hidden: true, onclick: () => further() });
  const first = el("button.quiet", { type: "button", hidden: true, onclick: () => begin() }, "Back to the first");
  const none = el("p.empty", { hidden: true }, empty);
  const problem = el("p.problem", { role: "alert" });

  async function load() {
    const query = new URLSearchParams(paged ? { limit: String(limit) } : {});
    for (const [name, value] of Object.entries(chosen)) if (value) query.set(name, value);
    if (turned.length) query.set("cursor", turned.at(-1).cursor);
    try {
      const found = await context.service.request("GET", `${path}${path.includes("?") ? "&" : "?"}${query}`, undefined, signal);
      problem.textContent = "";
      draw(found.value, found.total, found.next);
    } catch (error) {
      if (!context.service.isAway(error)) problem.textContent = error.message;
      throw error;
    }
  }

  /** More rows; beyond what a page can hold, those behind them. */
  function further() {
    if (limit < MOST) limit = Math.min(limit + PAGE, MOST);
    else {
      turned.push({ cursor: next, count: shown });
      limit = PAGE;
    }
    refresh();
  }

  function begin() {
    [turned, limit] = [[], PAGE];
    refresh();
  }

  function draw(items, total, following) {
    [next, shown] = [following, items.length];
    const made = items.map((item) => {
      const { key, mark, node } = row(item);
      const known = kept.get(key);
      if (known?.mark === mark) return [key, known];
      const li = known?.li ?? el("li");
      li.replaceChildren(node());
      return [key, { mark, li }];
    });
    kept.clear();
    for (const [key, each] of made) kept.set(key, each);
    arrange(rows, made.map(([, each]) => each.li));
    rows.hidden = !made.length;
    none.hidden = made.length > 0;
    const before = turned.reduce((sum, each) => sum + each.count, 0);
    const of = total > items.length ? ` of ${total.toLocaleString("en")}` : following ? " and more" : "";
    const text = `${before ? `${(before + 1).toLocaleString("en")} to ` : ""}${(before + items.length).toLocaleString("en")}${of}`;
    if (count.textContent !== text) count.textContent = text;
    more.hidden = !following;
    first.hidden = !before;
    more.textContent = `Show more (${text})`;
  }

  function choose(name, value) {
    chosen[name] = value.trim();
    [turned, limit] = [[], PAGE];
    const query = new URLSearchParams(Object.entries(chosen).filter(([key, each]) => each !== (usual[key] ?? "")));
    history.replaceState(null, "", `${location.pathname}${query.size ? `?${query}` : ""}`);
    refresh();
  }

  let typing = null;
  const fields = filters.map(({ name, label: text, options }) => field(text, options
    ? el("select", { id: `filter-${name}`, onchange: (event) => choose(name, event.target.value) },
      options.map(([value, title]) => el("option", { value, selected: value === chosen[name] }, title)))
    : el("input", {
      id: `filter-${name}`, type: "search", value: chosen[name], spellcheck: false, maxLength: 200,
      oninput(event) {
        clearTimeout(typing);
        typing = setTimeout(() => choose(name, event.target.value), 250);
      },
    })));
  signal.addEventListener("abort", () => clearTimeout(typing));
  const refresh = context.keepFresh(load, topics, signal, pause);
  return {
    node: el("section.listing", {},
      el("div.filters", { role: filters.length ? "search" : null }, fields, count), problem, rows, none, el("div.foot", {}, first, " ", more)),
    refresh,
  };
}

/** Shows what the service tells only once, such as a key. */
export function secret(title, hint, text) {
  const copy = navigator.clipboard && el("button", {
    type: "button",
    async onclick() {
      await navigator.clipboard.writeText(text).then(() => { copy.textContent = "Copied"; }, () => { copy.textContent = "Not allowed here"; });
    },
  }, "Copy");
  return dialog(title, el("p.hint", {}, hint), el("p.secret", {}, el("code", {}, text)), copy);
}

/** Does something at once, and says how it went. */
export async function attempt({ service, notice: told }, what, done) {
  try {
    await what();
    if (done) told(done);
  } catch (error) {
    told(service.isAway(error) ? "No answer came; look whether it was done." : error.message, service.isKept(error) ? undefined : "bad");
  }
}

/**
 * A form in a dialog: `fields` are elements of `field`, `submit` sends and returns what is to be done when it went well.
 * What the service refuses stands at its field.
 */
export function ask(title, { hint, fields, verb, tone = "primary", submit }) {
  const button = el(`button.${tone}`, { type: "submit" }, verb);
  const form = el("form", {
    "aria-label": title,
    async onsubmit(event) {
      event.preventDefault();
      button.disabled = true;
      try {
        const done = await submit();
        box.close();
        done?.();
      } catch (error) {
        if (error.status !== 202) return tell(form, error);
        box.close();
        notice(error.message);
      } finally {
        button.disabled = false;
      }
    },
  }, fields, el("p.problem", { role: "alert" }), button);
  const box = dialog(title, hint && el("p.hint", {}, hint), form);
  form.querySelector("input, select, textarea")?.focus();
  return box;
}

/** A labelled control; `pointer` is where the service names it in its problems. */
export function field(label, control, { hint, pointer } = {}) {
  const hintId = hint && `${control.id}-hint`;
  if (hint) control.setAttribute("aria-describedby", hintId);
  if (pointer) control.dataset.pointer = pointer;
  return el("div.field", {}, el("label", { htmlFor: control.id }, label), control, hint && el("p.hint", { id: hintId }, hint));
}

/** Shows what the service refused: at the field that it is about, else above them all. */
export function tell(form, error, away = "No answer came, so it is not known whether this was done. Look before you try again.") {
  clear(form);
  const general = form.querySelector(".problem");
  const rest = [];
  if (error.status) {
    const errors = error.body?.errors?.length ? error.body.errors : [{ pointer: "", message: error.message }];
    for (const { pointer, message } of errors) {
      const control = [...form.querySelectorAll("[data-pointer]")].filter((each) => `${pointer}/`.startsWith(`${each.dataset.pointer}/`))
        .sort((one, other) => other.dataset.pointer.length - one.dataset.pointer.length)[0];
      if (control) {
        control.setAttribute("aria-invalid", "true");
        control.closest(".field").append(el("p.wrong", {}, message));
      } else rest.push(pointer ? `${pointer}: ${message}` : message);
    }
  } else rest.push(away);
  general.textContent = rest.join("; ");
  form.querySelector("[aria-invalid]")?.focus();
}

export function clear(form) {
  form.querySelector(".problem").textContent = "";
  for (const each of form.querySelectorAll(".wrong")) each.remove();
  for (const each of form.querySelectorAll("[aria-invalid]")) each.removeAttribute("aria-invalid");
}

/** A dialog over the page, which its buttons close; `content` comes before "Close". */
export function dialog(title, ...content) {
  const box = el("dialog.card", { "aria-label": title, onclose: () => box.remove() },
    el("h2", {}, title), ...content,
    el("p.closing", {}, el("button.quiet", { type: "button", onclick: () => box.close() }, "Close")));
  document.body.append(box);
  box.showModal();
  return box;
}
