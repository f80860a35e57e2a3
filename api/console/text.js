// Shows text of agents so that nothing in it hides: characters that are not seen, or that reorder others, are spelled
// out and marked; letters that pretend to be those of another alphabet are marked.

import { el } from "./dom.js";

// Controls (but tab and line feed), format characters (bidirectional ones, zero widths, tags), line and paragraph
// separators, blanks other than the space, private use, what is to be ignored where it is not known (variation selectors,
// fillers, code points kept for such), what else looks like nothing, and marks stacked higher than any language does.
const HIDDEN = new RegExp(
  "(?![\\t\\n])\\p{Cc}|\\p{Cf}|\\p{Cs}|\\p{Co}|\\p{Zl}|\\p{Zp}|(?! )\\p{Zs}"
  + "|\\p{Default_Ignorable_Code_Point}|[\\u2800\\ufffc]"
  + "|(?<=\\p{M}{4})\\p{M}",
  "gu",
);

const asName = (character) => `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

/** As in JSON: `\u202e`. */
export const asEscape = (character) => character.split("")
  .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`).join("");

// Letters that are taken for Latin ones; beside Latin letters, in one word or one address, they pretend.
const PRETENDER = /[\p{Script=Cyrillic}\p{Script=Armenian}\p{Script=Cherokee}\p{Script=Lisu}ΑΒΕΖΗΙΚΜΝΟΡΤΥΧαικνορυχ\uff21-\uff3a\uff41-\uff5a\u{1d400}-\u{1d7ff}]/gu;
const WORD = /[\p{L}\p{M}\p{N}]+/gu;
const JOINED = /[\p{L}\p{M}\p{N}_%+@.-]+/gu;
const DOMAIN = /(?<=[\p{L}\p{N}])\.[A-Za-z][A-Za-z-]+(?![\p{L}\p{N}])/gu;
const FOREIGN = /[^\x00-\x7f]/;
const LATIN = /\p{Script=Latin}/u;

/** What reads as an address, up to its last domain. Each pattern looks once; one for both would take minutes. */
function* addresses(text) {
  for (const { 0: joined, index } of text.matchAll(JOINED)) {
    const last = [...joined.matchAll(DOMAIN)].at(-1);
    if (last) yield { 0: joined.slice(0, last.index + last[0].length), index };
  }
}

/** Where letters of a text pretend to be others: `[index, letter, word]`. */
function pretenders(text) {
  if (!FOREIGN.test(text)) return [];
  const found = new Map();
  for (const words of [text.matchAll(WORD), addresses(text)]) {
    for (const { 0: word, index } of words) {
      if (!FOREIGN.test(word) || !LATIN.test(word)) continue;
      for (const letter of word.matchAll(PRETENDER)) found.set(index + letter.index, [index + letter.index, letter[0], word]);
    }
  }
  return [...found.values()];
}

/** Names of the characters of a text that cannot be seen: `U+202E`. */
export const hiddenIn = (text) => (FOREIGN_OR_CONTROL.test(text) ? [...text.matchAll(HIDDEN)].map(([character]) => asName(character)) : []);
const FOREIGN_OR_CONTROL = /[^\x20-\x7e\n\t]/;

/** The words of a text in which letters pretend to be others. */
export const oddIn = (text) => pretenders(text).map(([, , word]) => word);

/** Characters marked in one text: a page of very many elements takes minutes. */
const MOST_MARKED = 1_000;

/** Text as nodes, hidden characters spelled and marked, letters marked that pretend to be others; beyond the bound
 * spelled alone. */
export function visible(text, spell = asName) {
  const nodes = [];
  const found = [
    ...[...text.matchAll(HIDDEN)].map(({ 0: character, index }) => [index, character, spell(character),
      (name) => el("span.hidden-character", { title: "a character that cannot be seen" }, name)]),
    ...pretenders(text).map(([index, letter]) => [index, letter, letter,
      () => el("span.odd-letter", { title: `${asName(letter)}, a letter of another alphabet than those around it` }, letter)]),
  ].sort((one, other) => one[0] - other[0]);
  let from = 0;
  for (const [index, character, name, node] of found.slice(0, MOST_MARKED)) {
    if (index > from) nodes.push(text.slice(from, index));
    nodes.push(node(name));
    from = index + character.length;
  }
  let rest = "";
  for (const [index, character, name] of found.slice(MOST_MARKED)) {
    rest += text.slice(from, index) + name;
    from = index + character.length;
  }
  if (from < text.length || rest) nodes.push(rest + text.slice(from));
  return nodes;
}

/** Text of an agent on its own: its direction of writing does not touch its surroundings. */
export function said(text) {
  return el("bdi", {}, visible(text));
}

/** What a held call is about, in a sentence, as a node; for those that have none the tool. */
export function titleOf({ about, toolName }) {
  const sentence = about?.sentence;
  return said(sentence ? sentence.charAt(0).toUpperCase() + sentence.slice(1) : toolName);
}
