// What matched, found again in the payload: the reasons of policies name paths and values, and these are marked where they
// stand. A value that stands nowhere as it is named is not marked; the reason is shown all the same.

const LEAST = 2;
/** Pieces of one text; the rest is one. Even, so that it is no hit. */
const MOST_PIECES = 2_000;

/** The texts in quotes of a clause, and what it names of numbers. */
function valuesOf(clause) {
  const texts = [...clause.matchAll(/"(?:[^"\\]|\\.)*"/g)].map(([quoted]) => {
    try {
      return JSON.parse(quoted);
    } catch {
      return "";
    }
  });
  return texts.filter((text) => text.length >= LEAST && !text.endsWith("…"));
}

function at(tree, path) {
  let node = tree;
  for (const part of path) {
    node = node?.kind === "object" ? node.members.find(([key]) => key === part)?.[1]
      : node?.kind === "array" ? node.items[Number(part)] : undefined;
  }
  return node;
}

function* leaves(node) {
  if (node.kind === "object") for (const [, child] of node.members) yield* leaves(child);
  else if (node.kind === "array") for (const child of node.items) yield* leaves(child);
  else yield node;
}

/** A Map of nodes of the payload to `{needles, why}`; no needles: the whole of it. */
export function matchedIn(tree, policies) {
  const marks = new Map();
  const add = (node, needle, why) => {
    const known = marks.get(node) ?? { needles: [], why };
    if (needle !== null && !known.needles.includes(needle)) known.needles.push(needle);
    marks.set(node, known);
  };
  for (const policy of policies ?? []) {
    if (policy.action === "allow") continue;
    const why = `matched by ${policy.policyName}`;
    for (const clause of policy.reason.split(/; (?=`)/)) {
      const path = clause.match(/^`([\w.-]+)`/)?.[1];
      if (!path) continue;
      const values = valuesOf(clause);
      if (path.startsWith("inputPayload.")) {
        const named = at(tree, path.split(".").slice(1));
        if (!named) continue;
        for (const node of leaves(named)) {
          const inside = node.kind === "text" ? values.filter((each) => each !== node.value && has(node.value, each)) : [];
          if (inside.length) for (const each of inside) add(node, each, why);
          else if (node === named || values.includes(node.value)) add(node, null, why);
        }
      } else if (path.startsWith("derived.")) {
        for (const node of leaves(tree)) {
          if (node.kind !== "text") continue;
          for (const each of values) if (has(node.value, each)) add(node, each === node.value ? null : each, why);
        }
      }
    }
  }
  return marks;
}

const has = (text, needle) => text.toLowerCase().includes(needle.toLowerCase());

/** A text in pieces `[text, isHit]`. */
export function pieces(text, mark) {
  if (!mark) return [[text, false]];
  if (!mark.needles.length) return [[text, true]];
  const escaped = [...mark.needles].sort((one, other) => other.length - one.length).map((each) => each.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const parts = text.split(new RegExp(`(${escaped.join("|")})`, "gi"));
  if (parts.length > MOST_PIECES) parts.push(parts.splice(MOST_PIECES).join(""));
  return parts.map((part, index) => [part, index % 2 === 1]).filter(([part]) => part);
}
