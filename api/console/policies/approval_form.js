// The part of a policy's form that is about `approval`: who approves what it holds, and what becomes of what nobody decides.

const HOUR = "3600";
const PREFIX = "approval.";
export const APPROVAL = [
  ["approval.approvers", "Who must approve what it holds", [["1", "One person"], ["2", "Two people"], ["3", "Three people"]]],
  ["approval.roles", "Whose approval counts", [["", "Reviewers' and admins'"], ["reviewer", "Reviewers' alone"], ["admin", "Admins' alone"]]],
  ["approval.allowSelf", "Whoever asked for the call", [["false", "May not approve it"], ["true", "May approve it"]]],
  ["approval.expiresAfterSeconds", "It waits at most, in minutes", "minutes"],
  ["approval.onExpiry", "When nobody has decided by then", [["block", "It is blocked"], ["escalate", "Admins alone decide, for an hour more"]]],
];

const word = (text) => ({ kind: "word", text });
const text = (value) => ({ kind: "text", value });

export const isTerm = (name) => name.startsWith(PREFIX);

/** What the form shows of `approval`, as JSON has it. */
export function shownTerm(approval, name) {
  const value = approval?.[name.slice(PREFIX.length)];
  if (name === "approval.roles") return value?.length === 1 ? value[0] : "";
  if (name === "approval.expiresAfterSeconds") return value === undefined ? "" : value / 60;
  return value ?? { "approval.approvers": 1, "approval.onExpiry": "block" }[name] ?? false;
}

/** `approval` among the members of a policy says what the form says, and goes when that says nothing new. */
export function writeTerm(members, name, value) {
  const at = members.findIndex(([each]) => each === "approval");
  const terms = new Map(at < 0 ? [] : members[at][1].members);
  const put = (term, node) => (node ? terms.set(term, node) : terms.delete(term));
  const key = name.slice(PREFIX.length);
  if (key === "approvers") put(key, value !== "1" && word(value));
  else if (key === "roles") put(key, value && { kind: "array", items: [text(value)] });
  else if (key === "allowSelf") put(key, value === "true" && word(value));
  else if (key === "expiresAfterSeconds") {
    put(key, value > 0 && word(String(Math.round(value * 60))));
    if (!terms.has(key)) ["onExpiry", "escalateSeconds"].forEach((each) => terms.delete(each));
  } else {
    const escalates = value === "escalate";
    put(key, escalates && text(value));
    put("escalateSeconds", escalates && (terms.get("escalateSeconds") ?? word(HOUR)));
    if (escalates && !terms.has("expiresAfterSeconds")) put("expiresAfterSeconds", word(HOUR));
  }
  const node = { kind: "object", members: [...terms] };
  members.splice(at < 0 ? members.length : at, at < 0 ? 0 : 1, ...(terms.size ? [["approval", node]] : []));
}
