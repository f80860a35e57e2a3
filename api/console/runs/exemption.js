// The form by which a reviewer exempts a run from labels that it has.

import { el } from "../dom.js";
import { ask, field } from "../page.js";
import { said } from "../text.js";

/** `run` as GET /v1/runs/:id has it. */
export function openExemption(context, run, signal) {
  const boxes = run.labels.map((label, index) => el("input", { id: `exempt-${index}`, type: "checkbox", value: label, checked: run.labels.length === 1 }));
  const minutes = el("input", { id: "exempt-minutes", type: "number", min: 1, max: 1440, required: true, value: 30 });
  const reason = el("input", { id: "exempt-reason", required: true, maxLength: 2000, placeholder: "Everybody sees it." });
  ask("Exempt the run from labels", {
    hint: "For some time these labels hold no call of this run. They stay on record, and policies that block still block.", verb: "Exempt",
    fields: [
      el("fieldset.field", { "data-pointer": "/labels" }, el("legend", {}, "Labels"),
        boxes.map((box) => el("label.choice", { htmlFor: box.id }, box, " ", said(box.value)))),
      field("Minutes", minutes, { pointer: "/minutes" }), field("Why", reason, { pointer: "/reason" }),
    ],
    async submit() {
      const labels = boxes.filter((box) => box.checked).map((box) => box.value);
      const body = { runId: run.runId, labels, minutes: minutes.valueAsNumber, reason: reason.value.trim() };
      await context.service.request("POST", "/v1/grants", body, signal);
      return () => context.notice(["Exempted; it stands under Grants."]);
    },
  });
}
