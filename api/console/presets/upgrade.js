// What the preset of a policy has that the policy has not, and taking it over.

import { el, notice } from "../dom.js";
import * as exact from "../exact.js";
import { showDifferences } from "../policies/diff.js";
import { said } from "../text.js";

/**
 * `offer` is the text of GET preset-upgrade; `etag` the state that it is about. Null when the preset has nothing new.
 * `done` is called after the policy was changed.
 */
export function upgrade(context, { policyId, offer, etag, done }) {
  const tree = exact.read(offer);
  const { presetId, available, errors } = JSON.parse(offer);
  const [changes, kept] = ["changes", "kept"].map((name) => exact.member(tree, name).items);
  if (!changes.length && !kept.length) return null;
  const problem = el("p.problem", { role: "alert" });
  const text = (each, name) => {
    const written = exact.write(exact.member(each, name));
    return written === "null" ? null : written;
  };
  const rows = (items, from, to) => items.map((each) => [exact.member(each, "member").value, text(each, from), text(each, to)]);

  async function take() {
    problem.textContent = "";
    try {
      const { value } = await context.service.request("POST", `/v1/policies/${encodeURIComponent(policyId)}/preset-upgrade`, undefined, undefined, { ifMatch: etag });
      notice([said(value.name), ` is as its preset is now, as version ${value.version}.`]);
      done();
    } catch (error) {
      problem.textContent = context.service.isAway(error) ? "No answer came. Look at the versions before you try again." : error.message;
    }
  }

  return el("section", { "aria-label": "Upgrade" },
    el("h2", {}, "Its preset has changed"),
    el("p.hint", {}, "What nobody edited here can follow ", said(presetId), ":"),
    showDifferences(rows(changes, "from", "to"), "Nothing would change here."),
    kept.length > 0 && el("details", {},
      el("summary", {}, "Edited here, and kept: what the preset says instead"), showDifferences(rows(kept, "yours", "preset"))),
    errors.map((each) => el("p.wrong", {}, said(each.message))),
    problem,
    context.user.role === "admin" && available && el("p.closing", {}, el("button.primary", { type: "button", onclick: take }, "Take it over")));
}
