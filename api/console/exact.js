// Reads JSON without changing it, and shows it. JSON.parse rounds numbers beyond 2^53 and moves keys that look like
// numbers to the front; a reviewer must see what was really sent.

import { el } from "./dom.js";
import { pieces } from "./marks.js";
import { asEscape, visible } from "./text.js";

/** Payloads with more values and lines are shown as plain text, which costs far less. */
const MOST_MARKED = 20_000;

/**
 * The tree of valid JSON text. A node is `{kind: "object", members: [[key, node]]}`, `{kind: "array", items}`,
 * `{kind: "text", value}`, or `{kind: "word", text}` with a number, true, false or null as it is spelled.
 */
export function read(text) {
  let at = 0;

  function skip() {
    while (" \t\n\r".includes(text[at]) && at < text.length) at += 1;
    return text[at];
  }

  function string() {
    const start = at;
    for (at += 1; text[at] !== '"'; at += text[at] === "\\" ? 2 : 1) {
      if (at >= text.length) throw new SyntaxError("the text ends inside a string");
    }
    at += 1;
    return JSON.parse(text.slice(start, at));
  }

  function value() {
    const first = skip();
    if (first === '"') return { kind: "text", value: string() };
    if (first === "{") return { kind: "object", members: several("}", member) };
    if (first === "[") return { kind: "array", items: several("]", value) };
    const start = at;
    while (at < text.length && !",]} \t\n\r".includes(text[at])) at += 1;
    if (start === at) throw new SyntaxError("a value is missing");
    return { kind: "word", text: text.slice(start, at) };
  }

  function member() {
    skip();
    const key = string();
    skip();
    at += 1;
    return [key, value()];
  }

  function several(end, one) {
    const found = [];
    at += 1;
    while (skip() !== end) {
      if (at >= text.length) throw new SyntaxError("the text ends too early");
      found.push(one());
      if (skip() === ",") at += 1;
    }
    at += 1;
    return found;
  }

  return value();
}

/** The member of an object node. */
export function member(node, key) {
  return node.members.find(([name]) => name === key)?.[1];
}

function count(node) {
  if (node.kind === "text") return node.value.split("\n").length;
  const children = node.items ?? node.members?.map(([, child]) => child) ?? [];
  return children.reduce((sum, child) => sum + count(child), 1);
}

/** A node as indented JSON text. */
export function write(node, indent = "") {
  const deeper = `${indent}  `;
  const block = (open, lines, close) =>
    lines.length ? `${open}\n${lines.map((line) => deeper + line).join(",\n")}\n${indent}${close}` : open + close;
  if (node.kind === "object") {
    return block("{", node.members.map(([key, child]) => `${JSON.stringify(key)}: ${write(child, deeper)}`), "}");
  }
  if (node.kind === "array") return block("[", node.items.map((child) => write(child, deeper)), "]");
  return node.kind === "text" ? JSON.stringify(node.value) : node.text;
}

/** A node as an element; its text content is the same JSON that `write` gives. `marks` has the nodes to be marked, each
 * with `{needles, why}`; without needles the whole of it is. */
export function show(node, marks = new Map()) {
  if (count(node) > MOST_MARKED) return el("code.json", {}, visible(write(node), asEscape));
  return el("code.json", {}, nodes(node, "", marks));
}

function nodes(node, indent, marks) {
  if (node.kind === "word") {
    const word = el(Number.isNaN(Number(node.text)) ? "span.word" : "span.number", {}, node.text);
    return [marks.has(node) ? el("mark", { title: marks.get(node).why }, word) : word];
  }
  if (node.kind === "text") return [string(node.value, marks.get(node))];
  const isObject = node.kind === "object";
  const children = isObject ? node.members : node.items;
  const [open, close] = isObject ? "{}" : "[]";
  if (!children.length) return [open + close];
  const deeper = `${indent}  `;
  return [
    `${open}\n`,
    ...children.map((child, place) => el("span.line", {},
      el("span.indent", {}, deeper),
      isObject ? [el("span.key", {}, visible(JSON.stringify(child[0]), asEscape)), ": ", ...nodes(child[1], deeper, marks)] : nodes(child, deeper, marks),
      place < children.length - 1 ? "," : "", "\n")),
    el("span.indent", {}, indent), close,
  ];
}

/** A string with its quotes; a line of the text is a line on the page, after its `\n`. */
function string(value, mark) {
  const escaped = (text) => visible(JSON.stringify(text).slice(1, -1), asEscape);
  const parts = value.split("\n");
  const inside = parts.flatMap((part, place) => [
    ...pieces(part, mark).map(([piece, hit]) => (hit ? el("mark", { title: mark.why }, escaped(piece)) : escaped(piece))),
    ...(place < parts.length - 1 ? [el("span.newline", {}, "\\n"), el("br")] : []),
  ]);
  return el(parts.length > 1 ? "span.text.lines" : "span.text", {}, '"', el("bdi", {}, inside), '"');
}
