// One proposal: the tools of a server as it describes them, how they differ from what was admitted, and what an admin makes
// of them. What a server says of its tools is its own word.

import { el, when } from "../dom.js";
import { ask, attempt, page, place, tell } from "../page.js";
import { hiddenIn, said } from "../text.js";
import { EFFECTS, KINDS } from "./words.js";

const STATE = { admitted: ["allow", "as admitted"], changed: ["block", "changed since it was admitted"], new: ["warn", "new"] };
const HINTS = { readOnlyHint: "reads only", destructiveHint: "destroys", idempotentHint: "may be repeated", openWorldHint: "reaches outside" };

export function proposal(root, context, signal) {
  const { service, place: proposalId } = context;
  const path = `/v1/tool-proposals/${encodeURIComponent(proposalId)}`;
  const content = el("div.one");
  const heading = page(root, { title: "Proposed tools", moveFocus: context.moveFocus, back: place(context, "/tools", "← All tools") }, content);
  let drawn = "";
  /** What was shown last, with what was chosen of it; null at first. */
  let before = null;

  async function load() {
    const found = await service.find(path, signal);
    if (!found) return content.replaceChildren(el("p", {}, "There is no such proposal."));
    if (found.text === drawn) return undefined;
    drawn = found.text;
    return draw(found.value);
  }

  function draw(found) {
    heading.replaceChildren("Tools of ", said(found.server));
    const rows = found.tools.map((tool, at) => one(tool, at, before));
    const changed = before && before.digest !== found.digest;
    before = { digest: found.digest, rows: new Map(rows.map((row) => [wordsOf(row.tool), row])) };
    const form = el("form", {
      "aria-label": "Admit tools",
      async onsubmit(event) {
        event.preventDefault();
        const chosen = rows.filter((row) => row.box.checked);
        if (!chosen.length) return form.querySelector(".problem").replaceChildren("Choose what is to be admitted.");
        const declare = Object.fromEntries(chosen.map((row) => [row.tool.name, row.declared()]).filter(([, each]) => each));
        try {
          await service.request("POST", `${path}/admit`, {
            digest: found.digest, tools: chosen.map((row) => row.tool.name), ...(Object.keys(declare).length && { declare }),
          }, signal);
          context.notice(`Admitted: ${chosen.length} of ${found.tools.length} tools.`);
        } catch (error) {
          return tell(form, error);
        }
        return refresh();
      },
    }, el("ul.rows", { "aria-label": "Tools" }, rows.map((row) => el("li", {}, row.node))),
    el("p.problem", { role: "alert" }),
    el("div.actions", {},
      el("button.primary", { type: "submit" }, "Admit the chosen ones"),
      found.status === "pending" && el("button.reject", { type: "button", onclick: () => ask("Dismiss the proposal", {
        hint: "It stays away until the server’s tools change.", fields: [], verb: "Dismiss", tone: "reject",
        async submit() {
          await service.request("POST", `${path}/dismiss`, undefined, signal);
          return () => context.go("/tools");
        },
      }) }, "Dismiss")));
    content.replaceChildren(
      el("dl.known", {}, el("dt", {}, "Status"), el("dd", {}, found.status, found.resolvedBy && [" by ", said(found.resolvedBy), " ", when(found.resolvedAt)]),
        el("dt", {}, "Told by"), el("dd", {}, "the API key ", el("code", {}, found.keyId), " ", when(found.updatedAt))),
      el("p.hint", {}, "Titles, descriptions and hints are what the server says of itself; nothing of it is verified."),
      el("div", { role: "status" }, changed && el("p.missing", {}, "Other tools are proposed than a moment ago. What is new or has changed since is not chosen.")), form);
  }

  const refresh = context.keepFresh(load, ["policy"], signal);
}

/**
 * INVARIANT: chosen is what an admin has left chosen of what they were shown first. A refresh keeps what they made of a
 * tool that is as it was `before`, and chooses nothing that they have not seen.
 */
function one(tool, at, before) {
  const [tone, words] = STATE[tool.state];
  const known = before?.rows.get(wordsOf(tool));
  const checked = tool.state !== "admitted" && (before === null || Boolean(known?.box.checked));
  const box = el("input", { type: "checkbox", id: `tool-${at}`, checked });
  const select = (member, options) => el("select", { id: `${member}-${at}`, "aria-label": `${member} of ${tool.name}` },
    el("option", { value: "" }, `${member}: ${tool[member]}`), options.filter((each) => each !== tool[member]).map((each) => el("option", { value: each }, each)));
  const kind = select("kind", KINDS);
  const effect = select("effect", EFFECTS);
  for (const [now, then] of [[kind, known?.kind], [effect, known?.effect]]) {
    const found = [...now.options].findIndex(({ value }) => value === then?.value);
    now.selectedIndex = Math.max(found, 0); // what was chosen may be what is declared by now
  }
  const node = el("div.row.tool", {},
    el("label.choice", { htmlFor: box.id }, box, el("strong", {}, said(tool.name)), tool.title && [" ", said(tool.title)]),
    el("span.marks", {}, el(`span.note.${tone}`, {}, words)),
    el("div.about.whole", {}, described(tool), tool.admitted && admitted(tool)),
    el("div.choices", {}, kind, effect));
  return { tool, node, box, kind, effect, declared: () => (kind.value || effect.value) && { ...(kind.value && { kind: kind.value }), ...(effect.value && { effect: effect.value }) } };
}

function described({ description, annotations = {} }) {
  const hints = Object.entries(HINTS).filter(([name]) => annotations[name] === true).map(([, words]) => words);
  return [
    description ? el("p.prose", {}, said(description)) : el("p", {}, "It is not described."),
    hiddenIn(description ?? "").length > 0 && el("p.missing", {}, "The description has characters that cannot be seen."),
    hints.length > 0 && el("p.hint", {}, `Says of itself: ${hints.join(", ")}.`),
  ];
}

/** All that a server says of a tool. */
function wordsOf({ name, definition, title, description, annotations }) {
  return JSON.stringify([name, definition, title, description, annotations]);
}

/** What was admitted, where that is another description. */
function admitted({ description, admitted: known }) {
  return el("details", {}, el("summary", {}, "What was admitted, ", when(known.admittedAt), " by ", said(known.admittedBy)),
    known.description === description ? el("p.hint", {}, "Its words are the same; its arguments, or what it gives back, are not.")
      : described(known));
}
