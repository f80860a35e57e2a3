// What was typed and not sent, by user and approval: it outlives a session that ends meanwhile.

const drafts = new Map();

export function draftsOf(email) {
  const key = (approvalId) => JSON.stringify([email, approvalId]);
  return {
    get: (approvalId) => drafts.get(key(approvalId)) ?? "",
    keep(approvalId, text) {
      if (text) drafts.set(key(approvalId), text);
      else drafts.delete(key(approvalId));
    },
  };
}
