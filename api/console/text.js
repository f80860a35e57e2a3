// Shows text of agents so that nothing in it hides: characters that are not seen, or that reorder others, are spelled
// out and marked.

import { el } from "./dom.js";

// Controls (but tab and line feed), format characters (bidirectional ones, zero widths, tags), line and paragraph
// separators, blanks other than the space, private use, variation selectors, fillers that look like nothing, and
// marks stacked higher than any language does.
const HIDDEN = new RegExp(
  "(?![\\t\\n])\\p{Cc}|\\p{Cf}|\\p{Cs}|\\p{Co}|\\p{Zl}|\\p{Zp}|(?! )\\p{Zs}"
  + "|[\\u034f\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u2800\\u3164\\uffa0\\ufe00-\\ufe0f\\u{e0100}-\\u{e01ef}]"
  + "|(?<=\\p{M}{4})\\p{M}",
  "gu",
);

const asName = (character) => `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

/** As in JSON: `\u202e`. */
export const asEscape = (character) => character.split("")
  .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`).join("");

/** Text as nodes, every hidden character spelled and marked. */
export function visible(text, spell = asName) {
  const nodes = [];
  let from = 0;
  for (const found of text.matchAll(HIDDEN)) {
    if (found.index > from) nodes.push(text.slice(from, found.index));
    nodes.push(el("span.hidden-character", { title: "a character that cannot be seen" }, spell(found[0])));
    from = found.index + found[0].length;
  }
  if (from < text.length) nodes.push(text.slice(from));
  return nodes;
}

/** Text of an agent on its own: its direction of writing does not touch its surroundings. */
export function said(text) {
  return el("bdi", {}, visible(text));
}
