// What an admin does to a policy without writing: switch it on or off, watch only or enforce, delete.

import { el, notice } from "../dom.js";
import { address, dialog, place } from "../page.js";
import { said } from "../text.js";
import { backtest } from "./backtest.js";

const UNKNOWN = "No answer came. Look at the policy before you try again.";

/** `current` is `{value, etag}`; `done` is called after a change. */
export function actions(context, { policyId, current: { value: policy, etag }, done, signal }) {
  const { service } = context;
  const path = `/v1/policies/${encodeURIComponent(policyId)}`;
  const problem = el("p.problem", { role: "alert" });
  const explained = (error) => (service.isAway(error) ? UNKNOWN : error.message);

  async function change(changes, told, shownIn = problem) {
    shownIn.textContent = "";
    try {
      await service.request("PATCH", path, changes, undefined, { ifMatch: etag });
      notice([said(policy.name), told]);
      done();
      return true;
    } catch (error) {
      shownIn.textContent = explained(error);
      return false;
    }
  }

  /** In one step, with what would have changed in sight. */
  function enforce() {
    const refused = el("p.problem", { role: "alert" });
    const result = el("div.result");
    const box = dialog("Enforce this policy",
      el("p.hint", {}, "From the next decision on it counts. This is what it would have changed for recorded calls:"), result, refused,
      el("button.primary", {
        type: "button",
        onclick: async () => (await change({ mode: "enforce" }, " is enforced.", refused)) && box.close(),
      }, "Enforce now"));
    backtest(context, result, { policyId, changes: { mode: "enforce" } }, signal)
      .catch((error) => { refused.textContent = service.isAway(error) ? "The service cannot say just now what it would have changed." : error.message; });
  }

  function remove() {
    const refused = el("p.problem", { role: "alert" });
    const box = dialog("Delete this policy",
      el("p", {}, said(policy.name)),
      el("p.hint", {}, "From the next decision on it decides nothing. Its versions stay, and an admin can go back to one."), refused,
      el("button.reject", {
        type: "button",
        async onclick() {
          try {
            await service.request("DELETE", path, undefined, undefined, { ifMatch: etag });
            box.close();
            notice([said(policy.name), " is deleted."]);
            context.go("/policies");
          } catch (error) {
            refused.textContent = explained(error);
          }
        },
      }, "Delete it"));
  }

  const button = (text, onclick) => el("button.quiet", { type: "button", onclick }, text);
  return el("div", {},
    el("p.links", {},
      place(context, address("policies", policyId, "?edit"), "Edit"),
      policy.mode === "shadow" ? button("Enforce…", enforce) : button("Only watch (shadow)", () => change({ mode: "shadow" }, " only watches now.")),
      policy.enabled ? button("Switch off", () => change({ enabled: false }, " is switched off.")) : button("Switch on", () => change({ enabled: true }, " is switched on.")),
      button("Delete…", remove)),
    problem);
}
