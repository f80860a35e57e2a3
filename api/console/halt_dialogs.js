// The dialogs of the kill switch: halt whom, and what is halted, to resume.

import { el, notice, when } from "./dom.js";
import { dialog } from "./page.js";
import { said } from "./text.js";

/** `covered(halt)` says what a halt covers, `refresh()` has those in force read again. */
export function makeDialogs({ service, isAdmin, signal, covered, refresh }) {
  async function send(box, path, body, done) {
    try {
      const { value } = await service.request("POST", path, body, signal);
      box.close();
      notice(...done(value));
      refresh();
    } catch (error) {
      box.querySelector(".problem").textContent = service.isAway(error)
        ? "No answer came. Look whether it is in force before you try again."
        : error.message;
    }
  }

  function resume(list) {
    const reason = el("input", { id: "resume-reason", maxLength: 2000, placeholder: "Optional. The record will have it." });
    const box = dialog("What is halted",
      el("p.hint", {}, "While a halt lasts, every call that it covers is blocked, and none of them can be approved."),
      el("ul.halts", {}, list.map((each) => el("li", {},
        el("p", {}, el("strong", {}, covered(each)), " by ", said(each.createdBy), " ", when(each.createdAt)),
        el("blockquote", {}, said(each.reason)),
        isAdmin && el("button", {
          type: "button",
          onclick: () => send(box, "/v1/resume", { haltId: each.haltId, ...(reason.value.trim() && { reason: reason.value.trim() }) },
            () => [["Resumed: ", covered(each), "."]]),
        }, "Resume")))),
      isAdmin && [el("label", { htmlFor: "resume-reason" }, "Why it may go on"), reason],
      el("p.problem", { role: "alert" }));
  }

  function halt(agentId = "") {
    const scope = el("select", { id: "halt-scope", onchange: () => mark() },
      el("option", { value: "all" }, "All agents"), el("option", { value: "agent", selected: Boolean(agentId) }, "One agent"),
      el("option", { value: "run" }, "One run"));
    // What was pressed is what is halted: a field drops line breaks, and names may begin or end with blanks.
    let pressed = agentId;
    const name = el("input", { id: "halt-name", maxLength: 200, spellcheck: false, value: agentId, oninput() { pressed = ""; mark(); } });
    const label = el("label", { htmlFor: "halt-name" });
    const reason = el("input", { id: "halt-reason", maxLength: 2000, placeholder: "Optional. Everybody sees it." });
    function mark() {
      name.hidden = label.hidden = scope.value === "all";
      name.required = !name.hidden && !pressed;
      label.textContent = scope.value === "run" ? "Which run" : "Which agent";
    }
    mark();
    const box = dialog("Halt",
      el("p.hint", {}, "From the next decision on every call of theirs is blocked, until an admin resumes."),
      el("form", {
        "aria-label": "Halt",
        onsubmit(event) {
          event.preventDefault();
          const named = scope.value === "agent" && pressed ? pressed : name.value.trim();
          const body = scope.value === "all" ? {} : { [`${scope.value}Id`]: named };
          if (reason.value.trim()) body.reason = reason.value.trim();
          send(box, "/v1/halt", body, (made) => (made.scope === "all" || made.affectedAgents !== 0 ? [["Halted: ", covered(made), "."]]
            : [["Halted: ", covered(made), ". No run that goes on is stopped by it: look whether that is its name."], "bad"]));
        },
      },
      el("label", { htmlFor: "halt-scope" }, "Whom"), scope, label, name,
      el("label", { htmlFor: "halt-reason" }, "Why"), reason,
      el("p.problem", { role: "alert" }),
      el("button.reject", { type: "submit" }, "Halt now")));
  }

  return { halt, resume };
}
