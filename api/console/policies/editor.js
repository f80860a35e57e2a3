// Writes a policy: its JSON text, beside it a form for what most people change. The text is what counts; the form reads and
// writes it. The service says what is wrong while one types, and the line that it is about is marked.

import { el, notice } from "../dom.js";
import { draftsOf } from "../drafts.js";
import * as exact from "../exact.js";
import { address, field } from "../page.js";
import { said } from "../text.js";
import { APPROVAL, isTerm, shownTerm, writeTerm } from "./approval_form.js";
import { backtest } from "./backtest.js";
import { differences, showDifferences, withId } from "./diff.js";
import { lineAt, scan } from "./json_text.js";
import { trial } from "./trial.js";
import { ACTIONS } from "./words.js";

const CHECK_PAUSE = 500;
const FORM = [
  ["name", "Name", "text"],
  ["description", "What it is for", "long"],
  ["action", "What it does", Object.entries(ACTIONS)],
  ["mode", "Mode", [["enforce", "Enforce"], ["shadow", "Shadow: report only"]]],
  ["scope", "Which calls", [["all", "All"], ["action_only", "Not those that just read"]]],
  ["enabled", "Switched", [["true", "On"], ["false", "Off"]]],
  ...APPROVAL,
  ["message", "The reason given", "text"],
];
/** Members that are left out when they are empty. */
const OPTIONAL = new Set(["description", "message"]);
const STRIPPED = /^\/(?:policy|changes)(?=\/|$)/;

const word = (text) => ({ kind: "word", text });
const object = (members) => ({ kind: "object", members });

