// The search box and the filters above the list: which approvals the service is asked for.

import { el } from "../dom.js";

const FILTERS = [
  ["toolName", "Tool", "All tools", (approval) => approval.toolName],
  ["agentId", "Agent", "All agents", (approval) => approval.agentId],
  ["policyId", "Policy", "All policies", (approval) => approval.policyName || approval.policyId],
];

/** `onchange()` when something else is looked for. What is looked for begins as `asked` says, a URLSearchParams. */
export function makeFinder(asked, onchange) {
  const chosen = { q: asked.get("q") ?? "" };
  for (const [name] of FILTERS) chosen[name] = asked.get(name) ?? "";
  let typing = null;
  const known = FILTERS.map(() => new Map());
  const search = el("input", {
    id: "search", type: "search", value: chosen.q, maxLength: 200, spellcheck: false, placeholder: "Search", "aria-label": "Search",
    oninput() {
      clearTimeout(typing);
      typing = setTimeout(() => choose("q", search.value.trim()), 150);
    },
  });
  const selects = FILTERS.map(([name, label, all]) => el("select", {
    id: `filter-${name}`, "aria-label": label, onchange: (event) => choose(name, event.target.value),
  }, el("option", { value: "" }, all)));
  const looked = el("p.looked", { role: "status" });
  const node = el("div.finder", { role: "search", "aria-label": "Find approvals" }, search, el("div.choices", {}, selects), looked);

  function choose(name, value) {
    chosen[name] = value;
    onchange();
  }

  /** The choices are those of what was loaded so far; what is chosen stays one of them. */
  function offer(approvals) {
    FILTERS.forEach(([name, , all, title], index) => {
      const select = selects[index];
      for (const approval of approvals) known[index].set(approval[name], title(approval));
      if (chosen[name] && !known[index].has(chosen[name])) known[index].set(chosen[name], chosen[name]);
      const options = [["", all], ...[...known[index]].sort((one, other) => one[1].localeCompare(other[1]))];
      const mark = JSON.stringify([options, chosen[name]]);
      if (select.dataset.mark === mark) return;
      select.dataset.mark = mark;
      select.replaceChildren(...options.map(([value, text]) => el("option", { value, selected: value === chosen[name] }, text)));
    });
  }

  return {
    node,
    get active() {
      return Object.values(chosen).some(Boolean);
    },
    /** As it stands in the address. */
    get query() {
      return Object.entries(chosen).filter(([, value]) => value);
    },
    /** As the service is asked. */
    get sought() {
      return this.query.map(([name, value]) => [name === "q" ? "search" : name, value]);
    },
    /** What was found, and of how many that is a part. */
    tell(approvals, total) {
      offer(approvals);
      const text = this.active ? `${total.toLocaleString("en")} found` : "";
      if (looked.textContent !== text) looked.textContent = text;
    },
    close: () => clearTimeout(typing),
  };
}
