// A call as what it is: a mail, a payment, a shell command, SQL; anything else as JSON. Nothing of the payload is left
// out of any of these, and nothing is cut without saying how much there is. JSON is one key away.

import { el } from "../dom.js";
import * as exact from "../exact.js";
import { pieces } from "../marks.js";
import { foldOf } from "../runs/payload.js";
import { said, visible } from "../text.js";

const MAIL = { __proto__: null, to: "To", cc: "Cc", bcc: "Bcc", recipient: "To", recipients: "To", subject: "Subject", body: "", text: "", message: "", content: "", html: "" };
const SQL = /('(?:[^']|'')*'|--[^\n]*|\/\*[\s\S]*?(?:\*\/|$))|\b(select|from|where|insert|into|values|update|set|delete|drop|truncate|alter|create|table|grant|revoke|join|left|right|inner|outer|on|and|or|not|null|in|like|limit|order|group|by|having|union|all|as|with|returning|distinct|exists|between|is|case|when|then|else|end|index|view|database|schema|cascade|begin|commit|rollback)\b/gi;
/** Elements made of one text. */
const MOST_MADE = 2_000;
let preferJson = false; // stays while the page does

const named = (key) => key.toLowerCase().replace(/[^a-z]/g, "");

/** What the call would be shown as: `mail`, `payment`, `shell`, `sql`, or null. */
function formOf({ about, toolName }, tree) {
  const has = (names) => tree.members.find(([key, node]) => names.includes(named(key)) && node.kind === "text");
  const kind = about?.kind;
  if (has(["command", "cmd", "script"]) && (about?.commands || /bash|shell|terminal|exec|command/i.test(toolName))) return "shell";
  if (about?.statements && has(["sql", "query", "statement"])) return "sql";
  if (about?.recipients && (kind === "mail" || has(["subject", "body"]))) return "mail";
  return [undefined, "unreadable"].includes(about?.amount) ? null : "payment";
}

/** The payload's section; `marks` are those of `matchedIn`. `toggle()` of its node turns to JSON and back. */
export function callOf(approval, tree, marks) {
  const title = el("h3", { id: "payload-title" }, "What it would be called with");
  if (!tree || tree.kind !== "object") {
    return el("section", {}, title, el("p.hint", {}, "The payload is no longer kept here: its time was over."));
  }
  const form = formOf(approval, tree);
  const text = exact.write(tree);
  const json = el("div.payload", { tabIndex: 0, role: "region", "aria-labelledby": "payload-title" }, exact.show(tree, marks));
  const shown = form && el(`div.form.${form}`, {}, { mail, payment, shell, sql }[form](approval, tree, marks));
  const fold = foldOf(json, text.length);
  const copy = navigator.clipboard && el("button.link", {
    type: "button",
    async onclick() {
      try {
        await navigator.clipboard.writeText(text);
        copy.textContent = "Copied";
      } catch {
        copy.textContent = "Not allowed here";
      }
    },
  }, "Copy");
  const turn = form && el("button.link.turn", { type: "button", onclick: () => toggle(), "aria-keyshortcuts": "v" });
  const section = el("section.what", {},
    el("div.titled", {}, title, el("span.tools", {}, fold, turn, copy)), shown, json);

  function draw() {
    const asJson = !form || preferJson;
    json.hidden = !asJson;
    if (!form) return;
    shown.hidden = asJson;
    turn.replaceChildren(asJson ? `As a ${{ shell: "command", sql: "statement" }[form] ?? form} ` : "JSON ", el("kbd", { "aria-hidden": "true" }, "v"));
  }

  function toggle() {
    preferJson = !preferJson;
    draw();
  }

  draw();
  return section;
}

/** A text with what matched marked, and whatever `inner` makes of its parts. */
function marked(node, marks, inner = visible) {
  const mark = marks.get(node);
  return pieces(node.value, mark).map(([part, hit]) => (hit ? el("mark", { title: mark.why }, visible(part)) : inner(part)));
}

/** A text of any length, as it reads. */
function prose(node, marks, label, inner) {
  const box = el("div.payload.prose", { tabIndex: 0, role: "region", "aria-label": label }, el("bdi", {}, marked(node, marks, inner)));
  return [box, foldOf(box, node.value.length)];
}