/** `policyId` null: a new policy. `original` is the tree of what people wrote, `etag` the state it was read in. */
export function editor(context, { policyId, original, etag: current, reload, signal }) {
  const { service, user } = context;
  const drafts = draftsOf(user.email);
  const draft = `policy ${policyId ?? ""}`;
  const begun = exact.write(original);
  const kept = JSON.parse(drafts.get(draft) || "null");
  /** The state that the text goes by, also when it was begun before. */
  let etag = kept?.etag ?? current;
  const text = el("textarea.code", {
    id: "policy-text", spellcheck: false, wrap: "off", rows: 24, oninput: () => typed(), onscroll: () => { gutter.scrollTop = text.scrollTop; },
  });
  text.value = kept?.text ?? begun;
  const gutter = el("div.gutter", { ariaHidden: "true" });
  const wrongs = el("div", { role: "alert", "aria-label": "What is wrong" });
  const verdict = el("p.hint", { role: "status" });
  const result = el("div.result");
  const changes = el("div");
  const save = el("button.primary", { type: "button", onclick: () => store() }, policyId ? "Save" : "Create");
  const test = el("button", { type: "button", onclick: () => tryBacktest() }, "What would have changed");
  const controls = FORM.map(([name, title, kind]) => [name, control(name, title, kind)]);
  let checking = new AbortController();
  let timer = null;
  /** It was stored, or given up: nothing of it is to be kept. */
  let done = false;
  /** What is wrong with the text as it is: `{line, pointer, message}`. */
  let found = [];

  function control(name, title, kind) {
    const oninput = (event) => write(name, event.target.value);
    const id = `policy-${name}`;
    if (Array.isArray(kind)) return el("select", { id, oninput }, kind.map(([value, shown]) => el("option", { value }, shown)));
    if (kind === "minutes") return el("input", { id, type: "number", min: 1, step: "any", oninput });
    return kind === "long" ? el("textarea", { id, rows: 3, oninput }) : el("input", { id, oninput, spellcheck: true });
  }

  const isSound = () => !scan(text.value).fault;
  const tree = () => exact.read(text.value);

  /** What the form says goes into the text, which otherwise stays as it is. */
  function write(name, value) {
    if (!isSound()) return;
    const { members } = tree();
    const node = name === "enabled" ? word(value) : { kind: "text", value };
    const at = members.findIndex(([each]) => each === name);
    if (isTerm(name)) writeTerm(members, name, value);
    else if (OPTIONAL.has(name) && !value.trim()) {
      if (at >= 0) members.splice(at, 1);
    } else if (at >= 0) members[at][1] = node;
    else members.push([name, node]);
    text.value = exact.write(object(members));
    typed();
  }

  function typed() {
    read();
    number([]);
    clearTimeout(timer);
    checking.abort();
    checking = new AbortController();
    timer = setTimeout(check, CHECK_PAUSE, checking.signal);
  }

  /** The form follows the text. */
  function read() {
    const sound = isSound();
    const now = sound ? JSON.parse(text.value) : null;
    for (const [name, node] of controls) {
      node.disabled = !sound;
      const standard = { mode: "enforce", scope: "all", enabled: true }[name] ?? "";
      const value = isTerm(name) ? shownTerm(now?.approval, name) : now?.[name] ?? standard;
      if (sound && node !== document.activeElement) node.value = String(value);
    }
    save.disabled = test.disabled = !sound;
    changes.replaceChildren(...(sound ? [el("details", {}, el("summary", {}, "What you have changed"), showDifferences(differences(original, tree())))] : []));
  }

  function number(problems) {
    found = problems;
    const wrong = new Map(problems.map(({ line, message }) => [line, message]));
    const count = text.value.split("\n").length;
    gutter.replaceChildren(...Array.from({ length: count }, (_, at) =>
      el(wrong.has(at + 1) ? "span.wrong-line" : "span", { title: wrong.get(at + 1) ?? "" }, String(at + 1))), el("span", {}, "\u00a0"));
    gutter.scrollTop = text.scrollTop;
    text.setAttribute("aria-invalid", String(problems.length > 0));
    wrongs.replaceChildren(...(problems.length ? [el("ul.wrongs", {}, problems.map(lineOf))] : []));
    for (const [name, node] of controls) {
      node.setAttribute("aria-invalid", String(problems.some(({ pointer }) => pointer === `/${name.replace(".", "/")}`)));
    }
  }

  function lineOf({ line, pointer, message }) {
    return el("li", {}, el("button.link", { type: "button", onclick: () => go(line) }, `Line ${line}`), " ",
      pointer && [el("code", {}, said(pointer)), ": "], said(message));
  }

  function go(line) {
    const before = text.value.split("\n").slice(0, line);
    const end = before.join("\n").length;
    text.focus();
    text.setSelectionRange(end - before.at(-1).length, end);
    text.scrollTop = (text.scrollHeight / text.value.split("\n").length) * Math.max(0, line - 5);
  }

  /** Shows what was refused; false when it says nothing of the text. */
  function refused(error) {
    if (error.status !== 422) return false;
    const { lines } = scan(text.value);
    const errors = error.body?.errors?.length ? error.body.errors : [{ pointer: "", message: error.message }];
    number(errors.map(({ pointer, message }) => {
      const place = pointer.replace(STRIPPED, "");
      return { line: lineAt(lines, place), pointer: place, message };
    }));
    verdict.textContent = "";
    return true;
  }

  async function check(stopped) {
    const { fault } = scan(text.value);
    verdict.textContent = "";
    if (fault) return number([{ ...fault, pointer: "" }]);
    try {
      const body = object([["toolName", { kind: "text", value: "x" }], ["policy", withId(policyId, tree())]]);
      await service.request("POST", "/v1/policies/simulate", exact.write(body), AbortSignal.any([signal, stopped]));
      number([]);
      verdict.textContent = "Nothing is wrong with it.";
    } catch (error) {
      if (stopped.aborted || signal.aborted) return undefined;
      const waits = error.body?.errors?.length && error.body.errors.every((each) => each.code === "missing_setting");
      if (waits) {
        number([]);
        verdict.textContent = error.body.errors.map((each) => each.message).join("; ");
      } else if (!refused(error)) verdict.textContent = "The service cannot say just now whether this is right.";
    }
    return undefined;
  }

  /** The text as PATCH takes it: what was removed is null. */
  function patch() {
    const { members } = tree();
    const names = new Set(members.map(([name]) => name));
    return object([...members, ...original.members.filter(([name]) => !names.has(name)).map(([name]) => [name, word("null")])]);
  }

  async function tryBacktest() {
    if (found.length) return text.focus();
    const body = policyId
      ? object([["policyId", { kind: "text", value: policyId }], ["changes", patch()]])
      : object([["policy", tree()]]);
    test.disabled = true;
    try {
      await backtest(context, result, exact.write(body), signal);
    } catch (error) {
      if (!signal.aborted && !refused(error)) general(error, "No answer came. Try again in a moment.");
    }
    test.disabled = !isSound();
    return undefined;
  }

  async function store() {
    save.disabled = true;
    result.replaceChildren();
    try {
      const { value } = policyId
        ? await service.request("PATCH", `/v1/policies/${encodeURIComponent(policyId)}`, exact.write(patch()), signal, { ifMatch: etag })
        : await service.request("POST", "/v1/policies", exact.write(tree()), signal);
      notice([said(value.name), ` is in force as version ${value.version}.`]);
      leave(value.policyId);
    } catch (error) {
      save.disabled = !isSound();
      if (service.isKept(error)) {
        notice(error.message);
        leave(policyId);
      } else if (error.status === 412) changedMeanwhile(error);
      else if (refused(error)) text.focus();
      else general(error, "No answer came, so it is not known whether this was saved. Look at the policy before you try again.");
    }
  }

  const general = (error, away) => result.replaceChildren(el("p.problem", { role: "alert" }, service.isAway(error) ? away : error.message));

  function changedMeanwhile(error) {
    result.replaceChildren(el("p.problem", { role: "alert" }, "Somebody has changed this policy since you opened it: ", said(error.message), ". Your text is kept here."),
      el("p.closing", {}, el("button", { type: "button", onclick: reload }, "See the policy as it is now")));
  }

  function leave(id) {
    done = true;
    context.go(id ? address("policies", id) : "/policies");
  }

  read();
  number([]);
  timer = setTimeout(check, 0, checking.signal);
  addEventListener("beforeunload", (event) => { if (text.value !== begun) event.preventDefault(); }, { signal });
  signal.addEventListener("abort", () => {
    drafts.keep(draft, done || text.value === begun ? "" : JSON.stringify({ etag, text: text.value }));
    clearTimeout(timer);
    checking.abort();
  });
  const before = kept && el("p.missing", {}, "This is what you wrote before you left; it is not stored. ",
    el("button.link", {
      type: "button",
      onclick() {
        etag = current;
        text.value = begun;
        before.remove();
        typed();
        text.focus();
      },
    }, "Begin again"));
  return [
    before ?? "",
    el("div.editor", {},
      el("section.form", { "aria-label": "Form" }, controls.map(([name, node]) => field(FORM.find(([each]) => each === name)[1], node))),
      el("section.text", { "aria-label": "Text" }, el("label", { htmlFor: "policy-text" }, "The policy as JSON"),
        el("div.numbered", {}, gutter, text), verdict, wrongs)),
    changes,
    el("div.buttons", {}, save, test, el("button.quiet", { type: "button", onclick: () => leave(policyId) }, "Cancel")),
    result,
    trial(context, {
      policy: () => (isSound() ? withId(policyId, tree()) : null),
      isMine: ({ policyId: id, name }) => (policyId ? id === policyId : isSound() && JSON.parse(text.value).name === name),
      examples: exact.member(original, "examples")?.items ?? [],
    }),
  ];
}
