// The versions of a policy: who wrote each, when, what it changed; and going back to one.

import { el, notice, when } from "../dom.js";
import * as exact from "../exact.js";
import { dialog } from "../page.js";
import { payloadOf } from "../runs/payload.js";
import { said } from "../text.js";
import { differences, showDifferences } from "./diff.js";

const FIRST = 20;

/**
 * `current` is `{tree, value, etag}`, or null when the policy is deleted; `text` is what GET versions answered. `done` is
 * called after a policy was rolled back.
 */
export function history(context, { current, text, done }) {
  const { versions, policyId, currentVersion, currentCreatedBy } = JSON.parse(text);
  const trees = exact.member(exact.read(text), "versions").items;
  const past = versions.map((each, number) => ({
    ...each, tree: exact.member(trees[number], "state"), at: each.createdAt, by: each.createdBy, isPast: true,
  }));
  const now = current && { version: current.value.version, at: current.value.updatedAt, by: currentVersion === current.value.version && currentCreatedBy, tree: current.tree };
  const all = now ? [now, ...past] : past;
  const list = el("ol.versions", { "aria-label": "Versions" });
  const more = el("button.quiet", { type: "button", onclick: () => draw(all.length) }, `Show all ${all.length} versions`);
  let shown = 0;

  function draw(count) {
    for (; shown < Math.min(count, all.length); shown += 1) list.append(one(all[shown], all[shown + 1]));
    more.hidden = shown >= all.length;
  }

  function one(version, before) {
    const found = before && differences(before.tree, version.tree);
    const told = !found ? "the first" : !found.length ? "nothing changed" : `changed ${found.map(([name]) => name).join(", ")}`;
    return el("li", {},
      el("p.line", {},
        el("strong", {}, `Version ${version.version}`), !version.isPast && el("span.note.good", {}, "now"),
        version.at && el("span.time", {}, when(version.at)),
        version.by && el("span.came", {}, "by ", version.by === "file" ? "an edit of its file" : said(version.by))),
      el("details", {},
        el("summary", {}, told),
        found ? showDifferences(found) : payloadOf(`Version ${version.version}`, version.tree)),
      context.user.role === "admin" && version.isPast
        && el("button.quiet", { type: "button", onclick: () => confirm(version) }, `Go back to version ${version.version}`));
  }

  function confirm(version) {
    const problem = el("p.problem", { role: "alert" });
    async function back() {
      try {
        const { value } = await context.service.request("POST", `/v1/policies/${encodeURIComponent(policyId)}/rollback`,
          { version: version.version }, undefined, { ifMatch: current?.etag });
        box.close();
        notice(["Version ", String(version.version), " is in force again, as version ", String(value.version), "."]);
        done();
      } catch (error) {
        problem.textContent = context.service.isAway(error) ? "No answer came. Look at the versions before you try again." : error.message;
      }
    }
    const box = dialog(`Go back to version ${version.version}`,
      el("p.hint", {}, "It becomes the newest version and is in force at once; the others stay in the history."),
      current ? showDifferences(differences(current.tree, version.tree), "It says the same as the policy does now.")
        : el("p", {}, "The policy was deleted; this brings it back."),
      problem,
      el("button.primary", { type: "button", onclick: back }, "Go back"));
  }

  draw(FIRST);
  return el("section", {}, el("h2", {}, "History"), list, more);
}
