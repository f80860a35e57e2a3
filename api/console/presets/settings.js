// What policies know of the organisation - its domains, its limits -, as a form for admins.

import { el, notice } from "../dom.js";
import { tell } from "../page.js";
import { valueFields } from "./values.js";

/** A form for the settings of these names, or for all; fills `box`. `done` is called after they were stored. */
export async function settingsForm(context, box, { names = null, signal, done }) {
  const { service } = context;
  const { value: { settings, known }, etag } = await service.request("GET", "/v1/organisation/settings", undefined, signal);
  const asked = known.filter(({ name }) => !names || names.includes(name));
  const { nodes, read } = valueFields(asked.map((each) => ({ ...each, usual: each.default, value: settings[each.name] })), "settings");
  const form = el("form", {
    "aria-label": "Settings of the organisation", noValidate: true,
    async onsubmit(event) {
      event.preventDefault();
      const others = Object.entries(settings).filter(([name]) => !asked.some((each) => each.name === name));
      try {
        await service.request("PUT", "/v1/organisation/settings", { settings: { ...Object.fromEntries(others), ...read() } }, undefined, { ifMatch: etag });
        notice("The settings are stored, and policies go by them.");
        done();
      } catch (error) {
        tell(form, error);
      }
    },
  }, nodes, el("p.problem", { role: "alert" }), el("p.closing", {}, el("button", { type: "submit" }, "Store the settings")));
  box.replaceChildren(form);
}
