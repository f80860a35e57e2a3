// Lists that filter, page and keep themselves fresh. Knows no room.

import { arrange, el } from "./dom.js";
import { field } from "./page.js";

const PAGE = 100;
const MOST = 1000;

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
