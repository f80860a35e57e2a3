// What is halted, told to everybody while it lasts, and the switch by which an admin halts and resumes.

import { el, notice, when } from "./dom.js";
import { dialog } from "./page.js";
import { said } from "./text.js";

/** What a halt covers, in words. */
export function covered(halt) {
  if (halt.scope === "agent") return ["the agent ", said(halt.agentId)];
  if (halt.scope === "run") return ["the run ", said(halt.runId)];
  return ["all agents"];
}

/**
 * Fills `banner` with what is in force, and puts the switch into `place`. `service` asks the service, `user` is who is
 * logged in, `keep` is that of `fresh.js`, `signal` ends it all. Returns a function that gives the halts in force.
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
      el("button.quiet", { type: "button", onclick: () => openList(halts) }, isAdmin ? "Resume…" : "Details"));
    return undefined;
  }

  async function send(box, path, body, done) {
    try {
      const { value } = await service.request("POST", path, body, signal);
      box.close();
      notice(done(value));
      refresh();
    } catch (error) {
      box.querySelector(".problem").textContent = service.isAway(error)
        ? "No answer came. Look whether it is in force before you try again."
        : error.message;
    }
  }

  function openList(list) {
    const reason = el("input", { id: "resume-reason", maxLength: 2000, placeholder: "Optional. The record will have it." });
    const box = dialog("What is halted",
      el("p.hint", {}, "While a halt lasts, every call that it covers is blocked, and none of them can be approved."),
      el("ul.halts", {}, list.map((halt) => el("li", {},
        el("p", {}, el("strong", {}, covered(halt)), " by ", said(halt.createdBy), " ", when(halt.createdAt)),
        el("blockquote", {}, said(halt.reason)),
        isAdmin && el("button", {
          type: "button",
          onclick: () => send(box, "/v1/resume", { haltId: halt.haltId, ...(reason.value.trim() && { reason: reason.value.trim() }) },
            () => ["Resumed: ", covered(halt), "."]),
        }, "Resume")))),
      isAdmin && [el("label", { htmlFor: "resume-reason" }, "Why it may go on"), reason],
      el("p.problem", { role: "alert" }));
  }

  function openSwitch() {
    const scope = el("select", { id: "halt-scope", onchange: () => mark() },
      el("option", { value: "all" }, "All agents"), el("option", { value: "agent" }, "One agent"),
      el("option", { value: "run" }, "One run"));
    const name = el("input", { id: "halt-name", maxLength: 200, spellcheck: false });
    const label = el("label", { htmlFor: "halt-name" });
    const reason = el("input", { id: "halt-reason", maxLength: 2000, placeholder: "Optional. Everybody sees it." });
    function mark() {
      name.hidden = label.hidden = scope.value === "all";
      name.required = !name.hidden;
      label.textContent = scope.value === "run" ? "Which run" : "Which agent";
    }
    mark();
    const box = dialog("Halt",
      el("p.hint", {}, "From the next decision on every call of theirs is blocked, until an admin resumes."),
      el("form", {
        "aria-label": "Halt",
        onsubmit(event) {
          event.preventDefault();
          const body = scope.value === "all" ? {} : { [`${scope.value}Id`]: name.value.trim() };
          if (reason.value.trim()) body.reason = reason.value.trim();
          send(box, "/v1/halt", body, (halt) => ["Halted: ", covered(halt), "."]);
        },
      },
      el("label", { htmlFor: "halt-scope" }, "Whom"), scope, label, name,
      el("label", { htmlFor: "halt-reason" }, "Why"), reason,
      el("p.problem", { role: "alert" }),
      el("button.reject", { type: "submit" }, "Halt now")));
  }

  if (isAdmin) place.replaceChildren(el("button.reject.quiet", { type: "button", id: "halt", onclick: openSwitch }, "Halt…"));
  const refresh = keep(load, ["halt"], signal);
  signal.addEventListener("abort", () => {
    banner.hidden = true;
    banner.replaceChildren();
    place.replaceChildren();
  });
  return () => halts;
}
