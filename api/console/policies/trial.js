// "Try a call": what the policies in force, with this one as it is written, would answer, and why, condition by condition.

import { el } from "../dom.js";
import * as exact from "../exact.js";
import { clear, field, tell } from "../page.js";
import { said } from "../text.js";
import { scan } from "./json_text.js";

const ANSWERS = { allowed: ["Allowed", "allow"], blocked: ["Blocked", "block"], awaiting_approval: ["Held for a person", "require_approval"] };
const RESULTS = { true: ["holds", "good"], false: ["does not hold", ""], error: ["cannot be evaluated", "warn"] };

/** What examples and simulations both have of a call. */
const SHARED = new Set(["toolName", "inputPayload", "outputPayload", "agentId", "runId", "toolCallId", "actionHint", "toolAnnotations",
  "reason", "agentContext", "run", "before", "user"]);

/**
 * `policy()` gives the tree of the policy to try, or null to try what is in force; `isMine({policyId, name})` says which one
 * is explained. `examples` are calls to begin with, as trees.
 */
export function trial(context, { policy, isMine, examples }) {
  const pick = el("select", { id: "trial-example", onchange: () => fill() });
  const call = el("textarea.code", { id: "trial-call", rows: 7, spellcheck: false, wrap: "off" });
  call.dataset.pointer = "";
  const problem = el("p.problem", { role: "alert" });
  const result = el("div.result", { role: "status" });

  function option(each, number) {
    const matches = exact.member(each, "match")?.text === "true";
    return el("option", { value: String(number) },
      `Example ${number + 1}: ${exact.member(each, "toolName")?.value ?? ""} (${matches ? "matches" : "does not match"})`);
  }

  function fill() {
    const chosen = examples[Number(pick.value)];
    if (chosen) call.value = exact.write({ kind: "object", members: chosen.members.filter(([name]) => SHARED.has(name)) });
  }

  async function onsubmit(event) {
    event.preventDefault();
    clear(form);
    result.replaceChildren();
    const { fault } = scan(call.value);
    if (fault) return tell(form, { status: 422, body: { errors: [{ pointer: "", message: `line ${fault.line}: ${fault.message}` }] } });
    const sent = exact.read(call.value);
    const tried = policy();
    const members = [...sent.members.filter(([name]) => !["policy", "explain"].includes(name)),
      ["explain", { kind: "word", text: "true" }], ...(tried ? [["policy", tried]] : [])];
    try {
      const { value } = await context.service.request("POST", "/v1/policies/simulate", exact.write({ kind: "object", members }));
      result.replaceChildren(...outcome(value));
    } catch (error) {
      tell(form, error, "No answer came. Try again in a moment.");
    }
    return undefined;
  }

  function outcome({ toolCallStatus, reason, matchedPolicies, shadowPolicies, explanation }) {
    const [word, tone] = ANSWERS[toolCallStatus];
    const mine = explanation.find(isMine);
    const others = matchedPolicies.filter((each) => !isMine(each));
    return [
      el("p", {}, el(`span.note.${tone}`, {}, word), " ", said(reason)),
      mine && el("p", {}, "This policy ", said(mine.summary), "."),
      mine && el("ul.checked", { "aria-label": "Conditions of this policy" }, mine.conditions.map((each) => {
        const [told, mark] = RESULTS[each.result];
        return el("li", {}, el(`span.note${mark && `.${mark}`}`, {}, told), " ", said(each.message),
          el("p.hint", {}, "To turn it over: ", said(each.flip.text)));
      })),
      others.length > 0 && el("p", {}, "Other policies that match: ", others.map((each, number) => [number ? ", " : "", said(each.name)])),
      shadowPolicies?.length > 0 && el("p", {}, "In shadow: ", shadowPolicies.map((each, number) => [number ? ", " : "", said(each.name)])),
    ].filter(Boolean);
  }

  const form = el("form.trial", { onsubmit, "aria-label": "Try a call", noValidate: true },
    examples.length > 0 && field("Begin with", pick),
    field("The call, as JSON", call, { hint: "toolName and inputPayload, and whatever else the policy reads. Nothing is recorded." }),
    problem, el("p.closing", {}, el("button", { type: "submit" }, "Try it")), result);
  if (examples.length) {
    pick.append(...examples.map(option));
    fill();
  } else call.value = '{\n  "toolName": "",\n  "inputPayload": {}\n}';
  return el("section", {}, el("h2", {}, "Try a call"), form);
}
