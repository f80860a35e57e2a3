// What differs between two states of a policy, member by member and line by line.

import { el } from "../dom.js";
import * as exact from "../exact.js";
import { foldOf } from "../runs/payload.js";
import { asEscape, visible } from "../text.js";

/** Members that the service keeps, and nobody writes. */
export const KEPT = new Set(["policyId", "version", "createdAt", "updatedAt", "missingSettings"]);

/** The members of an object's tree that people write. */
export function written(tree) {
  return { kind: "object", members: tree.members.filter(([name]) => !KEPT.has(name)) };
}

/** What people wrote, as the service takes it: with the policy's id, null for one that has none yet. */
export function withId(policyId, tree) {
  return { kind: "object", members: [...(policyId ? [["policyId", { kind: "text", value: policyId }]] : []), ...tree.members] };
}

/** `[member, before, after]` of each that differs, as text; null where there is none. */
export function differences(before, after) {
  const texts = (tree) => new Map(written(tree).members.map(([name, value]) => [name, exact.write(value)]));
  const [old, now] = [texts(before), texts(after)];
  return [...new Set([...now.keys(), ...old.keys()])]
    .map((name) => [name, old.get(name) ?? null, now.get(name) ?? null])
    .filter(([, was, is]) => was !== is);
}

/** `["-" | "+" | " ", line]` of all lines of both, by their longest common subsequence. */
function lines(was, is) {
  const [a, b] = [was?.split("\n") ?? [], is?.split("\n") ?? []];
  // Whole texts this long are rarely alike; comparing each line with each would take too long.
  if (a.length * b.length > 4_000_000) return [...a.map((line) => ["-", line]), ...b.map((line) => ["+", line])];
  const best = Array.from({ length: a.length + 1 }, () => new Uint32Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      best[i][j] = a[i] === b[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
    }
  }
  const found = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      found.push([" ", a[i]]);
      i += 1;
      j += 1;
    } else if (i < a.length && (j === b.length || best[i + 1][j] >= best[i][j + 1])) {
      found.push(["-", a[i]]);
      i += 1;
    } else {
      found.push(["+", b[j]]);
      j += 1;
    }
  }
  return found;
}

const NAMES = { "-": ["del", "Removed: "], "+": ["ins", "Added: "], " ": ["span", ""] };

/** Differences as part of a page. */
export function showDifferences(found, none = "Nothing differs.") {
  if (!found.length) return el("p.hint", {}, none);
  return el("dl.differences", {}, found.map(([name, was, is]) => {
    const box = el("dd", {}, el("code", {}, lines(was, is).map(([sign, line]) => {
      const [tag, spoken] = NAMES[sign];
      return el(tag, {}, spoken && el("span.unseen", {}, spoken), `${sign} `, visible(line, asEscape), "\n");
    })));
    return [el("dt", {}, name, " ", foldOf(box, (was ?? "").length + (is ?? "").length)), box];
  }));
}
