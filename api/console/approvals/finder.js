// The search box and the filters above the list: which of the approvals that are loaded are shown.

import { el } from "../dom.js";

const FILTERS = [
  ["toolName", "Tool", "All tools", (approval) => approval.toolName],
  ["agentId", "Agent", "All agents", (approval) => approval.agentId],
  ["policyId", "Policy", "All policies", (approval) => approval.policyName || approval.policyId],
];

const texts = (approval) => [
  approval.about?.sentence, approval.toolName, approval.agentId, approval.policyName, approval.runId, approval.approvalId,
  ...(approval.about?.recipients ?? []), ...(approval.about?.hosts ?? []), ...(approval.about?.commands ?? []),
];

/** `onchange()` when something else is looked for. What is looked for begins as `asked` says, a URLSearchParams. */
export function makeFinder(asked, onchange) {
  const chosen = { q: asked.get("q") ?? "" };
  for (const [name] of FILTERS) chosen[name] = asked.get(name) ?? "";
  let typing = null;
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

  function matches(approval) {
    if (FILTERS.some(([name]) => chosen[name] && approval[name] !== chosen[name])) return false;
    const words = chosen.q.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return true;
    const text = texts(approval).filter(Boolean).join("\n").toLowerCase();
    return words.every((word) => text.includes(word));
  }

  /** The choices are those of what is loaded; what is chosen stays one of them. */
  function offer(approvals) {
    FILTERS.forEach(([name, , all, title], index) => {
      const select = selects[index];
      const found = new Map(approvals.map((approval) => [approval[name], title(approval)]));
      if (chosen[name] && !found.has(chosen[name])) found.set(chosen[name], chosen[name]);
      const options = [["", all], ...[...found].sort((one, other) => one[1].localeCompare(other[1]))];
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
    get query() {
      return Object.entries(chosen).filter(([, value]) => value);
    },
    /** Those of the loaded ones that are looked for; says how many of `total` were looked through. */
    find(approvals, total) {
      offer(approvals);
      const found = this.active ? approvals.filter(matches) : approvals;
      const through = total > approvals.length ? `${approvals.length.toLocaleString("en")} of ${total.toLocaleString("en")}` : approvals.length.toLocaleString("en");
      const text = this.active ? `${found.length.toLocaleString("en")} found, looked through ${through}` : "";
      if (looked.textContent !== text) looked.textContent = text;
      return found;
    },
    close: () => clearTimeout(typing),
  };
}
