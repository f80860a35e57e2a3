// Tools that agents called and nobody has declared; an admin declares one by its name, in a set that is kept for these.

import { el } from "../dom.js";
import { listing } from "../listing.js";
import { address, ask, field, place } from "../page.js";
import { said } from "../text.js";
import { EFFECTS, KINDS } from "./words.js";

const SET = { toolSetId: "seen-tools", name: "Tools that agents were seen to call" };
const PATH = `/v1/tools/${SET.toolSetId}`;

/** `declared()` is called when one was. */
export function undeclared(context, signal, declared) {
  const tools = listing(context, {
    path: "/v1/undeclared-tools", paged: false, topics: ["policy"], signal, label: "Undeclared tools",
    empty: "None: all that agents were seen to call is declared.",
    row: (tool) => ({ key: tool.toolName, mark: JSON.stringify(tool), node: () => rowOf(tool) }),
  });

  function rowOf(tool) {
    const [most] = tool.agentIds;
    return el("div.row", {},
      el("strong.subject", {}, said(tool.toolName)),
      el("span.time", {}, `${tool.calls.toLocaleString("en")} ${tool.calls === 1 ? "call" : "calls"}`),
      el("span.about", {}, "by ", place(context, address("agents", most), said(most)),
        tool.agents > 1 && ` and ${(tool.agents - 1).toLocaleString("en")} more`),
      context.user.role === "admin" && el("span.marks", {}, tool.pattern
        ? el("button.quiet", { type: "button", onclick: () => declare(tool) }, "Declare…")
        : el("span.hint", {}, "No tool set can name it.")));
  }

  function declare(tool) {
    const [kind, effect] = [["kind", KINDS, "other"], ["effect", EFFECTS, "write"]].map(([member, options, usual]) =>
      el("select", { id: `declare-${member}` }, options.map((each) => el("option", { value: each, selected: each === usual }, each))));
    ask("Declare a tool", {
      hint: ["Policies go by what ", el("code", {}, said(tool.toolName)), " is declared to be, from the next call on."], verb: "Declare",
      fields: [field("What it is", kind), field("What it does", effect)],
      async submit() {
        await add({ names: [tool.pattern], kind: kind.value, effect: effect.value });
        return () => {
          context.notice(["Declared: ", said(tool.toolName), "."]);
          tools.refresh();
          declared();
        };
      },
    });
  }

  async function add(entry) {
    const { request, find } = context.service;
    const found = await find(PATH, signal);
    if (!found) await request("POST", "/v1/tools", { ...SET, tools: [entry] }, signal);
    else await request("PATCH", PATH, { tools: [...found.value.tools, entry] }, signal, { ifMatch: found.etag });
  }

  return tools.node;
}