function value(node, marks) {
  if (node.kind !== "text") return exact.show(node, marks);
  return node.value.length > 400 ? prose(node, marks, "A text") : el("bdi", {}, marked(node, marks));
}

function rows(members, marks) {
  if (!members.length) return null;
  return el("dl", {}, members.map(([key, node]) => [el("dt", {}, said(key)), el("dd", {}, value(node, marks))]));
}

const split = (node, isOne) => [node.members.filter(([key, child]) => isOne(key, child)), node.members.filter(([key, child]) => !isOne(key, child))];

/** One line an address, its host in bold: a second one, or another host, is seen. */
function addresses(node, marks) {
  const found = node.kind === "array" ? node.items : [node];
  if (found.some((each) => each.kind !== "text")) return exact.show(node, marks);
  const texts = found.flatMap((each) => (marks.has(each) ? [each] : each.value.split(/(?<=[,;])\s*/).filter(Boolean).map((text) => ({ ...each, value: text }))));
  if (texts.length > MOST_MADE) return value(node, marks);
  return el("ul.addresses", {}, texts.map((each) => {
    const sign = marks.has(each) ? -1 : each.value.lastIndexOf("@");
    return el("li", {}, el("bdi", {}, sign < 0 ? marked(each, marks) : [visible(each.value.slice(0, sign + 1)), el("b", {}, visible(each.value.slice(sign + 1)))]));
  }));
}

function mail(approval, tree, marks) {
  const [parts, rest] = split(tree, (key) => named(key) in MAIL);
  const isBody = ([key, node]) => !MAIL[named(key)] && node.kind === "text";
  return [
    el("dl", {}, parts.filter((each) => !isBody(each)).map(([key, node]) => [
      el("dt", {}, MAIL[named(key)] || said(key)),
      el("dd", {}, MAIL[named(key)] === "Subject" || !MAIL[named(key)] ? value(node, marks) : addresses(node, marks))])),
    parts.filter(isBody).map(([key, node]) => prose(node, marks, key)),
    rows(rest, marks),
  ];
}

function payment(approval, tree, marks) {
  const { amount, currency, targets } = approval.about;
  const stated = typeof amount === "number" ? amount.toLocaleString("en", { maximumFractionDigits: 20 }) : String(amount);
  const payees = (targets ?? []).filter((each) => ![String(amount), currency].includes(each.value));
  return [
    el("p.money", {}, el("strong", {}, said(stated)), currency && [" ", said(currency)],
      payees.length > 0 && [" to ", payees.map((each, index) => [index > 0 && ", ", el("strong", {}, said(each.value))])]),
    rows(tree.members, marks),
  ];
}

function shell(approval, tree, marks) {
  const [scripts, rest] = split(tree, (key, node) => ["command", "cmd", "script"].includes(named(key)) && node.kind === "text");
  const commands = (approval.about?.commands ?? []).slice(1);
  const more = approval.about?.more?.commands;
  return [
    scripts.map(([key, node]) => prose(node, marks, key)),
    commands.length > 0 && [
      el("p.hint", {}, "What a shell would run, also in other spellings:"),
      el("ol.commands", { "aria-label": "Commands" }, commands.map((each) => el("li", {}, el("code", {}, said(each))))),
      more && el("p.hint", {}, `and ${more} more`)],
    rows(rest, marks),
  ];
}

/** SQL with its keywords marked off; quoted texts and comments have none. */
function highlighted(text) {
  const nodes = [];
  let from = 0;
  for (const found of text.matchAll(SQL)) {
    nodes.push(visible(text.slice(from, found.index)), el(found[1] ? "span.quoted" : "b.keyword", {}, visible(found[0])));
    from = found.index + found[0].length;
    if (nodes.length > MOST_MADE) break;
  }
  return [...nodes, visible(text.slice(from))];
}

function sql(approval, tree, marks) {
  const [statements, rest] = split(tree, (key, node) => ["sql", "query", "statement"].includes(named(key)) && node.kind === "text");
  return [
    statements.map(([key, node]) => prose(node, marks, key, highlighted)),
    el("ul.commands", { "aria-label": "Statements" }, approval.about.statements.map((each) => el("li", {}, el("code", {}, said(each))))),
    rows(rest, marks),
  ];
}
