// What a reviewer must not miss: characters that cannot be seen, letters that look like others, hosts that look like known
// ones, several recipients, several commands, amounts that are ten times what is spoken of, values from where nothing is
// to be believed. Says what is there; decides nothing.

import { el } from "../dom.js";
import { hiddenIn, oddIn, said } from "../text.js";

// Bounded, and from where letters begin: a word without end would take minutes.
const HOST = /(?<![\p{L}\p{N}])(?:[\p{L}\p{N}](?:[\p{L}\p{N}-]{0,61}[\p{L}\p{N}])?\.){1,20}\p{L}[\p{L}\p{N}-]{0,61}\p{L}/gu;
/** Characters of a word that are shown; the whole of it stands below. */
const MOST_OF_WORD = 80;
const SOURCES = {
  task: "named in the task",
  trusted: "read from a trusted tool",
  untrusted: "read from a source that anybody can write to",
  unseen: "seen nowhere before in this run",
};
/** Where the value of a target comes from, in words. */
export const sourceOf = (source) => SOURCES[source];

const LOOKS = { а: "a", е: "e", о: "o", р: "p", с: "c", у: "y", х: "x", і: "i", ј: "j", ѕ: "s", ԁ: "d", ӏ: "l", һ: "h", ο: "o", α: "a", ν: "v", ι: "i" };

/** Two hosts that look the same have the same outline. */
const outline = (host) => host.normalize("NFKC").toLowerCase().replace(/[^\x00-\x7f]/g, (letter) => LOOKS[letter] ?? letter)
  .replaceAll("rn", "m").replaceAll("vv", "w").replaceAll("0", "o").replace(/[1i|]/g, "l").replaceAll("5", "s");

/** True: one letter more, less, another, or two that changed places. */
function isOneOff(one, other) {
  if (Math.abs(one.length - other.length) > 1) return false;
  let start = 0;
  while (start < one.length && one[start] === other[start]) start += 1;
  let end = 0;
  while (end < Math.min(one.length, other.length) - start && one.at(-1 - end) === other.at(-1 - end)) end += 1;
  const [a, b] = [one.slice(start, one.length - end), other.slice(start, other.length - end)];
  if (/^\d*$/.test(a + b)) return false; // `mail1` and `mail2`
  return a.length + b.length <= 2 || (a.length === 2 && b.length === 2 && a[0] === b[1] && a[1] === b[0]);
}

export const hostsIn = (text) => new Set((text.match(HOST) ?? []).map((each) => each.toLowerCase()));

/** A function: the one of `hosts`, maybe very many, that a host could be mistaken for. */
function confusable(hosts) {
  const known = hosts.filter((each) => each.length > 5).map((each) => [each, outline(each)]);
  return (host, own = outline(host)) => known.find(([each, outlined]) => each !== host && (outlined === own || isOneOff(each, host)))?.[0] ?? null;
}

const shortened = (word) => (word.length > MOST_OF_WORD ? `${word.slice(0, MOST_OF_WORD)}…` : word);

/** The numbers that a text speaks of. */
function numbersIn(text) {
  return (text.match(/\d[\d,. ’']*\d|\d/g) ?? []).flatMap((each) => {
    const plain = each.replace(/[ ’']/g, "");
    return [Number(plain.replace(/,/g, "")), Number(plain.replace(/\./g, "").replace(",", "."))];
  }).filter((each) => each > 0);
}

/**
 * Nodes, one for each doubt. `texts` are those of the payload, keys among them; `spoken` is what task and agent say;
 * `known` are hosts that are known from elsewhere.
 */
export function doubts({ about }, texts, spoken, known) {
  const found = [];
  const tell = (...nodes) => found.push(el("li", {}, nodes));
  const hidden = new Set(texts.flatMap(hiddenIn));
  if (hidden.size) tell(el("strong", {}, "Hidden characters: "), [...hidden].slice(0, 8).join(", "), hidden.size > 8 && ` and ${hidden.size - 8} more`, ". They are marked below.");
  const odd = new Set(texts.flatMap(oddIn));
  if (odd.size) tell(el("strong", {}, "Letters that look like others: "), [...odd].slice(0, 5).map((each, index) => [index > 0 && ", ", said(shortened(each))]), odd.size > 5 && ` and ${odd.size - 5} more`, ".");
  const recipients = about?.recipients ?? [];
  const count = recipients.length + (about?.more?.recipients ?? 0);
  if (count > 1) tell(el("strong", {}, `${count} recipients: `), recipients.map((each, index) => [index > 0 && ", ", said(each)]), about.more?.recipients && ` and ${about.more.recipients} more`, ".");
  const hosts = new Set([...recipients, ...(about?.hosts ?? []), ...(about?.targets ?? []).map((each) => each.value)].flatMap((each) => [...hostsIn(each)]));
  const pairs = new Set();
  const mistakenFor = confusable([...known, ...hosts]);
  // Those that are named elsewhere last: what is to be told is the one that looks like them.
  for (const host of [...hosts].sort((one, other) => known.has(one) - known.has(other))) {
    const other = mistakenFor(host);
    const pair = other && [host, other].sort().join(" ");
    if (!other || pairs.has(pair)) continue;
    pairs.add(pair);
    tell(el("strong", {}, said(host)), " looks like ", el("strong", {}, said(other)), known.has(other) ? ", which is named elsewhere, and is another." : ", and is another.");
  }
  const commands = Math.max((about?.commands ?? []).length - 1, 0) + (about?.more?.commands ?? 0);
  if (commands > 1) tell(el("strong", {}, "More than one command"), " runs; they are listed below.");
  const amount = about?.amount;
  if (typeof amount === "number") {
    const numbers = numbersIn(spoken);
    const times = [10, 100, 1000].find((each) => numbers.some((number) => Math.abs(number * each - amount) < 1e-9 * amount));
    if (times && !numbers.includes(amount)) tell(el("strong", {}, `${times} times`), ` what the task or the agent speaks of: ${(amount / times).toLocaleString("en")}.`);
  }
  if (amount === "unreadable") tell("The amount cannot be read.");
  for (const target of about?.targets ?? []) {
    if (target.source === "untrusted" || target.source === "unseen") tell(el("strong", {}, said(target.value)), ` was ${SOURCES[target.source]}.`);
  }
  return found;
}
