// Which approvals are the same call, and so stand in one row: of one agent, held by one policy, for one tool, about the
// same. What lists know of a call is not all of it: payloads that were compared, and differ, part a group again.

/** Of one that waits; null: it stands alone. */
function likeness(approval) {
  if (approval.status !== "pending" || !approval.about) return null;
  return JSON.stringify([approval.agentId, approval.toolName, approval.policyId, approval.about]);
}

/**
 * Rows `{head, members}` in the order of `approvals`; the head is `selected` where that is one of them. `payloads` has
 * the texts of those payloads that are known, by approval.
 */
export function grouped(approvals, payloads, selected) {
  const rows = [];
  const known = new Map();
  for (const approval of approvals) {
    const like = likeness(approval);
    const payload = payloads.get(approval.approvalId);
    const found = like !== null && (known.get(like) ?? []).find((row) =>
      payload === undefined || row.payload === undefined || row.payload === payload);
    if (found) {
      found.members.push(approval);
      found.payload ??= payload;
      if (approval.approvalId === selected) found.head = approval;
    } else {
      const row = { head: approval, members: [approval], payload };
      rows.push(row);
      if (like !== null) known.set(like, [...(known.get(like) ?? []), row]);
    }
  }
  return rows;
}
