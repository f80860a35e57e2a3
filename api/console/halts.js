// What is halted, told to everybody while it lasts, and the switch by which an admin halts and resumes.

import { el, notice, when } from "./dom.js";
import { said } from "./text.js";

/** What a halt covers, in words. */
export function covered(halt) {
  if (halt.scope === "agent") return ["the agent ", said(halt.agentId)];
  if (halt.scope === "run") return ["the run ", said(halt.runId)];
  return ["all agents"];
}

/**
 * Fills `banner` with what is in force, and puts the switch into `place`. `service` asks the service, `user` is who is
 * logged in, `keep` is that of `fresh.js`, `signal` ends it all. Returns `halts()`, those in force, and for admins
 * `halt(agentId)` and `resume()`, which open the dialogs.
 */
export function watchHalts({ banner, place, service, user, keep, signal }) {
  const isAdmin = user.role === "admin";
  let halts = [];

  async function load() {
    const { value } = await service.request("GET", "/v1/halts", undefined, signal);
    const before = JSON.stringify(halts);
    halts = value;
    if (before === JSON.stringify(halts)) return;
    draw();
    dispatchEvent(new Event("governance:halts"));
  }

  function draw() {
    banner.hidden = !halts.length;
    if (!halts.length) return banner.replaceChildren();
    const [first] = halts;
    banner.replaceChildren(
      el("p", {}, el("strong", {}, "Halted: "), covered(first), " by ", said(first.createdBy), " ", when(first.createdAt),
        ": ", said(first.reason), halts.length > 1 && ` (and ${halts.length - 1} more)`),
      el("button.quiet", { type: "button", onclick: () => open("resume", halts) }, isAdmin ? "Resume…" : "Details"));
    return undefined;
  }

  const refresh = keep(load, ["halt"], signal);
  // Nobody needs the dialogs at first sight, so they come behind it.
  const dialogs = import("./halt_dialogs.js").then(({ makeDialogs }) => makeDialogs({ service, isAdmin, signal, covered, refresh }));
  dialogs.catch(() => {}); // it is told when one is wanted
  const open = (name, ...values) => dialogs.then((made) => made[name](...values), () => notice("The page is not whole. Load it again.", "bad"));

  if (isAdmin) place.replaceChildren(el("button.reject.quiet", { type: "button", id: "halt", onclick: () => open("halt") }, "Halt…"));
  signal.addEventListener("abort", () => {
    banner.hidden = true;
    banner.replaceChildren();
    place.replaceChildren();
  });
  return { halts: () => halts, halt: (agentId) => open("halt", agentId), resume: () => open("resume", halts) };
}
